"""What each way to set breakpoints would have cost on traffic that was recorded.

Costs are in uncached input tokens: a read counts for a tenth of one, a write for 1.25 or 2, as the
provider's rules say. All ways are played through the model of the provider's documented cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Final, NamedTuple

from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.backends.base import Marked
from trivet.prefix.caches import Billed, Refused, make_cache
from trivet.prefix.caches.openai import EXPLICIT
from trivet.prefix.markers.gaps import least_share
from trivet.prefix.markers.placement import as_sent, place_breakpoints
from trivet.prefix.markers.rules import CacheRules, Ttl, rules_for
from trivet.prefix.markers.stability import Stability, last_asked, level_end, prompt_of
from trivet.prefix.prompts.outline import Level, Mark, Outline, Part

NONE: Final = "no breakpoints"
AUTO: Final = "Trivet, lifetimes by the gaps"
SHORTER: Final = "Trivet, the shorter lifetime"
LONGER: Final = "Trivet, the longer lifetime"
SYSTEM: Final = "the system prompt only"
_ENOUGH: Final = 4


class Asked(NamedTuple):
    """A call that was recorded."""

    at: float
    """Seconds."""
    tenant: str
    route: str
    outline: Outline
    scale: float = 1.0
    """Tokens that the provider counted, for each estimated one."""
    price: float | None = None
    """US dollars for one uncached input token."""


class Rates(NamedTuple):
    """What reads and writes cost, times the input price. Models may have the same."""

    read: float
    ttls: tuple[Ttl, ...]


@dataclass(slots=True)
class Paid:
    """Tokens by how they were paid for."""

    uncached: float = 0.0
    read: float = 0.0
    written: dict[str, float] = field(default_factory=dict)
    """By lifetime."""
    cost: float = 0.0
    """In uncached tokens."""


@dataclass(slots=True)
class Way:
    """One way to set breakpoints, and what it costs."""

    name: str
    paid: dict[Rates, Paid] = field(default_factory=dict)
    usd: float = 0.0
    refused: int = 0
    places: Counter[str] = field(default_factory=Counter)
    """Breakpoints by the end that they stand at."""

    @property
    def cost(self) -> float:
        """In uncached tokens."""
        return sum(one.cost for one in self.paid.values())


class Break(NamedTuple):
    """When one lifetime pays."""

    ttl: str
    seconds: int
    write: float
    request: int | None
    """From which request of a prefix on it is cheaper than no caching; None: from none on."""
    needed: float
    """The share of prompts that has to be asked for again within the lifetime."""
    turns: float | None
    """The share of prompts that was continued within it; None where too little was seen."""
    system: float | None
    """The share of requests whose tools and system prompt came again within it."""


class Models(NamedTuple):
    """Models that cost the same."""

    names: tuple[str, ...]
    rates: Rates
    lifetimes: tuple[Break, ...]


class Plan(NamedTuple):
    """For one provider."""

    provider: str
    calls: int
    tokens: float
    usd: float | None
    """What all of it costs uncached; None where no price is known."""
    ways: tuple[Way, ...]
    """The cheapest first; of equals what Trivet does unasked, and no breakpoints last."""
    models: tuple[Models, ...]
    takes_marks: bool
    unpriced: int = 0
    """Calls whose price is not known: they are in no sum of dollars."""


def plan(calls: Sequence[Asked], provider: str) -> Plan:
    """Compare the ways. `calls` come by time; breakpoints that they carry are one way of its own.

    Raises `ValueError` for a provider without a model of its cache.
    """
    ways = [_played(calls, provider, name, marker) for name, marker in _ways(calls, provider)]
    priced = [one for one in calls if one.price is not None]
    usd = sum(one.outline.tokens * one.scale * (one.price or 0.0) for one in priced)
    return Plan(
        provider,
        len(calls),
        sum(one.outline.tokens * one.scale for one in calls),
        usd if priced else None,
        tuple(sorted(ways, key=_order)),
        _models(calls, provider),
        len(ways) > 1,
        len(calls) - len(priced),
    )


def _order(way: Way) -> tuple[int, bool, bool]:
    return round(way.cost), way.name != AUTO, way.name == NONE


def _models(calls: Sequence[Asked], provider: str) -> tuple[Models, ...]:
    """In the order in which they were first asked. Caches are each model's own."""
    found: dict[Rates, list[Asked]] = {}
    for asked in calls:
        found.setdefault(_rates(rules_for(provider, asked.outline.model)), []).append(asked)
    return tuple(
        Models(tuple(dict.fromkeys(one.outline.model for one in own)), rates,
               _lifetimes(own, rates))
        for rates, own in found.items()
    )  # fmt: skip


def _rates(rules: CacheRules) -> Rates:
    return Rates(rules.read, rules.ttls)


Marker = Callable[[Asked, CacheRules], Outline]


def _ways(calls: Sequence[Asked], provider: str) -> list[tuple[str, Marker]]:
    takes = any(rules_for(provider, one.outline.model).max_marks for one in calls)
    found: list[tuple[str, Marker]] = [(NONE, lambda asked, rules: _bare(asked.outline))]
    if not takes:
        return found
    if any(one.outline.marks for one in calls):
        found.append(("the breakpoints that were sent", lambda asked, rules: asked.outline))
    found += [
        (SYSTEM, _system_only),
        *((name, _Ours(policy)) for name, policy in _POLICIES),
    ]
    if provider != "openai":
        found.append(
            ("automatic mode alone",
             lambda asked, rules: _bare(asked.outline)._replace(automatic=Mark()))
        )  # fmt: skip
    return found


