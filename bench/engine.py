"""`python -m bench.engine [--quick]`: the engine beside bare transformers, and beside vLLM and
llama.cpp where they are at hand (bench/peers/README.md says how).

One model, one run: who is compared takes turns, so that all share the machine's weather. Exit code
1 if a target is missed. On a machine with a GPU the same command measures there.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench import report
from bench.engine_floor import Floor
from bench.engine_servers import side_by_side
from bench.report import Row
from trivet.prefix.engine.benchmark import Benchmark, Figure, Shape
from trivet.prefix.engine.loading import load
from trivet.prefix.engine.settings import EngineSettings
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockHasher, Namespace

RESULTS = Path(__file__).with_name("engine_results.json")
_KV = 1 << 30


async def _beside_transformers(
    benchmark: Benchmark, floor: Floor, rounds: int
) -> AsyncIterator[Row]:
    shape = benchmark.shape
    section = f"engine, prefix of {shape.prefix:,} tokens, tail of {shape.tail}"
    warm, over, cold, share = [], [], [], []
    async with benchmark.engine() as engine:
        for _ in range(rounds):
            found = _by_name(await benchmark.first_tokens(engine))
            prefix = benchmark.tokens(shape.prefix)
            tails = [benchmark.tokens(shape.tail) for _ in range(4)]
            bare = median(floor.warm(prefix, tails)[1:]) * 1e3
            warm.append(found["warm: time to first token"])
            cold.append(found["cold: time to first token"])
            over.append(warm[-1] / bare)
            share.append(_accounting_s(benchmark) * 1e3 / cold[-1] * 100)
    detail = f"{median(warm):.0f} ms, cold {median(cold):.0f} ms"
    yield Row(section, "warm over bare transformers' tail", median(over), "x", "<=", 1.25, detail)
    gains = [one / other for one, other in zip(cold, warm, strict=True)]
    yield Row(section, "cold over warm", median(gains), "x", ">=", 12)
    yield Row(section, "block accounting of a cold prefill", median(share), "%", "<=", 2)
    for figure in await benchmark.restored():
        target = 5 if figure.name == "cold over restored" else None
        yield Row(section, figure.name, figure.value, figure.unit, ">=", target)


async def _generating(benchmark: Benchmark, floor: Floor, rounds: int) -> AsyncIterator[Row]:
    shape = benchmark.shape
    section = f"engine, answers of {shape.answer} tokens to prompts of {shape.prompt}"
    batches = {1: 0.9, shape.batch: 3.0}
    rates: dict[int, list[float]] = {batch: [] for batch in batches}
    bare = []
    async with benchmark.engine() as engine:
        for _ in range(rounds):
            prompt = benchmark.tokens(shape.prompt)
            bare.append(shape.answer / floor.generate([prompt], shape.answer))
            for batch in batches:
                rates[batch].append((await benchmark.generated(engine, batch)).value)
    for batch, target in batches.items():
        ratios = [one / other for one, other in zip(rates[batch], bare, strict=True)]
        detail = f"{median(rates[batch]):.1f} tok/s, generate {median(bare):.1f}"
        name = f"{batch} at once over transformers' generate"
        yield Row(section, name, median(ratios), "x", ">=", target, detail)


async def _conversing(benchmark: Benchmark) -> AsyncIterator[Row]:
    section = "engine, replayed chat trace"
    for figure in await benchmark.conversed():
        target = 0.85 if "gain" in figure.name else None
        yield Row(section, figure.name, figure.value, figure.unit, ">=", target)


def _accounting_s(benchmark: Benchmark) -> float:
    """Seconds that hashing, admission, commits by steps of 512 and release of one prompt take."""
    shape = benchmark.shape
    count = shape.prefix + shape.tail
    pool = BlockPool(4 * count // 16)
    prompt = benchmark.tokens(count)
    hasher = BlockHasher(Namespace("bench"), "salt")
    began = time.perf_counter()
    chain = hasher.chain(prompt)
    pool.match(chain)
    table = pool.admit(chain, "bench")
    assert table is not None
    for stop in range(512, count + 512, 512):
        pool.commit(table, min(stop, count))
    pool.release(table)
    return time.perf_counter() - began


def _by_name(figures: Sequence[Figure]) -> dict[str, float]:
    return {figure.name: figure.value for figure in figures}


def _parts(asked: argparse.Namespace) -> Iterator[AsyncIterator[Row]]:
    rounds = 1 if asked.quick else 3
    shape = Shape(rounds=2 if asked.quick else 3)
    loaded = load(asked.model, dtype="fp32", device=asked.device, threads=asked.threads)
    folder = loaded.model.name_or_path
    if "transformers" in asked.only:
        benchmark = Benchmark(loaded, EngineSettings(kv_memory=_KV), shape)
        single = Benchmark(loaded, EngineSettings(kv_memory=_KV), replace(shape, rounds=1))
        floor = Floor(folder, asked.threads, str(loaded.device))
        yield _beside_transformers(single, floor, rounds=3 * rounds)
        yield _generating(single, floor, rounds=3 * rounds)
        yield _conversing(benchmark)
    if "servers" in asked.only:
        yield side_by_side(Benchmark(loaded, EngineSettings(kv_memory=_KV), shape), folder, asked)


async def _run(asked: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for part in _parts(asked):
        async for row in part:
            if not rows or rows[-1].section != row.section:
                print(row.section, flush=True)
            print(report.line(row), flush=True)
            rows.append(row)
    return rows


def main() -> int:
    """Exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Few rounds: a rough picture.")
    parser.add_argument("--model", default="smollm2", help="As `trivet engine serve` takes it.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", choices=("transformers", "servers"), action="append")
    parser.add_argument("--vllm", type=Path, help="Environment that has vLLM.")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server.")
    parser.add_argument("--gguf", type=Path, help="The same model for it.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Where the JSON goes.")
    asked = parser.parse_args()
    asked.only = asked.only or ["transformers", "servers"]
    rows = asyncio.run(_run(asked))
    report.write(rows, asked.output, quick=asked.quick)
    print(f"\n{report.summary(rows)}\nwritten to {asked.output}")
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
