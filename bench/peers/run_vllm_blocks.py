"""vLLM's own KV cache manager at the work of `bench.block_speed`; run by vLLM's own Python.

Answers each input line with a JSON line: microseconds a block, nanoseconds a token. `Request`
hashes its blocks when it is made. A hit is looked up, allocated and freed; so is a cold request,
which offers its blocks when they are allocated and evicts one for each that it takes. Imports
nothing of Trivet.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

BLOCK = 16
PREFIX, TAIL = 2048, 64
LONG = 100_000
POOL = 8192
TIMES = 40

# What vLLM prints while it is imported is no answer.
_ANSWERS, sys.stdout = sys.stdout, sys.stderr
_HASHING: Any = import_module("vllm.utils.hashing")
_MANAGER: Any = import_module("vllm.v1.core.kv_cache_manager")
_UTILS: Any = import_module("vllm.v1.core.kv_cache_utils")
_SPECS: Any = import_module("vllm.v1.kv_cache_interface")
_REQUEST: Any = import_module("vllm.v1.request")
_SAMPLING: Any = import_module("vllm.sampling_params")
_FRESH = count(1_000_000)

_UTILS.init_none_hash(_HASHING.sha256)
_HASHER: Any = _UTILS.get_request_block_hasher(BLOCK, _HASHING.sha256)


def fastest(work: Callable[[T], object], inputs: Iterable[T]) -> float:
    """Seconds of the fastest; making the inputs does not count."""
    found = []
    for one in inputs:
        begun = time.perf_counter()
        work(one)
        found.append(time.perf_counter() - begun)
    return min(found)


def prompts(prefix: int, times: int, *, fresh: bool) -> Iterator[list[int]]:
    """As `bench.block_speed.prompts`."""
    for _ in range(times):
        own = next(_FRESH)
        yield [own if fresh else 0, *range(1, prefix), *[own] * TAIL]


def _request(tokens: list[int]) -> Any:
    sampling = _SAMPLING.SamplingParams(max_tokens=1)
    name = str(next(_FRESH))
    return _REQUEST.Request(
        name, tokens, sampling, None, cache_salt="bench-salt", block_hasher=_HASHER
    )


def _requests(prefix: int, times: int, *, fresh: bool) -> Iterator[Any]:
    return map(_request, prompts(prefix, times, fresh=fresh))


def _pool() -> Any:
    dtype = import_module("torch").bfloat16
    spec = _SPECS.FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=dtype)
    groups = [_SPECS.KVCacheGroupSpec(["layer"], spec)]
    # One block more: the first one is never given out.
    config = _SPECS.KVCacheConfig(POOL + 1, kv_cache_tensors=[], kv_cache_groups=groups)
    return _MANAGER.KVCacheManager(
        config, 2 * LONG, scheduler_block_size=BLOCK, hash_block_size=BLOCK
    )


def _serve(pool: Any, request: Any) -> None:
    blocks, cached, *_ = pool.get_computed_blocks(request)
    assert pool.allocate_slots(request, request.num_tokens - cached, cached, blocks) is not None
    pool.free(request)


def _pool_us(prefix: int) -> dict[str, float]:
    blocks = (prefix + TAIL) // BLOCK
    warm = _pool()
    for request in _requests(prefix, 1, fresh=False):
        _serve(warm, request)
    for request in _requests(prefix, 1, fresh=False):
        assert warm.get_computed_blocks(request)[1] == prefix // BLOCK * BLOCK
    matched = fastest(warm.get_computed_blocks, _requests(prefix, TIMES, fresh=False))
    hit = fastest(lambda one: _serve(warm, one), _requests(prefix, TIMES, fresh=False))
    full = _pool()
    for request in _requests(prefix, POOL * BLOCK // prefix + 1, fresh=True):
        _serve(full, request)
    cold = fastest(lambda one: _serve(full, one), _requests(prefix, TIMES, fresh=True))
    return {
        "match_us": matched / (prefix // BLOCK) * 1e6,
        "hit_us": hit / blocks * 1e6,
        "cold_us": cold / blocks * 1e6,
    }


def _hash_ns(tokens: int) -> float:
    return fastest(_request, prompts(tokens, TIMES, fresh=True)) / (tokens + TAIL) * 1e9


def measured() -> dict[str, float]:
    """One round, for the short prompt and the long one."""
    found = {"hash_ns": _hash_ns(PREFIX), "long_hash_ns": _hash_ns(LONG), **_pool_us(PREFIX)}
    return found | {f"long_{name}": value for name, value in _pool_us(LONG).items()}


def main() -> int:
    """Exit code 0 when the input ends."""
    for _ in sys.stdin:
        print(json.dumps(measured()), file=_ANSWERS, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
