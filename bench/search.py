"""The nearest stored question: time, memory and how often it is found, by size of partition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator

from bench.load import BenchError
from bench.measure import Effort
from bench.processes import SERVER_CORES, Bench
from bench.report import Row

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


async def searched(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """One partition of each size, then 10,000 partitions of ten entries."""
    section = "search, 384 dimensions, one core"
    for size in _SIZES[: 3 if effort.quick else 4]:
        found = _measure(size)
        bound = 1.0 if size <= 100_000 else 5.0
        yield Row(
            section, f"{size:,} entries: p50", found["p50_ms"], "ms", "<=", bound,
            f"p99 {found['p99_ms']:.2f} ms; add {found['add_us']:.0f} us; built in"
            f" {found['build_s']:.1f} s, longest hold of the loop {found['pause_ms']:.1f} ms",
        )  # fmt: skip
        yield Row(section, f"{size:,} entries: found", found["recall"], "", ">=", 0.97)
        yield _memory(section, f"{size:,} entries", found)
    found = _measure(10_000, 10)
    yield Row(
        section, "10,000 partitions of 10: p50", found["p50_ms"], "ms", "<=", 0.1,
        f"add {found['add_us']:.0f} us",
    )  # fmt: skip
    yield _memory(section, "10,000 partitions of 10", found)


def _memory(section: str, name: str, found: dict[str, float]) -> Row:
    """Bounded where the process and its libraries weigh little beside the entries."""
    detail = f"counted as {found['counted_bytes']:,.0f}"
    heavy = name.startswith("1,000,000") or "partitions" in name
    bound = found["counted_bytes"] * 1.1 if heavy else None
    return Row(section, f"{name}: bytes an entry", found["entry_bytes"], "B", "<=", bound, detail)


def _measure(*numbers: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.searching", *map(str, numbers)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **_ALONE},
        preexec_fn=lambda: os.sched_setaffinity(0, SERVER_CORES),
    )
    if done.returncode:
        raise BenchError(f"bench.searching failed:\n{done.stderr[-2000:]}")
    made: dict[str, float] = json.loads(done.stdout)
    return made
