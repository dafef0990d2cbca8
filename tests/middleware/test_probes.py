"""The probe against servers that answer as the real ones do; shapes in engines.md, section 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from raw_upstream import Upstream, serving, until

from trivet.middleware.arrival.routing import Routing
from trivet.middleware.fleets.probes import Probes
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.telemetry import Event, PrefixProbed

Space = Callable[[dict[str, Any]], object]
Tell = Callable[[int, int], dict[str, Any]]


def details(cached: int, prompt: int) -> dict[str, Any]:
    """vLLM and SGLang with their flags on: no details where nothing was cached."""
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": 1}
    if cached:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"usage": usage}


def nothing(cached: int, prompt: int) -> dict[str, Any]:
    """The same with their flags off."""
    usage = {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": None}
    return {"usage": usage}


def timings(cached: int, prompt: int) -> dict[str, Any]:
    """llama.cpp's."""
    return {**nothing(cached, prompt), "timings": {"cache_n": cached, "prompt_n": prompt - cached}}


def salt(body: dict[str, Any]) -> object:
    """An engine that keeps salts apart."""
    return body["cache_salt"]


def everyone(body: dict[str, Any]) -> object:
    """One that does not."""
    return None


class Engine:
    """Remembers prompts by space, in characters."""

    def __init__(self, space: Space, tell: Tell, most: int = 100_000) -> None:
        self.space, self.tell, self.most = space, tell, most
        self.seen: dict[object, list[str]] = {}
        self.bodies: list[dict[str, Any]] = []

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.bodies.append(body)
        prompt = body["prompt"]
        if len(prompt) > self.most:
            return 400, {"error": {"message": "too long"}}
        known = self.seen.setdefault(self.space(body), [])
        cached = max((_common(prompt, one) for one in known), default=0)
        if body.get("cache_prompt") is False:
            cached = 0
        known.append(prompt)
        return 200, self.tell(cached // 16 * 16, len(prompt))

    async def handle(self, upstream: Upstream, reader: Any, writer: Any) -> None:
        while True:
            head, body = await upstream.read(reader)
            status, told = 200, {"data": [{"id": "m"}]}
            if b"/completions" in head:
                status, told = self.complete(json.loads(body))
            elif b"/metrics" in head:
                told = {}
            text = json.dumps(told).encode()
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(text)) + text
            )


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


async def probed(engine: Engine, kind: str, **options: Any) -> tuple[Probes, list[PrefixProbed]]:
    """Probe one server until there is something to say."""
    events: list[Event] = []
    async with serving(engine.handle) as server:
        upstream: UpstreamConfig = server.config(cache=kind, **options)
        client = UpstreamClient()
        probes = Probes(client, [upstream], Routing([upstream], {}), events.append)
        assert "raw" in probes.unverified
        probes.start()
        await until(lambda: bool(events))
        await probes.close()
        await client.close()
    return probes, [one for one in events if isinstance(one, PrefixProbed)]


@pytest.mark.parametrize("kind", ["vllm", "sglang", "tensorrt", "trivet"])
async def test_a_server_that_keeps_salts_apart_is_trusted(kind: str) -> None:
    probes, (event,) = await probed(Engine(salt, details), kind)
    assert event.state == "isolated"
    assert (probes.unverified, probes.unsafe, probes.doubt("raw")) == ({}, {}, "")
    assert probes.components()[0].state == "isolated"


@pytest.mark.parametrize("kind", ["vllm", "sglang", "tensorrt", "trivet"])
async def test_a_server_that_drops_the_salt_is_found_out(kind: str) -> None:
    probes, (event,) = await probed(Engine(everyone, details), kind)
    assert event.state == "leaks"
    assert list(probes.unsafe) == ["raw"]
    assert probes.doubt("raw").startswith("leaks: ")
    assert probes.components()[0].state == "leaks"
    assert probes.components()[0].ok


