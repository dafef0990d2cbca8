"""Each answer of a model is told once, whoever asked, with what it cost."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from traffic_parts import call_of

from trivet.errors import UpstreamError
from trivet.messages import Api, Usage
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.call import Call
from trivet.middleware.fleets.way import Way
from trivet.middleware.prefix_tier.flood import FloodGuard
from trivet.middleware.prefix_tier.metering import Metering
from trivet.middleware.prefix_tier.tier import Sent
from trivet.middleware.running.config import FloodConfig, UpstreamConfig
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse
from trivet.policies.eligibility import Bypass
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import steps_of
from trivet.telemetry import Event, ModelCall

BODY = json.dumps(
    {"model": "served", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
).encode()


class Arrived:
    """A response of the HTTP client whose body is here."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.closed = 0

    async def read_some(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    def close(self) -> None:
        self.closed += 1


class Rig:
    def __init__(self, *chunks: bytes, status: int = 200, coded: bool = False) -> None:
        self.events: list[Event] = []
        self.told: list[int] = []
        self.fails = False
        coding = [(b"content-encoding", b"gzip")] if coded else []
        headers: RawHeaders = [(b"content-type", b"application/json"), *coding]
        self.response = UpstreamResponse(status, headers, Arrived(*chunks))
        self.guard = FloodGuard(FloodConfig())
        self.metering = Metering(self, self, self.events.append, self.guard)  # type: ignore[arg-type]

    async def ask(self, call: Call, body: bytes) -> UpstreamResponse:
        if self.fails:
            raise UpstreamError("upstream-refused", "no")
        return self.response

    async def send(self, *about: Any) -> UpstreamResponse:
        return self.response

    def told_of(self, upstream: UpstreamConfig, way: Way, cached: int) -> None:
        self.told.append(cached)

    async def read(self, call: Call) -> bytes:
        response = await self.metering.ask(call, b"{}")
        read = b"".join([chunk async for chunk in response.chunks()])
        response.close()
        response.close()
        return read


async def test_an_answer_is_told_once_and_passes_as_it_came() -> None:
    rig = Rig(BODY[:20], BODY[20:])
    assert await rig.read(call_of()) == BODY
    assert rig.events == [ModelCall("t1", "chat", "chat", "served", "up", Usage(9, 2))]


async def test_what_the_recorder_read_is_not_looked_at_again() -> None:
    rig = Rig(BODY)
    response = await rig.metering.ask(call_of(), b"{}")
    assert await response.read() == BODY
    response.settle(Usage(7, 1), "other")
    response.close()
    assert rig.events == [ModelCall("t1", "chat", "chat", "other", "up", Usage(7, 1))]


async def test_the_callers_route_is_told() -> None:
    rig = Rig(BODY)
    await rig.read(replace(call_of(), route="search"))
    assert [event.route for event in rig.events if isinstance(event, ModelCall)] == ["search"]


async def test_an_audit_is_told_as_one_and_is_no_miss() -> None:
    rig = Rig(BODY)
    await rig.read(replace(call_of(), purpose="audit"))
    assert [event.purpose for event in rig.events if isinstance(event, ModelCall)] == ["audit"]
    assert rig.guard._misses == 0


async def test_an_error_is_not_told() -> None:
    rig = Rig(BODY, status=400)
    await rig.read(call_of())
    assert rig.events == []
    assert rig.guard.flood.in_flight == 0


async def test_a_compressed_answer_is_told_as_unknown() -> None:
    rig = Rig(BODY, coded=True)
    await rig.read(call_of())
    assert rig.events == [ModelCall("t1", "chat", "chat", "m1", "up", None)]


async def test_an_answer_that_nobody_reads_to_its_end_is_told_as_far_as_it_came() -> None:
    rig = Rig(b"x", BODY)
    response = await rig.metering.ask(call_of(), b"{}")
    chunks: AsyncGenerator[bytes, None] = response.chunks()
    assert await anext(chunks) == b"x"
    await chunks.aclose()
    response.close()
    assert rig.events == [ModelCall("t1", "chat", "chat", "m1", "up", None)]


async def test_the_router_is_told_what_the_replica_had() -> None:
    cached = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}
    rig = Rig(json.dumps({"usage": cached}).encode())
    client = UpstreamClient()
    client.told = rig.told_of  # type: ignore[method-assign, assignment]
    rig.metering = Metering(rig, client, rig.events.append)
    call = call_of()
    call.sent = Sent(b"{}", [], Way(steps_of(outline_of(Api.CHAT, {}), b"t1")))
    await rig.read(call)
    assert rig.told == [8]
    await client.close()


async def test_a_call_is_in_flight_until_its_answer_is_closed() -> None:
    rig = Rig(BODY)
    response = await rig.metering.ask(call_of(), b"{}")
    assert rig.guard.flood.in_flight == 1
    response.close()
    response.close()
    assert rig.guard.flood.in_flight == 0


async def test_a_call_that_fails_is_not_in_flight() -> None:
    rig = Rig()
    rig.fails = True
    with pytest.raises(UpstreamError):
        await rig.metering.ask(call_of(), b"{}")
    assert rig.guard.flood.in_flight == 0


async def test_what_no_cache_may_answer_is_not_guarded() -> None:
    rig = Rig(BODY)
    await rig.metering.ask(call_of(plan=Bypass("sampled", only_if_cached=False)), b"{}")
    assert rig.guard.flood.in_flight == 0
