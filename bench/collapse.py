"""Many identical streams at once: how often is the upstream called?"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import urllib.request
from collections.abc import AsyncIterator

from bench.bodies import chat_body, post
from bench.hits import serve_config
from bench.load import Job, run
from bench.measure import Effort, percentile
from bench.processes import CLIENT_CORES, SERVER_CORES, Bench, free_port
from bench.report import Row

_SLOW = b"x-mock: delay=1500; slow-chunks=20\r\n"
"""The streams stay open long enough for all callers to come."""


async def collapsed(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """1,000 callers over two workers, one upstream call."""
    callers = 200 if effort.quick else 1_000
    _allow_files(2 * callers + 100)
    everywhere = SERVER_CORES | CLIENT_CORES
    port = free_port()
    cli = "from trivet.cli import main; main()"
    command = [sys.executable, "-c", cli, "upstream", "--port", str(port)]
    upstream = bench.start(command, f"http://127.0.0.1:{port}", "mock-upstream", everywhere)
    upstream.wait_for()
    trivet = bench.trivet(serve_config(upstream.url, "memory") + "workers: 2\n", cores=everywhere)
    request = post(chat_body(stream=True), extra=_SLOW)
    sample = await run(Job(trivet.url, itertools.repeat(request), callers), count=callers)
    with urllib.request.urlopen(f"{upstream.url}/_mock/calls", timeout=5) as answer:
        calls = int(json.load(answer)["total"])
    longest = percentile(sample.latencies, 100)
    detail = f"{callers} whole streams; the longest took {longest:.2f} s"
    name = f"{callers:,} equal streams over 2 workers: upstream calls"
    yield Row("collapse", name, calls, "", "==", 1, detail)
    for process in (trivet, upstream):
        process.stop()


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
