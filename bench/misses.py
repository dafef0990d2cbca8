"""What a miss adds to a direct call, and what large bodies do to small hits."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median

from bench.apps import EVENT_GAP_S, STREAM_EVENTS
from bench.bodies import ANSWER_BYTES, chat_body, numbered, post
from bench.hits import HIT, serve_config
from bench.load import Job, Sample, run
from bench.measure import Effort, NewJob, Subject, compare, percentile, warm
from bench.processes import CLIENT_CORES, SERVER_CORES, Bench, Process
from bench.report import Row

_STAMP = re.compile(rb"@(\d+)@")
_BIG = 10 << 20


async def added(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Targets: under 0.8 ms at p50, under 600 us of CPU."""
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    trivet = bench.trivet(serve_config(upstream.url, "memory"))
    numbers = numbered(post(chat_body()), 1_000_000)
    for connections in (1, 16):
        subjects = {
            "direct": Subject(upstream, _jobs(upstream, numbers, connections)),
            "trivet": Subject(trivet, _jobs(trivet, numbers, connections, b"fwd=miss")),
        }
        found = await compare(subjects, effort)
        more = found.added("trivet", "direct", "p50")
        where = f"c={connections}"
        target = 0.8 if connections == 1 else None
        detail = f"{found.say('trivet')}; {found.say('direct')}"
        yield Row("miss", f"{where}: added at p50", more, "ms", "<=", target, detail)
        target = 600 if connections == 16 else None
        yield Row("miss", f"{where}: CPU", found.value("trivet", "cpu"), "us", "<=", target)
    async for row in _streamed(upstream, trivet, effort):
        yield row
    for process in (trivet, upstream):
        process.stop()


def _jobs(
    process: Process, requests: Iterator[bytes], connections: int, marker: bytes = b""
) -> NewJob:
    return lambda: Job(process.url, requests, connections, marker, ANSWER_BYTES)


async def _streamed(upstream: Process, trivet: Process, effort: Effort) -> AsyncIterator[Row]:
    """Each event says when it was sent (one clock for all processes of a machine)."""
    numbers = numbered(post(chat_body(stream=True)), 2_000_000)
    for connections in (1, 16):
        seen: dict[str, list[float]] = {"direct": [], "trivet": []}
        first: dict[str, list[float]] = {"direct": [], "trivet": []}
        streams = max(1, round(effort.seconds / (STREAM_EVENTS * EVENT_GAP_S))) * connections
        for _ in range(effort.rounds):
            for name, process in (("direct", upstream), ("trivet", trivet)):
                delays = seen[name]

                def note(now: float, data: bytes, delays: list[float] = delays) -> None:
                    delays.extend(now - int(at) / 1e9 for at in _STAMP.findall(data))

                job = Job(process.url, numbers, connections, watch=note)
                sample = await run(job, count=streams)
                first[name] += sample.first_bytes
        where = f"streamed, c={connections}"
        # 16 streams that start together wait for each other's start: no target for that.
        bounds = (1.0, 1.0 if connections == 1 else None)
        both = (("each event", seen), ("first byte", first))
        for (what, times), bound in zip(both, bounds, strict=True):
            more = percentile(times["trivet"], 50) - percentile(times["direct"], 50)
            detail = f"{len(times['trivet'])} of them"
            yield Row("miss", f"{where}: added, {what}", more * 1e3, "ms", "<=", bound, detail)


async def beside_large_bodies(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Small hits while four bodies of 10 MB are always on their way. Nothing is pinned.

    Target: 99 of 100 wait less than one such body would hold up an app that parses it itself.
    """
    everywhere = SERVER_CORES | CLIENT_CORES
    upstream = bench.app("upstream", cores=everywhere)
    trivet = bench.trivet(serve_config(upstream.url, "memory"), cores=everywhere)
    small = post(chat_body())
    await warm(trivet.url, iter([small]), 1)
    big = numbered(post(chat_body(size=_BIG)), 3_000_000)
    # The helper process that decodes large bodies starts with the first of them.
    await run(Job(trivet.url, big), count=1)

    async def small_hits() -> Sample:
        job = Job(trivet.url, itertools.repeat(small), 1, HIT, ANSWER_BYTES)
        return await run(job, seconds=effort.seconds)

    alone: list[float] = []
    beside: list[float] = []
    moved = 0
    for _ in range(effort.rounds):
        alone += (await small_hits()).latencies
        large = asyncio.create_task(run(Job(trivet.url, big, 4), seconds=effort.seconds))
        beside += (await small_hits()).latencies
        moved += (await large).count
    section = "10 MB bodies in flight"
    for percent, bound in ((50, None), (99, _parse_ms())):
        with_, without = percentile(beside, percent) * 1e3, percentile(alone, percent) * 1e3
        detail = f"{without:.2f} ms without; {moved} large bodies; the largest {max(beside):.3f} s"
        yield Row(section, f"small hits: p{percent}", with_, "ms", "<=", bound, detail)
    for process in (trivet, upstream):
        process.stop()


def _parse_ms() -> float:
    body = chat_body(size=_BIG)
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        json.loads(body)
        hashlib.sha256(body)
        took.append(time.perf_counter() - began)
    return median(took) * 1e3
