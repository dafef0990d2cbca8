"""Runs `trivet engine bench`, and prints what it finds."""

from __future__ import annotations

import asyncio
import platform
import sys
from dataclasses import dataclass

import orjson

from trivet.prefix.engine.benchmark import Benchmark, Figure, Shape, measured
from trivet.prefix.engine.loading import load
from trivet.prefix.engine.runner import Determinism
from trivet.prefix.engine.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the command line says. Memory in bytes."""

    model: str
    kv_memory: int
    block_size: int
    determinism: Determinism
    threads: int
    dtype: str
    device: str
    prefix: int
    tail: int
    rounds: int
    as_json: bool


def run(options: BenchOptions) -> None:
    """Measure and print. Raises `ConfigError` for a model that cannot be loaded or measured."""
    print(f"Loading {options.model} ...", file=sys.stderr, flush=True)
    loaded = load(
        options.model, dtype=options.dtype, device=options.device, threads=options.threads
    )
    settings = EngineSettings(
        kv_memory=options.kv_memory,
        block_size=options.block_size,
        determinism=options.determinism,
    )
    shape = Shape(prefix=options.prefix, tail=options.tail, rounds=options.rounds)
    benchmark = Benchmark(loaded, settings, shape)
    benchmark.check()
    found = asyncio.run(_collect(benchmark, show=not options.as_json))
    if options.as_json:
        told = {
            "model": loaded.facts.name,
            "dtype": loaded.facts.dtype,
            "device": str(loaded.device),
            "machine": platform.machine(),
            "threads": options.threads,
            "determinism": options.determinism,
            "prefix": shape.prefix,
            "tail": shape.tail,
            "rounds": shape.rounds,
            "figures": [{"name": one.name, "value": one.value, "unit": one.unit} for one in found],
        }
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())


async def _collect(benchmark: Benchmark, *, show: bool) -> list[Figure]:
    found = []
    async for figure in measured(benchmark):
        found.append(figure)
        text = f"  {figure.name:<48} {_number(figure.value):>8} {figure.unit}"
        print(text, file=sys.stdout if show else sys.stderr, flush=True)
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
