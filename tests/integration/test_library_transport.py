"""The transports in the official SDKs' clients, in front of the mock upstream."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from trivet import AsyncTrivetTransport, TrivetTransport
from trivet.errors import ConfigError
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running
from trivet.middleware.status import parse

Upstream = tuple[str, MockUpstream]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running() as up:
        yield up


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def client(up: Upstream, key: str = "sk-a", **settings: Any) -> openai.OpenAI:
    transport = TrivetTransport(**{"store": "memory", **settings})
    return openai.OpenAI(
        api_key=key,
        base_url=up[0] + "/v1",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(transport=transport),
    )


def async_client(up: Upstream, key: str = "sk-a", **settings: Any) -> openai.AsyncOpenAI:
    transport = AsyncTrivetTransport(**{"store": "memory", **settings})
    return openai.AsyncOpenAI(
        api_key=key,
        base_url=up[0] + "/v1",
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(transport=transport),
    )


def chat(text: str, **options: Any) -> dict[str, Any]:
    return {
        "model": "mock",
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
        **options,
    }


def told(response: Any) -> dict[str, str | int | bool]:
    return parse(response.headers["cache-status"])["trivet-exact"]


def ask(one: openai.OpenAI, text: str, **options: Any) -> dict[str, str | int | bool]:
    return told(one.chat.completions.with_raw_response.create(**chat(text, **options)))


async def ask_async(one: openai.AsyncOpenAI, text: str, **options: Any) -> Any:
    return told(await one.chat.completions.with_raw_response.create(**chat(text, **options)))


class TestSync:
    def test_the_second_of_two_equal_requests_does_not_reach_the_upstream(
        self, upstream: Upstream
    ) -> None:
        before = upstream[1].calls.total
        with client(upstream) as one:
            first, second = (one.chat.completions.create(**chat("sync")) for _ in range(2))
        assert first.choices == second.choices
        assert upstream[1].calls.total == before + 1

    def test_credentials_are_tenants(self, upstream: Upstream) -> None:
        with client(upstream) as one:
            assert ask(one, "mine")["stored"] is True
            other = one.with_options(api_key="sk-b")
            assert ask(other, "mine")["fwd"] == "miss"
            assert ask(one, "mine")["hit"] is True

    def test_a_tenant_that_the_app_names_is_one_whatever_the_request_says(
        self, upstream: Upstream
    ) -> None:
        name = "acme"
        with client(upstream, tenant=lambda: name) as one:
            assert "stored" in ask(one, "named")
            claimed = {"Trivet-Tenant": "other"}
            assert ask(one, "named", extra_headers=claimed)["hit"] is True
            name = "other"
            assert ask(one, "named")["fwd"] == "miss"

    def test_without_a_tenant_of_the_app_no_request_names_one(self, upstream: Upstream) -> None:
        with client(upstream) as one:
            assert "stored" in ask(one, "claimed")
            claimed = {"Trivet-Tenant": "other"}
            assert ask(one, "claimed", extra_headers=claimed)["hit"] is True

    def test_a_stream_comes_as_it_is_made(self, upstream: Upstream) -> None:
        with client(upstream) as one:
            stream = one.chat.completions.create(
                **chat("live", model="mock+hang=2", stream=True, timeout=httpx2.Timeout(0.5))
            )
            got = next(stream)
            assert got.choices[0].delta is not None
            with pytest.raises(openai.APITimeoutError):
                list(stream)

    def test_a_stream_that_is_left_is_left_upstream_too(self, upstream: Upstream) -> None:
        calls = upstream[1].calls
        before = calls.disconnects
        with client(upstream) as one:
            stream = one.chat.completions.create(
                **chat("left", model="mock+slow-chunks=20,tokens=500", stream=True)
            )
            next(stream)
            stream.close()
            deadline = threading.Event()
            for _ in range(100):
                if calls.disconnects > before:
                    break
                deadline.wait(0.05)
        assert calls.disconnects == before + 1

    def test_a_stream_that_breaks_off_raises(self, upstream: Upstream) -> None:
        with client(upstream) as one:
            stream = one.chat.completions.create(**chat("cut", model="mock+cut=3", stream=True))
            with pytest.raises(openai.APIError):
                list(stream)

    def test_an_upstream_that_is_not_there_is_an_error_in_the_callers_dialect(self) -> None:
        nobody = "http://127.0.0.1:9", MockUpstream()
        with client(nobody) as one, pytest.raises(openai.InternalServerError) as caught:
            one.chat.completions.create(**chat("nobody"))
        assert caught.value.status_code == 502
        assert "cannot be reached" in caught.value.message

    def test_an_error_of_the_upstream_is_its_own(self, upstream: Upstream) -> None:
        with client(upstream) as one, pytest.raises(openai.RateLimitError):
            one.chat.completions.create(**chat("busy", model="mock+status=429"))

    def test_no_answer_in_time_is_a_timeout(self, upstream: Upstream) -> None:
        with client(upstream) as one, pytest.raises(openai.APITimeoutError):
            one.chat.completions.create(**chat("slow", model="mock+hang=0"), timeout=0.2)

    def test_other_paths_pass_through(self, upstream: Upstream) -> None:
        with client(upstream) as one:
            assert "mock" in [model.id for model in one.models.list()]

    def test_what_is_uploaded_passes_in_parts(self, upstream: Upstream) -> None:
        def parts() -> Iterator[bytes]:
            yield b"a" * 1000
            yield b"b" * 1000

        with httpx2.Client(transport=TrivetTransport(store="memory")) as plain:
            plain.post(upstream[0] + "/v1/files", content=parts())
        assert upstream[1].calls.last[-1]["bytes"] == 2000

    def test_many_threads_share_one_call(self, upstream: Upstream) -> None:
        before = upstream[1].calls.total
        body = chat("together", model="mock+delay=200")
        with client(upstream) as one, ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: one.chat.completions.create(**body), range(16)))
        assert len({answer.choices[0].message.content for answer in answers}) == 1
        assert upstream[1].calls.total == before + 1

    def test_threads_that_come_first_together_get_one_service(self, upstream: Upstream) -> None:
        transport = TrivetTransport(store="memory")
        at = threading.Barrier(8)

        def first(plain: httpx2.Client) -> int:
            at.wait()
            return plain.get(upstream[0] + "/v1/models").status_code

        with httpx2.Client(transport=transport) as plain, ThreadPoolExecutor(8) as pool:
            assert list(pool.map(first, [plain] * 8)) == [200] * 8
            assert len(transport._hosts) == 1

    def test_anthropic_is_asked_by_its_own_dialect(self, upstream: Upstream) -> None:
        def one() -> anthropic.Anthropic:
            http = anthropic.DefaultHttpxClient(transport=TrivetTransport())
            return anthropic.Anthropic(api_key="k", base_url=upstream[0], http_client=http)

        body: dict[str, Any] = {
            "model": "mock",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "bonjour"}],
            "extra_body": {"temperature": 0},
        }
        statuses = []
        for _ in range(2):
            with one() as claude:
                statuses.append(told(claude.messages.with_raw_response.create(**body)))
        # Another transport over the same store, which is a file.
        assert [status.get("hit") for status in statuses] == [None, True]

    def test_a_large_body_is_decoded_without_a_process(self, upstream: Upstream) -> None:
        # A spawned process would import the app's main module again, and run what it runs.
        with client(upstream) as one:
            text = "x" * (2 << 20)
            assert [ask(one, text).get("hit") for _ in range(2)] == [None, True]


class TestAsync:
    async def test_the_second_of_two_equal_requests_is_a_hit(self, upstream: Upstream) -> None:
        async with async_client(upstream) as one:
            assert [(await ask_async(one, "async")).get("hit") for _ in range(2)] == [None, True]

    async def test_a_stream_is_replayed_as_a_stream(self, upstream: Upstream) -> None:
        async with async_client(upstream) as one:
            texts = []
            for _ in range(2):
                stream = await one.chat.completions.create(**chat("stream", stream=True))
                texts.append(
                    "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
                )
        assert texts[0] == texts[1] != ""

    async def test_who_is_cancelled_lets_go_of_the_upstream(self, upstream: Upstream) -> None:
        calls = upstream[1].calls
        before = calls.disconnects
        async with async_client(upstream) as one:
            asking = asyncio.create_task(ask_async(one, "gone", model="mock+hang=0"))
            while not calls.open:
                await asyncio.sleep(0.01)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(5):
                while calls.disconnects == before:
                    await asyncio.sleep(0.01)

    async def test_a_stream_that_breaks_off_raises(self, upstream: Upstream) -> None:
        async with async_client(upstream) as one:
            stream = await one.chat.completions.create(
                **chat("cut", model="mock+cut=3", stream=True)
            )
            with pytest.raises(openai.APIError):
                [chunk async for chunk in stream]

    async def test_a_body_that_comes_in_parts_passes_in_parts(self, upstream: Upstream) -> None:
        async def parts() -> Any:
            yield b"a" * 1000
            yield b"b" * 1000

        transport = AsyncTrivetTransport(store="memory")
        async with httpx2.AsyncClient(transport=transport) as plain:
            await plain.post(upstream[0] + "/v1/files", content=parts())
        assert upstream[1].calls.last[-1]["bytes"] == 2000

    def test_one_client_serves_several_event_loops_one_after_the_other(
        self, upstream: Upstream
    ) -> None:
        one = async_client(upstream, store="sqlite:")
        statuses = [asyncio.run(ask_async(one, "loops")) for _ in range(3)]
        assert [status.get("hit") for status in statuses] == [None, True, True]

    def test_an_event_loop_that_ends_closes_what_was_open_in_it(self, upstream: Upstream) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asyncio.run(ask_async(async_client(upstream, store="sqlite:"), "unclosed"))
            gc.collect()

    def test_an_event_loop_may_end_in_the_middle_of_a_stream(self, upstream: Upstream) -> None:
        async def begin() -> None:
            body = chat("unread", model="mock+slow-chunks=50,tokens=100", stream=True)
            stream = await async_client(upstream, store="sqlite:").chat.completions.create(**body)
            await anext(aiter(stream))

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asyncio.run(begin())
            gc.collect()

    def test_event_loops_in_several_threads_do_not_meet(self, upstream: Upstream) -> None:
        one = async_client(upstream, store="sqlite:")

        def run(number: int) -> Any:
            return asyncio.run(ask_async(one, f"thread {number}"))

        with ThreadPoolExecutor(4) as pool:
            assert all(status["fwd"] == "miss" for status in pool.map(run, range(4)))


class TestPolicies:
    def policies(self, folder: Path, text: str) -> Path:
        folder.mkdir()
        (folder / "acme.yaml").write_text(text)
        return folder

    def test_a_policy_decides_for_the_tenant_that_the_app_names(
        self, upstream: Upstream, tmp_path: Path
    ) -> None:
        folder = self.policies(
            tmp_path / "p",
            "tenant: acme\ncredentials: [{gateway: acme}]\nmodels: [mock]\n"
            "exact: {sampled: cache}\n",
        )
        with client(upstream, tenant="acme", policies=folder) as one:
            sampled = chat("sampled")
            del sampled["temperature"]
            for hit in (None, True):
                raw = one.chat.completions.with_raw_response.create(**sampled)
                assert told(raw).get("hit") is hit
            with pytest.raises(openai.PermissionDeniedError):
                ask(one, "other model", model="gpt")

    def test_a_tenant_without_a_policy_is_turned_away(
        self, upstream: Upstream, tmp_path: Path
    ) -> None:
        folder = self.policies(tmp_path / "p", "tenant: acme\ncredentials: [{gateway: acme}]\n")
        with (
            client(upstream, tenant="other", policies=folder) as one,
            pytest.raises(openai.AuthenticationError),
        ):
            ask(one, "who")

    def test_nothing_goes_past_policies_to_an_upstream_that_is_not_declared(
        self, upstream: Upstream, tmp_path: Path
    ) -> None:
        folder = self.policies(tmp_path / "p", "tenant: acme\ncredentials: [{gateway: acme}]\n")
        file = tmp_path / "t.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://elsewhere.invalid'}]\n")
        before = upstream[1].calls.total
        with (
            client(upstream, tenant="acme", policies=folder, config=file) as one,
            pytest.raises(ConfigError, match="no upstream of the config"),
        ):
            ask(one, "past")
        assert upstream[1].calls.total == before

    def test_a_declared_upstream_is_asked_with_the_key_of_the_config(
        self, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UPSTREAM_KEY", "sk-configured")
        file = tmp_path / "t.yaml"
        file.write_text(
            f"upstreams: [{{name: a, base_url: '{upstream[0]}', credential_env: UPSTREAM_KEY}}]\n"
        )
        with client(upstream, config=file) as one:
            ask(one, "configured")
        sent = dict(upstream[1].calls.last[-1]["headers"])
        assert sent[b"authorization"] == b"Bearer sk-configured"

    def test_what_is_not_declared_goes_as_it_would_without_trivet(
        self, upstream: Upstream, tmp_path: Path
    ) -> None:
        file = tmp_path / "t.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://elsewhere.invalid'}]\n")
        with client(upstream, config=file) as one:
            raw = one.chat.completions.with_raw_response.create(**chat("plain"))
        assert "cache-status" not in raw.headers

    def test_it_does_so_in_several_event_loops(self, upstream: Upstream, tmp_path: Path) -> None:
        file = tmp_path / "t.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://elsewhere.invalid'}]\n")
        one = async_client(upstream, config=file)

        async def plain() -> Any:
            raw = await one.chat.completions.with_raw_response.create(**chat("plain"))
            return raw.headers.get("cache-status")

        assert [asyncio.run(plain()) for _ in range(2)] == [None, None]


def test_a_store_in_trouble_costs_no_request(upstream: Upstream, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    with client(upstream, store=f"sqlite:{broken}") as one:
        assert ask(one, "trouble")["fwd"] == "miss"
        assert one.chat.completions.create(**chat("trouble")).choices


_FORKS = """
import os, sys
import openai
from trivet import TrivetTransport

def client():
    http = openai.DefaultHttpxClient(transport=TrivetTransport(store="sqlite:"))
    return openai.OpenAI(api_key="k", base_url=sys.argv[1], http_client=http, max_retries=0)

def ask(one):
    message = [{"role": "user", "content": "forked"}]
    raw = one.chat.completions.with_raw_response.create(
        model="mock", temperature=0, messages=message)
    return raw.headers["cache-status"]

one = client()
first = ask(one)
child = os.fork()
if not child:
    os._exit(0 if "hit" in ask(one) else 1)
print(first)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ask(one).partition("; ttl")[0])
"""


def test_a_fork_of_a_process_that_has_asked_asks_by_itself(
    upstream: Upstream, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", _FORKS, upstream[0] + "/v1"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "forked")},
    )
    assert done.stdout.splitlines() == [
        "trivet-exact; fwd=miss; stored",
        "0",
        "trivet-exact; hit",
    ], done.stderr
    # The client was left open, and what the child took over from its parent stayed as it was.
    assert "Warning" not in done.stderr
