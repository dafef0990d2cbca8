"""One process that hashes prompts and asks a block pool for them; prints one JSON line a round.

A round is asked for by a line on its input. `bench/peers/run_vllm_blocks.py` does the same work
with vLLM's own pool, so that the two can take turns.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import TypeVar

from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockChain, BlockHasher, Namespace

T = TypeVar("T")

BLOCK = 16
PREFIX, TAIL = 2048, 64
LONG = 100_000
POOL = 8192
TIMES = 40
"""Repetitions in a round; the fastest counts, which is the one that nothing interrupted."""

_HASHER = BlockHasher(Namespace("bench"), "bench-salt", block_size=BLOCK)
_FRESH = count(1_000_000)


def fastest(work: Callable[[T], object], inputs: Iterable[T]) -> float:
    """Seconds of the fastest; making the inputs does not count."""
    found = []
    for one in inputs:
        begun = time.perf_counter()
        work(one)
        found.append(time.perf_counter() - begun)
    return min(found)


def prompts(prefix: int, times: int, *, fresh: bool) -> Iterator[list[int]]:
    """A prefix that is the same each time unless `fresh`, and a tail that never came before."""
    for _ in range(times):
        own = next(_FRESH)
        yield [own if fresh else 0, *range(1, prefix), *[own] * TAIL]


def _chains(prefix: int, times: int, *, fresh: bool) -> Iterator[BlockChain]:
    return map(_HASHER.chain, prompts(prefix, times, fresh=fresh))


def _serve(pool: BlockPool, chain: BlockChain) -> None:
    """Admitted, computed, offered to others, released."""
    table = pool.admit(chain, "bench")
    assert table is not None
    pool.commit(table, chain.length)
    pool.release(table)


def _admit_and_release(pool: BlockPool, chain: BlockChain) -> None:
    table = pool.admit(chain, "bench")
    assert table is not None
    pool.release(table)


def _pool_us(prefix: int) -> dict[str, float]:
    """Microseconds a block: of a lookup that finds all, of its admission, of a cold one."""
    blocks = (prefix + TAIL) // BLOCK
    warm = BlockPool(POOL, BLOCK)
    for chain in _chains(prefix, 1, fresh=False):
        _serve(warm, chain)
    matched = fastest(warm.match, _chains(prefix, TIMES, fresh=False))
    hit = fastest(partial(_admit_and_release, warm), _chains(prefix, TIMES, fresh=False))
    full = BlockPool(POOL, BLOCK)
    for chain in _chains(prefix, POOL * BLOCK // prefix + 1, fresh=True):
        _serve(full, chain)
    cold = fastest(partial(_serve, full), _chains(prefix, TIMES, fresh=True))
    return {
        "match_us": matched / (prefix // BLOCK) * 1e6,
        "hit_us": hit / blocks * 1e6,
        "cold_us": cold / blocks * 1e6,
    }


def _hash_ns(tokens: int) -> float:
    return fastest(_HASHER.chain, prompts(tokens, TIMES, fresh=True)) / (tokens + TAIL) * 1e9


def measured() -> dict[str, float]:
    """One round, for the short prompt and the long one."""
    found = {"hash_ns": _hash_ns(PREFIX), "long_hash_ns": _hash_ns(LONG), **_pool_us(PREFIX)}
    return found | {f"long_{name}": value for name, value in _pool_us(LONG).items()}


def main() -> int:
    """Exit code 0 when the input ends."""
    for _ in sys.stdin:
        print(json.dumps(measured()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
