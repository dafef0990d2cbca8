"""What a model call cost and what each tier saved: pure arithmetic, in US dollars.

Each dollar is booked once. A hit of a response cache costs nothing upstream and saves what its
stored answer cost; a prefix read is part of a call that was paid, and saves the input price less
the read price; what a write costs over plain input stands against that, apart, so that each sum
only grows. A call that a cache makes for its own ends is the cache's cost, not the tenant's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from trivet.messages import Usage
from trivet.prefix.caches.base import Billed
from trivet.prefix.markers.rules import CacheRules

Purpose = Literal["request", "audit", "judge", "keep-warm", "warm"]
"""Why a model was asked: for a caller, or for an end of the cache's own."""
Post = Literal[
    "spent",
    "saved-exact",
    "saved-semantic",
    "saved-prefix",
    "prefix-writes",
    "audit",
    "judge",
    "keep-warm",
    "warm",
    "lookup",
]
"""What a sum of money is booked under. Saved are the three that begin so, before the cache's own
costs, which are the last six; `spent` is what callers' own calls cost, cache writes included."""
SAVED: tuple[Post, ...] = ("saved-exact", "saved-semantic", "saved-prefix")
EXTRA: tuple[Post, ...] = ("audit", "judge", "keep-warm", "warm", "lookup")
"""Costs that are in no call of a caller's: without the cache they would not be there."""


class Prices(NamedTuple):
    """US dollars for one token, `request` for one call."""

    input: float
    output: float
    read: float
    write: float
    write_long: float
    request: float = 0.0


class Cost(NamedTuple):
    """A call's cost by kind of token."""

    uncached: float
    read: float
    write: float
    """The longer lifetime included."""
    output: float
    request: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.uncached + self.read + self.write + self.output + self.request


class PrefixSaving(NamedTuple):
    """What the provider's prefix cache did to one call's price."""

    reads: float
    """Less than plain input, for what was read; below zero where reads cost more."""
    writes: float
    """More than plain input, for what was written; below zero where writes cost less."""

    @property
    def net(self) -> float:
        """Saved in all; below zero where caching cost more than it saved."""
        return self.reads - self.writes


def sound(usage: Usage) -> bool:
    """Whether the counts can be true: none below zero, and no part larger than its whole."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return (
        min(usage) >= 0
        and cached <= usage.input_tokens
        and usage.cache_write_long_tokens <= usage.cache_write_tokens
    )


def cost_of(usage: Usage, prices: Prices) -> Cost:
    """A call's cost. Cache reads and writes lie within the input: they are priced in its place.

    Raises `ValueError` for counts that cannot be true.
    """
    if not sound(usage):
        raise ValueError(f"counts that cannot be true: {usage}")
    read, long = usage.cache_read_tokens, usage.cache_write_long_tokens
    written = usage.cache_write_tokens
    return Cost(
        uncached=(usage.input_tokens - read - written) * prices.input,
        read=read * prices.read,
        write=(written - long) * prices.write + long * prices.write_long,
        output=usage.output_tokens * prices.output,
        request=prices.request,
    )


def prefix_saving(usage: Usage, prices: Prices) -> PrefixSaving:
    """What a paid call's reads saved, and what its writes cost extra."""
    long = usage.cache_write_long_tokens
    short = usage.cache_write_tokens - long
    return PrefixSaving(
        reads=usage.cache_read_tokens * (prices.input - prices.read),
        writes=short * (prices.write - prices.input) + long * (prices.write_long - prices.input),
    )


def book_hit(tier: Literal["exact", "semantic"], stored: float) -> dict[Post, float]:
    """A response cache answered: saved is the stored answer's cost, as it was paid. Nothing else
    is: what its prefix reads saved was booked when it was paid."""
    return {"saved-exact" if tier == "exact" else "saved-semantic": stored}


def book_call(purpose: Purpose, usage: Usage, prices: Prices) -> dict[Post, float]:
    """A model was asked. Raises `ValueError` for counts that cannot be true."""
    total = cost_of(usage, prices).total
    if purpose != "request":
        return {purpose: total}
    saving = prefix_saving(usage, prices)
    booked: dict[Post, float] = {"spent": total}
    if saving.reads > 0:
        booked["saved-prefix"] = saving.reads
    if saving.writes > 0:
        booked["prefix-writes"] = saving.writes
    return booked


def net_saved(sums: dict[Post, float]) -> float:
    """What the caches saved less what they cost."""
    saved = sum(sums.get(post, 0.0) for post in SAVED)
    return saved - sums.get("prefix-writes", 0.0) - sum(sums.get(post, 0.0) for post in EXTRA)


def without_caches(sums: dict[Post, float]) -> float:
    """What the callers' requests would have cost with no cache at all."""
    saved = sum(sums.get(post, 0.0) for post in SAVED)
    return sums.get("spent", 0.0) + saved - sums.get("prefix-writes", 0.0)


def prices_by_rules(rules: CacheRules, price_input: float, price_output: float) -> Prices:
    """Prices by the provider's multipliers; the longest lifetime is the long one."""
    default = rules.ttl("")
    longest = max(rules.ttls, key=lambda one: one.seconds, default=None)
    return Prices(
        input=price_input,
        output=price_output,
        read=price_input * rules.read,
        write=price_input * (default.write if default else 1.0),
        write_long=price_input * (longest.write if longest else 1.0),
    )


def bill(
    billed: Billed,
    price_input: float,
    price_output: float,
    output_tokens: int,
    rules: CacheRules,
) -> float:
    """US dollars of a request that a cache model billed; prices are for one token.

    A lifetime that the rules do not name costs what plain input does.
    """
    written = 0.0
    for name, tokens in billed.writes:
        ttl = rules.ttl(name)
        written += tokens * (ttl.write if ttl is not None else 1.0)
    inputs = billed.uncached + billed.read * rules.read + written
    return inputs * price_input + output_tokens * price_output
