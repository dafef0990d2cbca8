"""The share of a route's prompt tokens that was read from a cache, over time: pure.

A bucket is `[start, calls, tokens, cached]`, its start in Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

Bucket = Sequence[int]

_WINDOW: Final = 12
"""Buckets with traffic that are compared on each side of a moment."""
_CALLS: Final = 4
"""Calls on each side, at least: fewer are chance."""
_DROP: Final = 0.2
_NEAR: Final = 0.1
"""Below the former share by at most this much, it has come back."""


def merged(told: Iterable[Iterable[Bucket]]) -> list[list[int]]:
    """The buckets of several processes as one series, oldest first."""
    found: dict[int, list[int]] = {}
    for buckets in told:
        for start, *counted in buckets:
            known = found.setdefault(start, [start, 0, 0, 0])
            for at, more in enumerate(counted, 1):
                known[at] += more
    return [found[start] for start in sorted(found)]


def share(buckets: Iterable[Bucket]) -> dict[str, Any]:
    """Their sums, and the share; None where there was no token."""
    calls = tokens = cached = 0
    for _, more_calls, more_tokens, more_cached in buckets:
        calls, tokens, cached = calls + more_calls, tokens + more_tokens, cached + more_cached
    return {
        "calls": calls,
        "tokens": tokens,
        "cached": cached,
        "share": cached / tokens if tokens else None,
    }


def fell(buckets: Sequence[Bucket]) -> dict[str, Any] | None:
    """The moment at which the share fell most, if by a fifth or more: the start of the first bucket
    behind it, the shares before and behind, and whether it has come back."""
    sums = [list(accumulate((one[at] for one in buckets), initial=0)) for at in (1, 2, 3)]
    best: dict[str, Any] | None = None
    for at in range(1, len(buckets)):
        before = _within(sums, max(0, at - _WINDOW), at)
        behind = _within(sums, at, min(len(buckets), at + _WINDOW))
        if before is None or behind is None:
            continue
        drop = before - behind
        if drop >= _DROP and (best is None or drop > best["drop"]):
            best = {"at": buckets[at][0], "before": before, "behind": behind, "drop": drop}
    if best is None:
        return None
    latest = share(_newest(buckets))["share"]
    return {**best, "back": latest is not None and latest >= best["before"] - _NEAR}


def _within(sums: Sequence[Sequence[int]], first: int, last: int) -> float | None:
    """The share of some buckets, by the sums before each; None where they say too little."""
    calls, tokens, cached = (one[last] - one[first] for one in sums)
    return cached / tokens if calls >= _CALLS and tokens else None


def _newest(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The newest buckets, until they hold enough calls to say anything."""
    found: list[Bucket] = []
    for one in reversed(buckets):
        found.append(one)
        if sum(bucket[1] for bucket in found) >= _CALLS:
            break
    return found
