"""What caching costs and saves, on paper: one pure function for each worked example.

Prices are in one currency for each million input tokens; `read` and `write` are multiples of that
price, as providers bill cache reads and writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trivet.policies.economics import Economics, margin

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an agent, whose prompt repeats most of the step before."""

    tokens: int = 40_000
    """The whole prompt."""
    unchanged: int = 34_000
    """Its first tokens, the same as in the step before."""
    price: float = 3.0
    read: float = 0.1
    write: float = 1.25

    def __post_init__(self) -> None:
        if not 0 <= self.unchanged <= self.tokens:
            raise ValueError(f"{self.unchanged} of {self.tokens} tokens cannot be unchanged")

    @property
    def plain(self) -> float:
        """Input cost of the step without prefix caching."""
        return self.tokens * self.price / MILLION

    @property
    def reads(self) -> float:
        """Input cost of the unchanged tokens, read from the cache."""
        return self.unchanged * self.price * self.read / MILLION

    @property
    def writes(self) -> float:
        """Input cost of the new tokens, written to the cache."""
        return (self.tokens - self.unchanged) * self.price * self.write / MILLION

    @property
    def cached(self) -> float:
        """Input cost of the step with prefix caching."""
        return self.reads + self.writes

    @property
    def saved(self) -> float:
        """Share of the plain cost; below zero where caching costs more."""
        return 1 - self.cached / self.plain if self.plain else 0.0


def break_even_request(write: float, read: float = 0.1) -> int | None:
    """Which request of one prefix makes caching cheaper than none; None: no request does.

    The first is written, all others are read, in time: write + (n - 1) * read < n.
    """
    if write < 1:
        return 1
    if read >= 1:
        return None
    # The last request that is not yet cheaper solves write + (n - 1) * read = n.
    return math.floor(round((write - read) / (1 - read), 9)) + 1


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bits: int = 16) -> int:
    """Bytes of keys and values that one token holds: 2 * layers * KV heads * dimension * width."""
    return 2 * layers * kv_heads * head_dim * bits // 8


def load_after_flush(absorbed: float) -> float:
    """How many times the usual load a model gets when the cache is empty: 1 / (1 - absorbed).

    `absorbed` is the share of requests that the cache answers. Raises `ValueError` outside [0, 1).
    """
    if not 0 <= absorbed < 1:
        raise ValueError(f"a cache absorbs a share from 0 to below 1, not {absorbed}")
    return 1 / (1 - absorbed)


@dataclass(frozen=True, slots=True)
class Worth:
    """h * c > l + h * f * w, with all of its parts."""

    hit_rate: float
    false_hit_rate: float
    costs: Economics

    @property
    def saved(self) -> float:
        """h * c, per request."""
        return self.hit_rate * self.costs.call_cost

    @property
    def risked(self) -> float:
        """l + h * f * w, per request."""
        return self.saved - self.margin

    @property
    def margin(self) -> float:
        """Saved minus risked, per request."""
        return margin(self.hit_rate, self.false_hit_rate, self.costs)

    @property
    def worth_it(self) -> bool:
        """Whether more is saved than risked."""
        return self.margin > 0

    @property
    def highest_false_hit_rate(self) -> float | None:
        """The false-hit rate at which it stops to pay; None: never, wrong answers being free.

        Negative where the lookups alone cost more than the hits save.
        """
        per_rate = self.hit_rate * self.costs.false_hit_cost
        return (self.saved - self.costs.lookup_cost) / per_rate if per_rate else None
