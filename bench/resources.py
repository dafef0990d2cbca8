"""Start, resident memory, and whether either memory or time grows with what is stored."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from statistics import median

from bench import plain
from bench.bodies import ANSWER_BYTES, chat_body, numbered, post
from bench.hits import HIT, serve_config
from bench.load import BenchError, Job, run
from bench.measure import Effort, warm
from bench.processes import CLIENT_CORES, Bench
from bench.report import Row

_MB = 1e6


async def start_and_memory(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Targets: under 1 s to the first 200 of /healthz, under 60 MB after 10,000 hits.

    Both as after a plain install: the libraries use what they find installed beside them.
    """
    section = "start and memory"
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    config = serve_config(upstream.url, "memory")
    lacks = plain.lacking()
    took: list[float] = []
    for _ in range(3 if effort.quick else 7):
        trivet = bench.trivet(config, lacks=lacks)
        took.append(trivet.ready_s)
        trivet.stop()
    detail = f"{min(took):.2f} to {max(took):.2f} s in {len(took)} starts"
    yield Row(section, "start to the first 200 of /healthz", median(took), "s", "<=", 1.0, detail)
    trivet = bench.trivet(config, lacks=lacks)
    as_plain = f"as after a plain install: {len(lacks)} packages of this environment are hidden"
    started = trivet.resident_bytes() / _MB
    yield Row(section, "resident after start", started, "MB", "<=", 60, as_plain)
    request = post(chat_body())
    await warm(trivet.url, iter([request]), 1)
    job = Job(trivet.url, itertools.repeat(request), 16, HIT, ANSWER_BYTES)
    await run(job, count=10_000)
    resident = trivet.resident_bytes() / _MB
    yield Row(section, "resident after 10,000 hits", resident, "MB", "<=", 60, as_plain)
    for process in (trivet, upstream):
        process.stop()


async def bounded(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Distinct requests through a store of 8 MiB: memory must not follow their number."""
    total = 20_000 if effort.quick else 100_000
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    trivet = bench.trivet(serve_config(upstream.url, "memory", ", max_bytes: 8MiB"))
    numbers = numbered(post(chat_body()), 5_000_000)
    seen: list[float] = []
    for _ in range(10):
        await run(Job(trivet.url, numbers, 16, b"fwd=miss", ANSWER_BYTES), count=total // 10)
        seen.append(trivet.resident_bytes() / _MB)
    # By the third part the store is full, and the allocator has what it needs.
    growth = seen[-1] / seen[2]
    steps = " ".join(f"{size:.1f}" for size in seen)
    name = f"resident, {total:,} distinct requests: end to 30 %"
    detail = f"MB after each tenth: {steps}"
    yield Row("bounded store of 8 MiB", name, growth, "x", "<=", 1.05, detail)
    for process in (trivet, upstream):
        process.stop()


def many_entries(effort: Effort) -> list[Row]:
    """A lookup among 1,000 entries and among a million, in a process of its own."""
    most = 100_000 if effort.quick else 1_000_000
    found: dict[int, float] = {}
    for entries in (1_000, most):
        command = [sys.executable, "-m", "bench.entries", str(entries)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"bench.entries failed:\n{done.stderr[-2000:]}")
        found[entries] = float(json.loads(done.stdout)["find_us"])
    few, many = found[1_000], found[most]
    return [
        Row(
            "number of entries",
            f"lookup: {most:,} entries less 1,000",
            many - few,
            "us",
            "<=",
            10.0,
            f"{few:.2f} us among 1,000, {many:.2f} us among {most:,}: find, verify, judge",
        )
    ]