_POLICIES: Final = (
    (AUTO, PrefixPolicy()),
    (SHORTER, PrefixPolicy(ttl="5m")),
    (LONGER, PrefixPolicy(ttl="1h")),
)


def _bare(outline: Outline) -> Outline:
    parts = tuple(part._replace(mark=None) for part in outline.parts)
    return outline._replace(parts=parts, automatic=None, mode="", ttl="")


def _system_only(asked: Asked, rules: CacheRules) -> Outline:
    outline = _bare(asked.outline)
    at = level_end(outline.parts, Level.SYSTEM)
    if not rules.max_marks:
        return outline
    made = outline if at < 0 else as_sent(outline, [Marked(outline.parts[at].place)])
    return made._replace(mode=EXPLICIT) if rules.provider == "openai" else made


class _Ours:
    """Placement, from no knowledge on."""

    def __init__(self, policy: PrefixPolicy) -> None:
        self._policy = policy
        self._stability = Stability()

    def __call__(self, asked: Asked, rules: CacheRules) -> Outline:
        outline = _bare(asked.outline)
        prompt = prompt_of(asked.tenant, asked.route, outline, asked.at)
        seen = self._stability.view(prompt)
        marks = place_breakpoints(outline, rules, seen, self._policy, asked.at)
        self._stability.see(prompt, rules, marks)
        return as_sent(outline, marks)


def _played(calls: Sequence[Asked], provider: str, name: str, marker: Marker) -> Way:
    cache, way = make_cache(provider), Way(name)
    for asked in calls:
        rules = rules_for(provider, asked.outline.model)
        outline = marker(asked, rules)
        billed = cache.ask(asked.tenant, outline, asked.at)
        paid = way.paid.setdefault(_rates(rules), Paid())
        before = paid.cost
        if isinstance(billed, Refused):
            way.refused += 1
            paid.uncached += _pay(paid, outline.tokens * asked.scale, 1.0)
        else:
            _pay_all(paid, billed, asked.scale, rules)
            way.places.update(_places(outline.parts))
        way.usd += (paid.cost - before) * (asked.price or 0.0)
    return way


def _pay_all(paid: Paid, billed: Billed, scale: float, rules: CacheRules) -> None:
    paid.uncached += _pay(paid, billed.uncached * scale, 1.0)
    paid.read += _pay(paid, billed.read * scale, rules.read)
    writes = {ttl.name: ttl.write for ttl in rules.ttls}
    for ttl, tokens in billed.writes:
        written = _pay(paid, tokens * scale, writes[ttl])
        paid.written[ttl] = paid.written.get(ttl, 0.0) + written


def _pay(paid: Paid, tokens: float, weight: float) -> float:
    paid.cost += tokens * weight
    return tokens


def _places(parts: Sequence[Part]) -> list[str]:
    """What each breakpoint stands at the end of."""
    tip = last_asked(parts)
    ends = {
        level_end(parts, Level.TOOLS): "tools",
        level_end(parts, Level.SYSTEM): "system",
        tip: "the prompt",
    }
    marked = [at for at, part in enumerate(parts) if part.mark is not None]
    names = {Level.TOOLS: "a tool", Level.SYSTEM: "a system block", Level.MESSAGES: "the history"}
    return [ends.get(at, names[parts[at].level]) for at in marked]


def _lifetimes(calls: Sequence[Asked], rates: Rates) -> tuple[Break, ...]:
    turns, system = _gaps(calls)
    return tuple(
        Break(
            ttl.name,
            ttl.seconds,
            ttl.write,
            _first_cheaper(ttl.write, rates.read),
            least_share(ttl.write, rates.read),
            _share(turns, ttl.seconds),
            _share(system, ttl.seconds),
        )
        for ttl in rates.ttls
    )


def _first_cheaper(write: float, read: float) -> int | None:
    """The first n with write + (n - 1) * read < n."""
    if read >= 1:
        return 1 if write < 1 else None
    return next(n for n in count(1) if write + (n - 1) * read < n)


def _gaps(calls: Sequence[Asked]) -> tuple[list[float], list[float]]:
    """After how long prompts were continued, and system prompts came again; `inf` for never."""
    turns: list[float] = []
    system: list[float] = []
    open_tips: dict[bytes, float] = {}
    last: dict[bytes, float] = {}
    for asked in calls:
        parts = asked.outline.parts
        links = prompt_of(asked.tenant, asked.route, asked.outline, asked.at).chain
        names = [asked.tenant.encode() + link for link in links]
        closed = next((name for name in reversed(names) if name in open_tips), None)
        if closed is not None:
            turns.append(asked.at - open_tips.pop(closed))
        shared = max(level_end(parts, Level.SYSTEM), level_end(parts, Level.TOOLS))
        if shared >= 0:
            before = last.get(names[shared])
            system += [inf if before is None else asked.at - before]
            last[names[shared]] = asked.at
        tip = last_asked(parts)
        if tip >= 0:
            open_tips[names[tip]] = asked.at
    turns += [inf] * len(open_tips)
    return turns, system


def _share(gaps: Sequence[float], seconds: float) -> float | None:
    return sum(gap <= seconds for gap in gaps) / len(gaps) if len(gaps) >= _ENOUGH else None
