from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from raw_upstream import Upstream, answering, serving, until

from trivet.errors import UpstreamError
from trivet.messages import Api
from trivet.middleware.fleets.fleets import Fleets
from trivet.middleware.fleets.replicas import replicas_of
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import steps_of
from trivet.telemetry import REPLICA_STARTED, Event, ReplicaAsked, ReplicaChanged

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy"
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nha"
CHAT = "/v1/chat/completions"
LONG = "All of this stands in front of every question. " * 100


def way(text: str = LONG) -> Way:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return Way(steps_of(outline_of(Api.CHAT, body), b"salt"))


class Rig:
    """An upstream with several servers, and a client of it."""

    def __init__(self, servers: list[Upstream | None], **options: Any) -> None:
        urls = [f"http://127.0.0.1:{one.port if one else 1}" for one in servers]
        self.upstream = UpstreamConfig.model_validate(
            {"name": "pool", "base_url": urls[0], "replicas": urls[1:], **options}
        )
        self.events: list[Event] = []
        self.fleets = Fleets([self.upstream], self.events.append)
        self.client = UpstreamClient(None, self.fleets)
        self.set = self.fleets.sets["pool"]

    async def send(self, text: str = LONG, target: str = CHAT, method: str = "POST"
                   ) -> UpstreamResponse:  # fmt: skip
        return await self.client.send(self.upstream, method, target, [], b"{}", way(text))

    async def read(self, text: str = LONG, target: str = CHAT) -> tuple[int, bytes]:
        response = await self.send(text, target)
        try:
            return response.status, await response.read()
        finally:
            response.close()

    @property
    def asked(self) -> list[str]:
        return [one.replica for one in self.events if isinstance(one, ReplicaAsked)]


@asynccontextmanager
async def rig(*answers: bytes | None, **options: Any) -> AsyncIterator[tuple[Rig, list[Upstream]]]:
    """One server for each answer; None is one that is not there."""
    async with _stack(answers) as servers:
        made = Rig(servers, **options)
        try:
            yield made, [one for one in servers if one]
        finally:
            await made.client.close()
            await made.fleets.close()


@asynccontextmanager
async def _stack(answers: tuple[bytes | None, ...]) -> AsyncIterator[list[Upstream | None]]:
    if not answers:
        yield []
    elif answers[0] is None:
        async with _stack(answers[1:]) as rest:
            yield [None, *rest]
    else:
        async with serving(answering(answers[0])) as first, _stack(answers[1:]) as rest:
            yield [first, *rest]


async def test_a_conversation_stays_with_its_replica() -> None:
    async with rig(OK, OK, OK) as (made, servers):
        for _ in range(9):
            assert await made.read() == (200, b"ok")
        assert sorted(len(one.requests) for one in servers) == [0, 0, 9]
        reasons = [one.reason for one in made.events if isinstance(one, ReplicaAsked)]
        assert reasons == ["home", *["known"] * 8]


async def test_conversations_are_spread() -> None:
    async with rig(OK, OK) as (made, servers):
        for at in range(40):
            await made.read(f"Question {at}")
        assert min(len(one.requests) for one in servers) >= 8


async def test_round_robin_takes_turns() -> None:
    async with rig(OK, OK, OK, routing="round-robin") as (made, servers):
        for _ in range(6):
            await made.read()
        assert [len(one.requests) for one in servers] == [2, 2, 2]


async def test_a_server_that_is_not_there_costs_no_request() -> None:
    async with rig(None, OK, routing="round-robin") as (made, servers):
        for _ in range(8):
            assert await made.read() == (200, b"ok")
        assert len(servers[0].requests) == 8


async def test_who_fails_again_and_again_is_ejected_and_it_is_said_once() -> None:
    async with rig(None, OK, routing="round-robin") as (made, _):
        for _ in range(12):
            await made.read()
        changes = [one for one in made.events if isinstance(one, ReplicaChanged)]
        assert changes == [ReplicaChanged("pool", "127.0.0.1:1", False, "upstream-refused")]
        assert made.asked.count("127.0.0.1:1") == 3


async def test_what_a_server_held_is_forgotten_when_it_ends() -> None:
    async with rig(OK, OK) as (made, _):
        asked = way()
        first = made.set.choose(asked)
        made.set.computed(first.replica, made.set.began(first, asked))
        made.set.ended(first.replica)
        assert made.set.choose(asked).reason == "known"
        made.set.failed(first.replica, "health", checked=True)
        assert made.set.choose(asked).reason != "known"


async def test_a_server_that_says_it_is_not_ready_is_passed_over() -> None:
    async with rig(BUSY, OK, routing="round-robin") as (made, _):
        for _ in range(4):
            assert await made.read() == (200, b"ok")


