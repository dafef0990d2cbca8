"""The server on the real engine with a tiny model: what callers see, and that blocks come back."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
import pytest
import torch
import uvicorn
from engine_folder import CONTEXT, tiny_model
from engine_rig import tokenizer
from prometheus_client.parser import text_string_to_metric_families

from trivet.prefix.engine.engine import Engine, EngineSettings
from trivet.prefix.engine.loading import adopt
from trivet.prefix.engine.prompts import Prompts
from trivet.prefix.engine.scheduler import Limits
from trivet.prefix.engine.server import EngineApp, Serving

SYSTEM = "You are the desk of a small airline, and say so in few words. " * 2


@dataclass
class Running:
    """A served engine."""

    url: str
    engine: Engine
    loaded: Any
    app: EngineApp

    @property
    def openai(self) -> Any:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0, timeout=60)

    @property
    def anthropic(self) -> Any:
        return anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0, timeout=60)

    def all_back(self) -> bool:
        """Whether no block is in use, now or soon."""
        end = time.monotonic() + 20
        while self.engine.stats().pool.used and time.monotonic() < end:
            time.sleep(0.01)
        self.engine.pool.check_integrity()
        stats = self.engine.stats()
        return (stats.pool.used, stats.running, stats.waiting) == (0, 0, 0)

    def figures(self) -> dict[str, float]:
        """Metrics without labels, or summed over them."""
        found: dict[str, float] = {}
        text = httpx2.get(f"{self.url}/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0) + sample.value
        return found


@contextmanager
def served(kv_memory: int = 4 << 20, limits: Limits | None = None) -> Iterator[Running]:
    torch.set_num_threads(1)
    made = tokenizer()
    loaded = adopt("tiny", tiny_model(), made)
    settings = EngineSettings(kv_memory, limits=limits or Limits())
    started = threading.Event()
    box: list[Any] = []

    async def main() -> None:
        engine = Engine(loaded, settings)
        engine.start()
        facts = loaded.facts
        app = EngineApp(Serving(engine, Prompts(made, facts.context, facts.vocabulary), ("tiny",)))
        config = uvicorn.Config(app, port=0, lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        box.extend((server, Running(f"http://127.0.0.1:{port}", engine, loaded, app)))
        started.set()
        await serving
        await engine.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield box[1]
    finally:
        box[0].should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as found:
        yield found


def body(text: str = "Bags?", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 8, **more}


def reference(running: Running, prompt: list[int], count: int) -> str:
    """Greedy tokens by the unpaged model, its own cache off."""
    model = tiny_model()
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
            tokens.append(int(logits[0, -1].argmax()))
    return str(tokenizer().decode(tokens[len(prompt) :], skip_special_tokens=True))


def test_cold_and_warm_answers_are_the_models_own(running: Running) -> None:
    salt = {"extra_body": {"cache_salt": "own"}}
    prompt = tokenizer().apply_chat_template(
        body()["messages"], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    wanted = reference(running, prompt, 8)
    with running.openai as client:
        cold, warm = (client.chat.completions.create(**body(), **salt) for _ in range(2))
    for answer in (cold, warm):
        assert answer.choices[0].message.content == wanted
        assert answer.choices[0].finish_reason == "length"
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens == (len(prompt) - 1) // 16 * 16


def test_choices_of_one_prompt_share_its_blocks(running: Running) -> None:
    before = running.figures()
    salt = {"extra_body": {"cache_salt": "choices"}}
    asked = body(n=4, temperature=1.0, seed=11)
    with running.openai as client:
        answer = client.chat.completions.create(**asked, **salt)
        again = client.chat.completions.create(**asked, **salt)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) > 1
    assert texts == [choice.message.content for choice in again.choices]
    prompt = answer.usage.prompt_tokens
    full = (prompt - 1) // 16 * 16
    found = running.figures()["trivet_engine_prefix_cache_hits_total"]
    assert found - before["trivet_engine_prefix_cache_hits_total"] == 7 * full
    assert running.all_back()


def test_usage_and_metrics_tell_the_same(running: Running) -> None:
    before = running.figures()
    sums = [0, 0]
    with running.openai as client:
        for text in ("One?", "Two?", "Two?"):
            usage = client.chat.completions.create(**body(text)).usage
            sums[0] += usage.prompt_tokens
            sums[1] += usage.prompt_tokens_details.cached_tokens
    after = running.figures()
    names = ("trivet_engine_prefix_cache_queries_total", "trivet_engine_prefix_cache_hits_total")
    assert [after[name] - before[name] for name in names] == sums
    name = "trivet_engine_time_to_first_token_seconds_count"
    assert after[name] - before[name] == 3
    assert after["trivet_engine_kv_bytes"] == after["trivet_engine_kv_capacity_bytes"]


def test_a_stream_has_the_same_text_and_usage(running: Running) -> None:
    with running.openai as client:
        plain = client.chat.completions.create(**body("Streams?"))
        usage = {"include_usage": True}
        asked = body("Streams?", stream=True, stream_options=usage)
        chunks = list(client.chat.completions.create(**asked))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    last = chunks[-1].usage
    assert last.completion_tokens == plain.usage.completion_tokens == 8
    assert last.prompt_tokens_details.cached_tokens > 0


def test_messages_tell_what_was_read_and_written(running: Running) -> None:
    asked = body("Said by Anthropic's?")
    asked["system"] = asked["messages"].pop(0)["content"]
    del asked["temperature"]
    with running.anthropic as client:
        first, second = (client.messages.create(**asked).usage for _ in range(2))
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert second.cache_read_input_tokens >= first.cache_read_input_tokens
    assert second.cache_creation_input_tokens == 0
    totals = {sum(getattr(usage, part) for part in parts) for usage in (first, second)}
    assert len(totals) == 1


def test_log_probabilities_add_up(running: Running) -> None:
    with running.openai as client:
        answer = client.chat.completions.create(**body(logprobs=True, top_logprobs=5))
        told = client.completions.create(model="tiny", prompt="Hi", max_tokens=4, logprobs=3)
    content = answer.choices[0].logprobs.content
    assert "".join(one.token for one in content) == answer.choices[0].message.content
    assert all(one.top_logprobs[0].logprob == one.logprob for one in content)
    assert len(told.choices[0].logprobs.tokens) == 4


def test_a_stop_string_ends_the_answer_before_it(running: Running) -> None:
    with running.openai as client:
        whole = client.chat.completions.create(**body()).choices[0].message.content
        cut = client.chat.completions.create(**body(stop=[whole[3:5]])).choices[0]
    assert whole.startswith(cut.message.content)
    assert len(cut.message.content) <= 3
    assert cut.finish_reason == "stop"


def test_a_schema_is_kept_to(running: Running) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    more: dict[str, Any] = {
        "response_format": form,
        "max_tokens": 200,
        "temperature": 1.0,
        "seed": 1,
    }
    with running.openai as client:
        answer = client.chat.completions.create(**body(**more)).choices[0]
        assert json.loads(answer.message.content)["a"] in (1, 2)
        assert answer.finish_reason == "stop"
        wrong = {"type": "json_schema", "json_schema": {"schema": {"type": "wrong"}}}
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**body(response_format=wrong))
    assert caught.value.param == "response_format"


def test_a_prompt_of_many_requests_at_once(running: Running) -> None:
    def ask(number: int) -> str:
        answer = httpx2.post(
            f"{running.url}/v1/chat/completions", json=body(f"Nr {number % 8}"), timeout=60
        )
        return str(answer.json()["choices"][0]["message"]["content"])

    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(ask, range(48)))
    assert all(found[at] == found[at % 8] for at in range(48))
    assert running.all_back()


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 3}])
def test_a_client_that_leaves_gives_its_blocks_back(running: Running, more: Any) -> None:
    before = running.engine.stats().finished.get("cancelled", 0)
    asked = body("Go on.", max_tokens=900, **more)
    with (
        httpx2.Client(base_url=running.url, timeout=0.2) as client,
        suppress(httpx2.TimeoutException),
        client.stream("POST", "/v1/chat/completions", json=asked) as answer,
    ):
        next(answer.iter_raw())
    assert running.all_back()
    assert running.engine.stats().finished.get("cancelled", 0) == before + more.get("n", 1)


def test_a_client_that_reads_next_to_nothing_holds_no_block(running: Running) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    asked = json.dumps(body("Slowly.", max_tokens=700, stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(asked)}\r\n\r\n"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.sendall(head.encode() + asked)
        seen = slow.recv(1)
        assert running.all_back()
        while b"[DONE]" not in seen:
            seen = seen[-6:] + slow.recv(65536)


def test_a_thousand_tiny_requests_all_get_their_answer(running: Running) -> None:
    def ask(number: int) -> int:
        sent = {"model": "tiny", "prompt": [number % 256], "max_tokens": 1, "temperature": 0}
        with httpx2.Client(base_url=running.url, timeout=60) as client:
            return sum(
                client.post("/v1/completions", json=sent).json()["usage"]["completion_tokens"]
                for _ in range(50)
            )

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(ask, range(20))) == 1000
    assert running.all_back()


def test_a_prompt_beyond_the_model_is_refused(running: Running) -> None:
    sent = {"model": "tiny", "prompt": [5] * CONTEXT}
    response = httpx2.post(f"{running.url}/v1/completions", json=sent)
    told = response.json()["error"]
    assert (response.status_code, told["param"]) == (400, "prompt")
    assert told["code"] == "context_length_exceeded"


def test_a_prompt_beyond_the_pool_is_refused_and_an_answer_ends_with_it() -> None:
    with served(kv_memory=8 * 16 * 2 * 2 * 2 * 16 * 4) as small, small.openai as client:
        assert small.engine.stats().pool.blank == 8
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt=[5] * 140)
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == "prompt"
        answer = client.completions.create(model="tiny", prompt=[5] * 100, max_tokens=500)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.total_tokens == 129
        assert small.all_back()


def test_a_full_queue_is_said_and_when_to_come_back() -> None:
    limits = Limits(max_running=1, max_waiting=2)
    with served(limits=limits) as small:

        def ask(number: int) -> int:
            asked = body(f"Nr {number}", max_tokens=60)
            answer = httpx2.post(f"{small.url}/v1/chat/completions", json=asked, timeout=60)
            assert answer.status_code == 200 or answer.headers["retry-after"] == "1"
            return answer.status_code

        with ThreadPoolExecutor(12) as pool:
            codes = list(pool.map(ask, range(24)))
        assert set(codes) == {200, 503}
        assert small.all_back()


def test_numbers_that_are_none_fail_their_request_only() -> None:
    with served() as broken, broken.openai as client:
        weight = broken.loaded.model.get_input_embeddings().weight
        poison = 40
        with torch.no_grad():
            weight[poison] = float("nan")
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="tiny", prompt=[5, poison, 7], max_tokens=4)
        assert caught.value.code == "engine_error"
        # Its one token is not read by the model again, whichever it is.
        sound = client.completions.create(model="tiny", prompt=[5, 6, 7] * 9, max_tokens=1)
        assert sound.usage.completion_tokens == 1
        assert broken.all_back()


def test_requests_that_are_refused_are_counted_by_code() -> None:
    with served() as running:
        url = running.url
        for path, sent in (
            ("/v1/chat/completions", body("Hi.", n=0)),
            ("/v1/chat/completions", body("Hi.", model="no")),
            ("/v1/messages", body("x" * 9000)),
            ("/metrics", {}),
        ):
            httpx2.post(url + path, json=sent)
        told = httpx2.get(f"{url}/metrics").text
    name = "trivet_engine_requests_refused_total"
    counts = [line for line in told.splitlines() if line.startswith(name)]
    assert sorted(counts) == [
        f'{name}{{code="context_length_exceeded"}} 1.0',
        f'{name}{{code="invalid_request"}} 1.0',
        f'{name}{{code="method_not_allowed"}} 1.0',
        f'{name}{{code="model_not_found"}} 1.0',
    ]