async def test_a_server_that_tells_nothing_is_not_trusted() -> None:
    probes, (event,) = await probed(Engine(salt, nothing), "vllm")
    assert event.state == "unverified"
    assert "--enable-prompt-tokens-details" in probes.unverified["raw"]
    assert probes.doubt("raw").startswith("unverified: it does not tell")
    assert probes.doubt("another") == ""
    assert probes.unsafe == {}


async def test_slots_that_keep_apart_are_trusted() -> None:
    engine = Engine(lambda body: body["id_slot"], timings)
    _, (event,) = await probed(engine, "llamacpp", slots=2)
    assert event.state == "isolated"
    assert {body["id_slot"] for body in engine.bodies} == {0, 1}


async def test_a_prompt_cache_that_crosses_slots_is_found_out() -> None:
    probes, (event,) = await probed(Engine(everyone, timings), "llamacpp", slots=2)
    assert event.state == "leaks"
    assert "--cache-ram 0" in probes.unsafe["raw"]


async def test_a_short_context_is_tried_with_a_short_prompt() -> None:
    _, (event,) = await probed(Engine(salt, details, most=1000), "vllm")
    assert event.state == "isolated"


async def test_a_server_that_refuses_is_tried_again_and_not_trusted_meanwhile() -> None:
    probes, (event,) = await probed(Engine(salt, details, most=10), "vllm")
    assert event.state == "unverified"
    assert "raw" in probes.unverified


async def test_no_prompt_of_a_probe_says_anything() -> None:
    engine = Engine(salt, details)
    await probed(engine, "vllm")
    assert len({body["prompt"] for body in engine.bodies}) == 3
    assert len({body["cache_salt"] for body in engine.bodies}) == 2
    assert {body["max_tokens"] for body in engine.bodies} == {1}


def test_an_upstream_without_a_server_of_ones_own_is_not_probed() -> None:
    hosted = UpstreamConfig.model_validate({"name": "o", "base_url": "https://api.openai.com/v1"})
    probes = Probes(UpstreamClient(), [hosted], Routing([hosted], {}), lambda event: None)
    probes.start()
    assert probes.components() == ()
    assert probes.unverified == {}


class Slots(Engine):
    """Slots that hold the newest prompt each, as llama-server's do."""

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = super().complete(body)
        self.seen[self.space(body)] = [body["prompt"]]
        return answer


def probes_of(
    upstream: UpstreamConfig, client: UpstreamClient, told: list[Event], jitter: float
) -> Probes:
    return Probes(client, [upstream], Routing([upstream], {}), told.append, lambda: jitter)


async def test_two_proxies_that_start_at_once_on_one_server_both_find_out_that_it_is_safe() -> None:
    """Each takes the other's slots, so what either asks twice is not there the second time."""
    engine = Slots(lambda body: body["id_slot"], timings)
    told: list[Event] = []
    async with serving(engine.handle) as server:
        client = UpstreamClient()
        upstream = server.config(cache="llamacpp", slots=2)
        both = [probes_of(upstream, client, told, jitter) for jitter in (0.0, 0.5)]
        for probes in both:
            probes.start()
        await until(lambda: len(told) == 2)
        for probes in both:
            await probes.close()
        await client.close()
    assert [one.state for one in told if isinstance(one, PrefixProbed)] == ["isolated"] * 2
    assert [probes.unverified for probes in both] == [{}, {}]


async def test_a_server_that_caches_nothing_is_called_so_after_six_tries() -> None:
    engine = Engine(lambda body: object(), timings)
    events: list[Event] = []
    async with serving(engine.handle) as server:
        client = UpstreamClient()
        probes = probes_of(server.config(cache="llamacpp", slots=2), client, events, 0.0)
        probes.start()
        await until(lambda: bool(events))
        await probes.close()
        await client.close()
    (event,) = events
    assert isinstance(event, PrefixProbed)
    assert (event.state, probes.components()[0].state) == ("unverified", "unverified")
    assert "does it have fewer slots" in event.detail
    assert len(engine.bodies) == 6 * 2
