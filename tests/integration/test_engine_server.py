"""Who the engine's server serves, within what bounds, and how requests fail."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from engine_rig import (
    ScriptedEngine,
    anthropic_client,
    body,
    openai_client,
    post,
    served,
    tokenizer,
)

from trivet.errors import RequestError
from trivet.middleware.running.engine_process import health
from trivet.prefix.engine.prompts import Prompts
from trivet.prefix.engine.tenants import HEADER, NONCE, PROOF, UNSIGNED, proof, sign

SECRET = b"s" * 40
LONG = "x" * 40


class TestTenants:
    def test_a_signed_tenant_is_the_callers(self) -> None:
        engine = ScriptedEngine()
        sent = json.dumps(body(cache_salt="mine")).encode()
        header = sign(SECRET, "acme", time.time(), sent)
        with served(engine, secret=SECRET) as url:
            answer = post(url, "/v1/chat/completions", sent, **{HEADER: header})
            post(url, "/v1/chat/completions", body(cache_salt="mine"))
        assert answer.status_code == 200
        signed, unsigned = engine.asked
        assert (signed.tenant, unsigned.tenant) == ("acme", UNSIGNED)
        assert signed.salt.endswith("/mine")
        assert unsigned.salt == "unsigned/mine"

    @pytest.mark.parametrize("secret", [None, b"another" * 8])
    def test_a_signature_that_is_not_good_is_refused(self, secret: bytes | None) -> None:
        sent = json.dumps(body()).encode()
        with served(ScriptedEngine(), secret=secret) as url:
            header = sign(SECRET, "acme", time.time(), sent)
            response = post(url, "/v1/chat/completions", sent, **{HEADER: header})
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_signature"

    def test_a_signature_sent_twice_is_refused(self) -> None:
        sent = json.dumps(body()).encode()
        header = sign(SECRET, "acme", time.time(), sent)
        with served(ScriptedEngine(), secret=SECRET) as url:
            response = httpx2.post(
                f"{url}/v1/chat/completions",
                content=sent,
                headers=[(HEADER, header), (HEADER, header)],
            )
        assert response.status_code == 401

    def test_the_metrics_are_hidden_from_who_comes_through_the_proxy(self) -> None:
        with served(ScriptedEngine(), secret=SECRET) as url:
            header = sign(SECRET, "acme", time.time(), b"")
            assert httpx2.get(f"{url}/metrics", headers={HEADER: header}).status_code == 404

    def test_an_engine_for_the_proxy_alone_refuses_all_others(self) -> None:
        sent, small = json.dumps(body()).encode(), json.dumps({"prompt": "x"}).encode()
        good, empty = (sign(SECRET, "acme", time.time(), one) for one in (sent, b""))
        chat, models = "/v1/chat/completions", "/v1/models"
        with served(ScriptedEngine(), secret=SECRET, signed_only=True) as url:
            for path, one in ((chat, sent), ("/tokenize", small)):
                assert post(url, path, one).status_code == 401
            assert post(url, chat, sent, **{HEADER: empty}).status_code == 401
            assert post(url, chat, sent, **{HEADER: good}).status_code == 200
            # The proxy signs what it passes on as it comes without its body.
            assert post(url, "/tokenize", small, **{HEADER: empty}).status_code == 200
            for path in (models, f"{models}/scripted", "/metrics"):
                assert httpx2.get(url + path).status_code == 401
            assert httpx2.get(url + models, headers={HEADER: empty}).status_code == 200
            wrong = {"authorization": "Bearer " + "t" * 40}
            assert httpx2.get(f"{url}/metrics", headers=wrong).status_code == 401
            assert httpx2.get(f"{url}/health").status_code == 200

    async def test_health_is_proven_by_the_secret_and_for_this_port_alone(self) -> None:
        with served(ScriptedEngine(), secret=SECRET) as url:
            port = int(url.rpartition(":")[2])
            assert await health(port, SECRET) == 200
            assert await health(port, b"another" * 8) == 0
            told = httpx2.get(f"{url}/health", headers={NONCE: "ab" * 8}).headers[PROOF]
            assert told == proof(SECRET, "ab" * 8, port) != proof(SECRET, "ab" * 8, port + 1)
            assert PROOF not in httpx2.get(f"{url}/health", headers={NONCE: "no hex"}).headers
        with served(ScriptedEngine()) as url:
            assert await health(int(url.rpartition(":")[2]), SECRET) == 0


class TestBounds:
    def test_messages_count_even_where_they_are_empty(self) -> None:
        many = [{"role": "user", "content": ""}] * 513
        with served(ScriptedEngine()) as url:
            told = post(url, "/v1/chat/completions", body(messages=many)).json()["error"]
        assert (told["code"], told["param"]) == ("context_length_exceeded", "messages")

    def test_what_the_template_adds_is_bounded_before_the_tokenizer_is_asked(self) -> None:
        made = tokenizer()
        made.chat_template = "{% for m in messages %}" + "_" * 99 + "{% endfor %}"
        prompts = Prompts(made, 16, 300)
        with pytest.raises(RequestError, match="characters"):
            prompts.chat([{"role": "user", "content": ""}] * 16)
        with pytest.raises(RequestError, match="characters"):
            prompts.chat([{"role": "user", "content": ""}], {"note": "x" * 600})

    def test_a_token_is_spelled_while_another_prompt_is_read(self) -> None:
        prompts = Prompts(tokenizer(), 16, 300)
        with prompts._lock:
            assert [prompts.spell(token) for token in (5, 5)] == ["&", "&"]

    def test_more_token_ids_than_the_context_has_are_not_read(self) -> None:
        with served(ScriptedEngine(), context=16) as url:
            told = post(url, "/detokenize", {"tokens": ["x"] * 17}).json()["error"]
        assert told["code"] == "context_length_exceeded"

    def test_a_large_body_is_read_too(self) -> None:
        with served(ScriptedEngine()) as url:
            sent = body(metadata={"x": "y" * 300_000})
            assert post(url, "/v1/chat/completions", sent).status_code == 200


class TestModels:
    def test_health_and_models_are_told(self) -> None:
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            assert httpx2.get(f"{url}/healthz").json() == {"status": "ok", "model": "scripted"}
            assert httpx2.get(f"{url}/health").status_code == 200
            listed = client.models.list().data
            assert [model.id for model in listed] == ["scripted"]
            assert client.models.retrieve("scripted").max_model_len == 512

    def test_an_engine_whose_thread_ended_is_not_healthy(self) -> None:
        with served(ScriptedEngine(alive=False)) as url:
            told = httpx2.get(f"{url}/health")
        assert (told.status_code, told.json()["status"]) == (503, "failed")

    def test_an_alias_serves_and_is_echoed(self) -> None:
        with served(ScriptedEngine(), aliases=frozenset({"/m/x"})) as url:
            answer = post(url, "/v1/chat/completions", body(model="/m/x"))
        assert answer.json()["model"] == "/m/x"

    def test_another_model_is_not_found(self) -> None:
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            with pytest.raises(openai.NotFoundError) as caught:
                client.chat.completions.create(**body(model="my-lora"))
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("my-lora")
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(**body(model=7))
        assert caught.value.code == "model_not_found"

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v1/else", 404),
            ("POST", "/chat/completions", 404),
            ("GET", "/v1/chat/completions", 405),
            ("POST", "/v1/models", 405),
        ],
    )
    def test_what_is_not_there_is_said(self, method: str, path: str, status: int) -> None:
        with served(ScriptedEngine()) as url:
            response = httpx2.request(method, url + path)
        assert response.status_code == status
        assert (status == 405) == ("allow" in response.headers)


class TestTrouble:
    @pytest.mark.parametrize(
        ("path", "sent"),
        [
            ("/v1/chat/completions", b"{"),
            ("/v1/chat/completions", b"[]"),
            ("/v1/messages", b'{"a":1,"a":1}'),
            ("/tokenize", b"\xff"),
            ("/v1/completions", b'{"prompt":"x","model":"scripted","temperature":NaN}'),
        ],
    )
    def test_a_body_that_is_no_json_object_is_refused(self, path: str, sent: bytes) -> None:
        with served(ScriptedEngine()) as url:
            assert post(url, path, sent).status_code == 400

    def test_a_body_that_is_too_large_is_refused(self) -> None:
        with served(ScriptedEngine()) as url:
            response = post(url, "/v1/messages", b" " * (17 << 20))
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "request_too_large"

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_refusal_of_the_engine_says_when_to_come_back(self, status: int) -> None:
        engine = ScriptedEngine(refuses=RequestError(status, "Full.", code="queue_full"), most=0)
        with served(engine) as url:
            for path in ("/v1/chat/completions", "/v1/messages"):
                response = post(url, path, body(max_tokens=5))
                assert (response.status_code, response.headers["retry-after"]) == (status, "1")

    def test_one_choice_that_is_refused_ends_the_others(self) -> None:
        engine = ScriptedEngine(refuses=RequestError(429, "Full."), most=2)
        engine.gate.clear()
        with served(engine) as url:
            assert post(url, "/v1/chat/completions", body(n=3)).status_code == 429
        assert [asked.cancelled for asked in engine.asked] == [True, True]

    @pytest.mark.parametrize(
        ("failure", "status"), [("error", 500), ("grammar", 500), ("deadline", 504)]
    )
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_failure_before_the_first_token_is_a_status(
        self, failure: Any, status: int, stream: bool
    ) -> None:
        engine = ScriptedEngine(fails_after=0, failure=failure)
        with served(engine) as url:
            for path in ("/v1/chat/completions", "/v1/messages"):
                sent = body(stream=stream, max_tokens=9)
                assert post(url, path, sent).status_code == status

    def test_a_failure_in_mid_answer_is_no_whole_answer(self) -> None:
        with served(ScriptedEngine(fails_after=2)) as url:
            assert post(url, "/v1/chat/completions", body()).status_code == 500

    def test_a_stream_that_fails_says_so_and_breaks_off(self) -> None:
        with (
            served(ScriptedEngine(fails_after=2)) as url,
            httpx2.stream("POST", f"{url}/v1/chat/completions", json=body(stream=True)) as answer,
        ):
            parts = answer.iter_raw()
            seen: list[bytes] = []
            with pytest.raises(httpx2.RemoteProtocolError):
                seen.extend(parts)
        text = b"".join(seen)
        assert b'"Two"' in text
        assert b"[DONE]" not in text
        assert json.loads(text.split(b"data: ")[-1])["error"]["code"] == "engine_error"

    def test_the_sdks_raise_on_a_stream_that_fails(self) -> None:
        with served(ScriptedEngine(fails_after=2)) as url:
            with openai_client(url) as client, pytest.raises(openai.APIError):
                for _ in client.chat.completions.create(**body(stream=True)):
                    pass
            with (
                anthropic_client(url) as client,
                pytest.raises(anthropic.APIError),
                client.messages.stream(**body(max_tokens=9)) as stream,
            ):
                stream.get_final_message()

    def test_one_choice_that_fails_ends_the_others(self) -> None:
        engine = ScriptedEngine(fails_after=2)
        with served(engine) as url:
            assert post(url, "/v1/chat/completions", body(n=3)).status_code == 500
            assert all(asked.ended or asked.cancelled for asked in engine.asked)

    @pytest.mark.parametrize("more", [{}, {"stream": True}, {"n": 2}, {"n": 2, "stream": True}])
    def test_a_client_that_leaves_ends_its_generations(self, more: dict[str, Any]) -> None:
        engine = ScriptedEngine()
        engine.gate.clear()
        with served(engine) as url:
            with pytest.raises(httpx2.ReadTimeout):
                httpx2.post(f"{url}/v1/chat/completions", json=body(**more), timeout=0.3)
            end = time.monotonic() + 10
            while not all(asked.ended for asked in engine.asked) and time.monotonic() < end:
                time.sleep(0.01)
            assert [asked.cancelled for asked in engine.asked] == [True] * more.get("n", 1)
            engine.gate.set()
            assert post(url, "/v1/chat/completions", body()).status_code == 200

    async def test_a_client_that_leaves_in_mid_stream_ends_its_generation(self) -> None:
        engine = ScriptedEngine(words=["One"] * 100_000)
        with served(engine) as url:
            async with (
                httpx2.AsyncClient(timeout=10) as client,
                client.stream(
                    "POST", f"{url}/v1/chat/completions", json=body(stream=True)
                ) as answer,
            ):
                await anext(answer.aiter_raw())
            end = time.monotonic() + 10
            while not engine.asked[0].ended and time.monotonic() < end:
                await asyncio.sleep(0.01)
            assert engine.asked[0].ended
