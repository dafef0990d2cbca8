"""Hits against raw ASGI apps that parse, hash, look up and answer."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.apps import stored_stream
from bench.bodies import ANSWER_BYTES, chat_body, numbered, post
from bench.load import Job
from bench.measure import Comparison, Effort, NewJob, Subject, compare, warm
from bench.processes import CLIENT_CORES, Bench, Process, free_port
from bench.report import Row

HIT = b"; hit"
_DISTINCT = 1000
_TIMES: tuple[Literal["p50"], Literal["p99"]] = ("p50", "p99")


def serve_config(upstream: str, store: str, more: str = "") -> str:
    """A server config file for one upstream and a store."""
    return f"upstreams: [{{name: up, base_url: '{upstream}'}}]\nstore: {{url: '{store}'{more}}}\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """One way in which hits are asked for."""

    name: str
    requests: Sequence[bytes]
    """Asked once to fill the cache, then over and over."""
    body_bytes: int = ANSWER_BYTES
    traced: bool = False
    """Each request has a header value that no other has, as traced callers send it."""

    def job(self, process: Process, connections: int, marker: bytes) -> NewJob:
        """Jobs that send the requests over and over."""

        def new() -> Job:
            requests = _traced(self.requests) if self.traced else itertools.cycle(self.requests)
            return Job(process.url, requests, connections, marker, self.body_bytes)

        return new


def _traced(requests: Sequence[bytes]) -> Iterator[bytes]:
    for request in itertools.cycle(requests):
        head, _, body = request.partition(b"\r\n\r\n")
        trace, span = secrets.token_hex(16).encode(), secrets.token_hex(8).encode()
        yield b"%b\r\ntraceparent: 00-%b-%b-01\r\n\r\n%b" % (head, trace, span, body)


def shapes() -> tuple[Shape, ...]:
    """The bodies that hits from memory are measured with."""
    plain = post(chat_body())
    return (
        Shape("one request", [plain]),
        Shape("1,000 distinct requests", list(numbered(plain, 1, _DISTINCT))),
        Shape("one request, spaced JSON", [post(chat_body(spaced=True))]),
        Shape("one request, traced", [plain], traced=True),
    )


async def _pair(
    shape: Shape, trivet: Process, floor: Process, connections: int, effort: Effort
) -> Comparison:
    for process in (trivet, floor):
        await warm(process.url, iter(shape.requests), len(shape.requests))
    subjects = {
        "floor": Subject(floor, shape.job(floor, connections, b"")),
        "trivet": Subject(trivet, shape.job(trivet, connections, HIT)),
    }
    return await compare(subjects, effort)


async def from_memory(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Targets: 0.6 of the floor's throughput, p50 1.5 times, p99 2 times."""
    section = "hit from memory"
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    floor = bench.app("floor")
    trivet = bench.trivet(serve_config(upstream.url, "memory"))
    for shape in shapes():
        for connections in (1, 16):
            found = await _pair(shape, trivet, floor, connections, effort)
            where = f"{shape.name}, c={connections}"
            detail = f"{found.say('trivet')}; {found.say('floor')}"
            rate = found.ratio("trivet", "floor", "rps")
            yield Row(section, f"{where}: throughput", rate, "x", ">=", 0.6, detail)
            p50, p99 = (found.ratio("trivet", "floor", figure) for figure in _TIMES)
            yield Row(section, f"{where}: p50", p50, "x", "<=", 1.5)
            yield Row(section, f"{where}: p99", p99, "x", "<=", 2.0)
            yield Row(section, f"{where}: CPU", found.ratio("trivet", "floor", "cpu"), "x")
    async for row in _streamed(trivet, floor, effort):
        yield row
    for process in (trivet, floor, upstream):
        process.stop()


async def _streamed(trivet: Process, floor: Process, effort: Effort) -> AsyncIterator[Row]:
    asked = chat_body(stream=True)
    shape = Shape("stream", [post(asked)], len(stored_stream()))
    # Recorded as JSON, so that the floor's stream is the one that Trivet replays.
    await warm(trivet.url, iter([post(asked.replace(b":true", b":false"))]), 1)
    for connections in (1, 16):
        found = await _pair(shape, trivet, floor, connections, effort)
        value = found.ratio("trivet", "floor", "first_byte")
        name = f"streamed, c={connections}: time to first byte"
        yield Row("hit from memory", name, value, "x", "<=", 1.5, found.say("trivet"))


async def from_sqlite(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """No memory in front. Target: 0.4 of the floor's throughput."""
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    floor = bench.app("floor")
    store = f"sqlite:{bench.folder / 'bench.sqlite'}"
    trivet = bench.trivet(serve_config(upstream.url, store, ", front_bytes: 0, budget: 5s"))
    async for row in _behind("hit from SQLite, no front", trivet, floor, 0.4, effort):
        yield row
    for process in (trivet, floor, upstream):
        process.stop()


async def from_redis(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """No memory in front. Target: 0.8 of an app that does one GET for each request."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    redis = bench.start(command, f"http://127.0.0.1:{port}", "redis", CLIENT_CORES)
    redis.wait_for()
    url = f"redis://127.0.0.1:{port}/0"
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    floor = bench.app("redis-floor", url)
    # A crowded machine must not turn hits into misses: it is the cost that is measured.
    trivet = bench.trivet(serve_config(upstream.url, url, ", front_bytes: 0, budget: 5s"))
    async for row in _behind("hit from Redis, no front", trivet, floor, 0.8, effort):
        yield row
    for process in (trivet, floor, upstream, redis):
        process.stop()


async def _behind(
    section: str, trivet: Process, floor: Process, bound: float, effort: Effort
) -> AsyncIterator[Row]:
    for shape in shapes()[:2]:
        for connections in (1, 16):
            found = await _pair(shape, trivet, floor, connections, effort)
            where = f"{shape.name}, c={connections}"
            rate = found.ratio("trivet", "floor", "rps")
            target = bound if connections > 1 else None
            detail = f"{found.say('trivet')}; {found.say('floor')}"
            yield Row(section, f"{where}: throughput", rate, "x", ">=", target, detail)
            yield Row(section, f"{where}: p50", found.ratio("trivet", "floor", "p50"), "x")
            yield Row(section, f"{where}: CPU", found.ratio("trivet", "floor", "cpu"), "x")
