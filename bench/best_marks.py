"""The best that breakpoints can do on a trace, by whoever knows all that is to come.

Two ways. `bound` is a cost that no marking comes below: the prompts of the trace are a tree of
parts, and each part alone is given the cheapest history, as if breakpoints were free and without
limit: at each of its appearances it is read (if it was read or written less than a lifetime ago),
written for one of the lifetimes, or neither. That is a dynamic program over its appearances. It is
a bound because whatever a real marking does to the whole tree is, for each part, one of these
histories: an entry that covers a part was written or read in a request that has the part, at which
its lifetime began; and a read may renew it for the longest lifetime, as a breakpoint for an hour
further back in the same request does for the new tokens' price. `brute_force` tries every marking
of a short trace, and shows how near the bound is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import inf
from typing import NamedTuple

from trivet.prefix.caches import Billed, make_cache
from trivet.prefix.markers.rules import CacheRules, Ttl
from trivet.prefix.prompts.outline import Mark, Outline, chain

Timed = tuple[float, Outline]


def cost(billed: Billed, rules: CacheRules) -> float:
    """Input cost in uncached tokens."""
    writes = {ttl.name: ttl.write for ttl in rules.ttls}
    written = sum(writes[name] * tokens for name, tokens in billed.writes)
    return billed.uncached + rules.read * billed.read + written


def bound(trace: Sequence[Timed], rules: CacheRules) -> float:
    """A cost, in uncached tokens, that no marking comes below."""
    times: dict[bytes, list[float]] = defaultdict(list)
    tokens: dict[bytes, int] = {}
    uncached = 0
    for at, outline in trace:
        size = held = 0
        for link, part in zip(chain(outline), outline.parts, strict=True):
            size, held = size + part.tokens, held + part.tokens
            if size >= rules.min_tokens:
                # What is below the minimum is read with the shortest prefix that is not.
                times[link].append(at)
                tokens[link], held = held, 0
        uncached += held
    return uncached + sum(tokens[link] * _cheapest(seen, rules) for link, seen in times.items())


def _cheapest(times: Sequence[float], rules: CacheRules) -> float:
    """Of one token that appears at these times: states are until when it can be read."""
    longest = max(ttl.seconds for ttl in rules.ttls)
    states = {-inf: 0.0}
    for at in times:
        after: dict[float, float] = {}
        for until, paid in states.items():
            if until > at:
                options = [(at + longest, rules.read)]
            else:
                options = [(-inf, 1.0), *((at + ttl.seconds, ttl.write) for ttl in rules.ttls)]
            for then, price in options:
                after[then] = min(after.get(then, inf), paid + price)
        states = after
    return min(states.values())


class Best(NamedTuple):
    """The cheapest marking of all."""

    cost: float
    tried: int


def brute_force(trace: Sequence[Timed], rules: CacheRules, places: int = 4) -> Best:
    """Every way to mark every request at up to `places` of its last parts and level ends."""
    choices = [list(_markings(outline, rules, places)) for _, outline in trace]
    best, tried = inf, 0
    for marking in product(*choices):
        cache = make_cache(rules.provider, lambda *_: rules)
        total = 0.0
        for (at, _), outline in zip(trace, marking, strict=True):
            billed = cache.ask("one", outline, at)
            total += cost(billed, rules) if isinstance(billed, Billed) else inf
        best, tried = min(best, total), tried + 1
    return Best(best, tried)


def _markings(outline: Outline, rules: CacheRules, places: int) -> Iterator[Outline]:
    candidates = range(max(0, len(outline.parts) - places), len(outline.parts))
    for count in range(min(rules.max_marks, len(candidates)) + 1):
        for where in combinations(candidates, count):
            for ttls in product(rules.ttls, repeat=count):
                if _in_order(ttls):
                    yield marked(outline, dict(zip(where, ttls, strict=True)))


def _in_order(ttls: Sequence[Ttl]) -> bool:
    seconds = [ttl.seconds for ttl in ttls]
    return seconds == sorted(seconds, reverse=True)


def marked(outline: Outline, marks: dict[int, Ttl]) -> Outline:
    """The outline with breakpoints at these parts."""
    parts = tuple(
        part._replace(mark=Mark(marks[at].name)) if at in marks else part
        for at, part in enumerate(outline.parts)
    )
    return outline._replace(parts=parts)
