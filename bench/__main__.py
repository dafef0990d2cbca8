"""`python -m bench [--quick] [--only WORD]`: one table, and `bench/results.json`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from bench import blocks, collapse, hits, misses, report, resources, search, semantic_embed
from bench.load import BenchError
from bench.measure import FULL, QUICK, Effort
from bench.peers import litellm
from bench.processes import CLIENT_CORES, SERVER_CORES, Bench
from bench.report import Row

RESULTS = Path(__file__).with_name("results.json")


async def _entries(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    for row in resources.many_entries(effort):
        yield row


PARTS = {
    "memory": hits.from_memory,
    "sqlite": hits.from_sqlite,
    "redis": hits.from_redis,
    "miss": misses.added,
    "large": misses.beside_large_bodies,
    "start": resources.start_and_memory,
    "bounded": resources.bounded,
    "entries": _entries,
    "collapse": collapse.collapsed,
    "embed": semantic_embed.embedding,
    "search": search.searched,
    "blocks": blocks.cached_blocks,
    "litellm": litellm.beside,
}


async def _run(names: list[str], effort: Effort) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="trivet-bench-") as folder:
            bench = Bench(Path(folder))
            try:
                async for row in PARTS[name](bench, effort):
                    if not rows or rows[-1].section != row.section:
                        print(row.section, flush=True)
                    print(report.line(row), flush=True)
                    rows.append(row)
            except BenchError as error:
                print(f"  {name} could not be measured: {error}", flush=True)
                rows.append(Row(name, "could not be measured", 0.0, "", "==", 1.0, str(error)))
            finally:
                bench.close()
    return rows


def main() -> int:
    """Exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Short rounds: a rough picture.")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="Only these parts.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Where the JSON goes.")
    asked = parser.parse_args()
    os.sched_setaffinity(0, CLIENT_CORES)
    server, client = (",".join(map(str, sorted(cores))) for cores in (SERVER_CORES, CLIENT_CORES))
    print(
        f"server on core {server}, all else on {client}; ratios within a run, medians of rounds\n"
    )
    effort = QUICK if asked.quick else FULL
    rows = uvloop.run(_run(asked.only or list(PARTS), effort))
    report.write(rows, asked.output, quick=asked.quick)
    print(f"\n{report.summary(rows)}\nwritten to {asked.output}")
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