async def test_the_last_refusal_is_the_answer() -> None:
    async with rig(BUSY, BUSY) as (made, servers):
        assert await made.read() == (503, b"busy")
        assert [len(one.requests) for one in servers] == [1, 1]


async def test_no_server_at_all_is_the_upstreams_error() -> None:
    async with rig(None, None) as (made, _):
        with pytest.raises(UpstreamError, match="cannot be reached"):
            await made.read()


async def test_an_answer_that_breaks_off_is_not_begun_anew() -> None:
    async with rig(HALF, HALF) as (made, servers):
        with pytest.raises(UpstreamError):
            await made.read()
        assert sum(len(one.requests) for one in servers) == 1


async def test_a_path_that_generates_nothing_stays_with_the_first_server() -> None:
    async with rig(OK, OK) as (made, servers):
        for at in range(6):
            await made.read(f"Question {at}", "/v1/files")
        assert [len(one.requests) for one in servers] == [6, 0]


async def test_what_may_have_been_done_is_not_done_again() -> None:
    async with rig(BUSY, OK) as (made, servers):
        assert await made.read(target="/v1/files") == (503, b"busy")
        assert len(servers[1].requests) == 0


async def test_requests_in_flight_are_counted_to_their_end() -> None:
    async with rig(OK, OK) as (made, _):
        response = await made.send()
        busy = [one for one in made.set.replicas if one.in_flight]
        assert len(busy) == 1
        assert busy[0].waiting > 0
        await response.read()
        assert busy[0].waiting == 0
        response.close()
        response.close()
        assert [one.in_flight for one in made.set.replicas] == [0, 0]


async def test_a_caller_who_leaves_while_it_waits_is_not_counted_on() -> None:
    async with serving(answering(OK, pause=60)) as silent:

        async def never(
            upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await upstream.read(reader)
            await asyncio.sleep(60)

        async with serving(never) as other:
            made = Rig([other, silent])
            asked = made.client.send(made.upstream, "POST", CHAT, [], b"{}", None)
            task = asyncio.ensure_future(asked)
            await until(lambda: bool(other.requests or silent.requests))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                task.result().close()
            assert [one.in_flight for one in made.set.replicas] == [0, 0]
            await made.client.close()
            await made.fleets.close()


async def test_what_a_replica_says_it_had_is_believed() -> None:
    async with rig(OK, OK) as (made, _):
        asked = way()
        for _ in range(2):
            response = await made.client.send(made.upstream, "POST", CHAT, [], b"{}", asked)
            response.close()
        assert asked.replica is not None
        assert asked.expected > 0
        before = made.set.replicas[asked.replica].trust
        made.client.told(made.upstream, asked, 0)
        assert made.set.replicas[asked.replica].trust == before  # It may tell of no cached tokens.
        made.client.told(made.upstream, asked, asked.expected)
        made.client.told(made.upstream, asked, 0)
        assert made.set.replicas[asked.replica].trust < before
        made.client.told(made.upstream, asked, asked.expected)
        assert made.set.replicas[asked.replica].trust > 0.9 * before


async def test_health_and_queues_are_watched() -> None:
    metrics = b"llamacpp:requests_processing 3\nllamacpp:requests_deferred 4\n"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(metrics), metrics)
    async with rig(answer, None) as (made, _):
        made.fleets.start()
        await until(lambda: made.set.replicas[0].others == 7)
        await until(lambda: len(made.events) == 3)
        started = [one for one in made.events[:2] if isinstance(one, ReplicaChanged)]
        assert [one.reason for one in started] == [REPLICA_STARTED] * 2
        assert made.events[2] == ReplicaChanged("pool", "127.0.0.1:1", False, "health")
        (told,) = made.fleets.components()
        assert (told.state, told.detail) == ("degraded", "1 of 2 replicas are asked")
        assert told.ok
        # With nobody there, the one that is up is asked although it is busy.
        assert made.set.choose(way()).replica == 0
        made.set.failed(0, "health", checked=True)
        (told,) = made.fleets.components()
        assert (told.ok, told.state) == (False, "down")


def test_the_first_server_may_be_named_again_for_its_events() -> None:
    config = UpstreamConfig.model_validate(
        {
            "name": "pool",
            "base_url": "http://a:1/v1",
            "replicas": [{"url": "http://a:1/v1", "kv_events": "tcp://a:5557"}, "http://b:1"],
        }
    )
    assert [(one.root, one.kv_events) for one in replicas_of(config)] == [
        ("http://a:1", "tcp://a:5557"),
        ("http://b:1", None),
    ]
