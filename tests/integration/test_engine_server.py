"""The engine's HTTP side with a scripted model, judged by the official SDKs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import anthropic
import httpx2
import openai
import pytest
import uvicorn

from trivet.errors import ConfigError
from trivet.prefix.engine.model import Generated, LanguageModel, Message, Sampling, load
from trivet.prefix.engine.server import EngineApp, run


class Tokens:
    shape = (1, 5)


class ScriptedModel:
    """Says one word a token; waits before each while `gate` is closed."""

    name = "scripted"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[Sequence[Message]] = []
        self.sampling: list[Sampling] = []
        self.ended: list[Generated] = []

    def encode(self, messages: Sequence[Message]) -> Tokens:
        self.asked.append(messages)
        return Tokens()

    def generate(
        self,
        tokens: Tokens,
        sampling: Sampling,
        emit: Callable[[str], None],
        cancelled: threading.Event,
    ) -> Generated:
        self.sampling.append(sampling)
        words = ["One ", "two ", "three ", "four."]
        said = 0
        for word in words[: sampling.max_tokens]:
            while not self.gate.wait(0.01) and not cancelled.is_set():
                pass
            if cancelled.is_set():
                break
            emit(word)
            said += 1
        finish: Any = "stop" if said == len(words) else "length"
        done = Generated("cancelled" if cancelled.is_set() else finish, 5, said)
        self.ended.append(done)
        return done


@contextmanager
def served(model: ScriptedModel, waiting: int = 8) -> Iterator[str]:
    app = EngineApp(cast(LanguageModel, model), waiting)
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        model.gate.set()
        server.should_exit = True
        thread.join()


def openai_client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=10)


def body(**more: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": "Count."}], **more}


def test_chat_answers_as_json_and_as_a_stream() -> None:
    with served(ScriptedModel()) as url, openai_client(url) as client:
        plain = client.chat.completions.create(**body())
        usage = {"include_usage": True}
        with client.chat.completions.stream(**body(), stream_options=usage) as stream:
            streamed = stream.get_final_completion()
    for answer in (plain, streamed):
        assert answer.choices[0].message.content == "One two three four."
        assert answer.choices[0].finish_reason == "stop"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)


def test_messages_answer_as_json_and_as_a_stream() -> None:
    model = ScriptedModel()
    with served(model) as url, anthropic.Anthropic(base_url=url, api_key="k") as opened:
        client: Any = opened
        asked = body(max_tokens=2, system="Be brief.")
        plain = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
    for answer in (plain, streamed):
        assert answer.content[0].text == "One two "
        assert answer.stop_reason == "max_tokens"
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 2)
    assert model.asked[0][0] == {"role": "system", "content": "Be brief."}


def test_the_request_decides_how_tokens_are_drawn() -> None:
    model = ScriptedModel()
    with served(model) as url, openai_client(url) as client:
        wish = body(temperature=0, top_p=0.5, seed=7, stop=["x"], max_completion_tokens=3)
        client.chat.completions.create(**wish)
    assert model.sampling == [Sampling(3, 0, 0.5, 7, ("x",))]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"n": 2}, "n"),
        ({"tools": [{}]}, "tools"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0.5}, "max_tokens"),
        ({"stop": 5}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"model": "other"}, "model"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(more: dict[str, Any], field: str) -> None:
    with served(ScriptedModel()) as url:
        response = httpx2.post(f"{url}/v1/chat/completions", json=body(**more))
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == field


async def test_beyond_its_queue_the_engine_says_503() -> None:
    model = ScriptedModel()
    model.gate.clear()
    with served(model, waiting=1) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=10) as client:
            calls = [
                asyncio.create_task(client.post("/v1/chat/completions", json=body()))
                for _ in range(4)
            ]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            model.gate.set()
            answers = await asyncio.gather(*calls)
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200, 200, 503, 503]
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)


def test_a_client_that_leaves_ends_its_generation() -> None:
    model = ScriptedModel()
    model.gate.clear()
    with served(model) as url:
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{url}/v1/chat/completions", json=body(), timeout=0.2)
        end = time.monotonic() + 10
        while not model.ended and time.monotonic() < end:
            time.sleep(0.01)
        assert model.ended == [Generated("cancelled", 5, 0)]
        model.gate.set()
        assert httpx2.post(f"{url}/v1/chat/completions", json=body()).status_code == 200


def test_health_and_models_are_told() -> None:
    with served(ScriptedModel()) as url:
        assert httpx2.get(f"{url}/healthz").json()["model"] == "scripted"
        assert httpx2.get(f"{url}/v1/models").json()["data"][0]["id"] == "scripted"
        assert httpx2.get(f"{url}/v1/else").status_code == 404


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"trivet\[engine\].*make demo"):
        load(str(tmp_path))


@pytest.mark.parametrize("source", ["nowhere", "nowhere.gguf"])
def test_a_model_that_is_not_there_is_said(source: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        run(source, "127.0.0.1", 0)
