"""When a cached prefix pays: by how soon it is asked for again, and what writes and reads cost.

Everything is in multiples of the price of an uncached input token, as in `rules.json`: at
Anthropic 1.25 for a write that lasts 5 minutes, 2 for one that lasts an hour, 0.1 for a read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from trivet.prefix.markers.rules import Ttl

_FIVE_MINUTES: Final = 300.0
_HOUR: Final = 3600.0
_WEIGHT: Final = 2
"""Observations that a guess by the shape of a prompt is worth."""
_ENOUGH: Final = 4
"""Observations before anything is paid for a request that nobody has made yet."""
_MOST_PINGS: Final = 12


class Guess(NamedTuple):
    """Shares of prompts that are asked for again, for want of observations."""

    soon: float
    """Within 5 minutes."""
    later: float
    """Within an hour."""

    def within(self, seconds: float) -> float:
        """Between the two it rises evenly."""
        part = (seconds - _FIVE_MINUTES) / (_HOUR - _FIVE_MINUTES)
        return self.soon + (self.later - self.soon) * min(1.0, max(0.0, part))


AGENT: Final = Guess(0.92, 0.96)
"""Tools are declared: the result of a call comes back as the next request."""
CHAT: Final = Guess(0.6, 0.7)
"""Several turns, no tools: a person types."""
SINGLE: Final = Guess(0.05, 0.07)
"""One question."""
SHARED: Final = Guess(0.6, 0.65)
"""The tools, or the system prompt, for the next conversation."""


class Habit(NamedTuple):
    """How soon prompts were asked for again. Seconds."""

    came: tuple[float, ...] = ()
    """After how long; `inf` where nothing came."""
    waiting: tuple[float, ...] = ()
    """How old those are that nothing has come for yet."""

    def within(self, seconds: float, guess: Guess) -> float:
        """The share that is asked for again within so many seconds, 0 to 1.

        In two steps, so that what is still waiting counts against each lifetime that it has begun:
        the share within 5 minutes, and of those that are later, the share within `seconds`.
        """
        first = min(seconds, _FIVE_MINUTES)
        soon = self._share(0.0, first, guess.within(first))
        if seconds <= first:
            return soon
        rest = 1 - guess.soon
        later = (guess.within(seconds) - guess.soon) / rest if rest else 0.0
        return soon + (1 - soon) * self._share(first, seconds, later)

    def _share(self, start: float, end: float, guess: float) -> float:
        """Of those that had not come at `start`, how many came until `end`."""
        came = sum(start < gap <= end or (not start and not gap) for gap in self.came)
        late = max(start, _FIVE_MINUTES)
        seen = sum(gap > start or not start for gap in self.came)
        seen += sum(age > late for age in self.waiting)
        return (_WEIGHT * guess + came) / (_WEIGHT + seen)


def least_share(write: float, read: float) -> float:
    """From which share of reuse on a write now is cheaper than none now and one next time:
    write + share * read < 1 + share * write. 0.22 for 5 minutes at Anthropic, 0.53 for an hour."""
    if write <= 1:
        return 0.0
    return (write - 1) / (write - read) if write > read else math.inf


def cheapest(habit: Habit, guess: Guess, ttls: Sequence[Ttl], read: float) -> Ttl | None:
    """The lifetime at which a prefix that does not grow costs least in the long run; None where
    that is none. One use costs share * read + (1 - share) * write."""
    best, least = None, 1.0
    for ttl in ttls:
        cost = use_cost(habit.within(ttl.seconds, guess), ttl, read)
        if cost < least or (ttl.write <= 1 and best is None):
            best, least = ttl, cost
    return best


def use_cost(share: float, ttl: Ttl, read: float) -> float:
    """What one use of a prefix costs, times its uncached price: a share of them are reads."""
    return share * read + (1 - share) * ttl.write


class Growth(NamedTuple):
    """A conversation at its newest request. Tokens."""

    new: int
    """Behind what can be read."""
    exposed: int
    """Behind what is kept for the longer lifetime: lost in a gap longer than the shorter one."""


def for_turn(
    habit: Habit, guess: Guess, ttls: Sequence[Ttl], read: float, growth: Growth
) -> Ttl | None:
    """The lifetime for the end of a prompt that may go on; None where it hardly does.

    A write for the longer lifetime costs more for the new tokens only, and covers all before them
    too. So most turns are written for the shorter one, and now and then one for the longer. With a
    share q of gaps between the two lifetimes it is due as soon as
    exposed * (exposed + new) * q * (short.write - read) >= 2 * (long.write - short.write) * new^2,
    which is where the sum of what is paid for it and what gaps lose is least (as for the best
    size of a lot in stock keeping).
    """
    pays = [
        ttl
        for ttl in sorted(ttls, key=lambda one: one.seconds)
        if habit.within(ttl.seconds, guess) > least_share(ttl.write, read) or ttl.write <= 1
    ]
    if not pays:
        return None
    short, long = pays[0], pays[-1]
    q = habit.within(long.seconds, guess) - habit.within(short.seconds, guess)
    lost = growth.exposed * (growth.exposed + growth.new) * q * (short.write - read)
    return long if lost > 2 * (long.write - short.write) * growth.new**2 else short


class Warming(NamedTuple):
    """What is to be expected of keeping a prefix warm, times the price of its tokens uncached."""

    pings: int
    """How many at most, one for each lifetime; 0: it does not pay."""
    cost: float
    saved: float


def warming(habit: Habit, idle: float, ttl: Ttl, read: float) -> Warming:
    """What pings pay for a prefix that was last asked for `idle` seconds ago.

    Each ping is a read, and lasts for one lifetime more; whoever comes then reads in place of
    writing. Who has come later than `idle` before is the measure. Nothing is guessed here.
    """
    later = [gap for gap in habit.came if gap > idle]
    later += [math.inf for age in habit.waiting if age > idle]
    best = Warming(0, 0.0, 0.0)
    if len(habit.came) < _ENOUGH or not later:
        return best
    cost = 0.0
    for pings in range(1, _MOST_PINGS + 1):
        start, end = idle + (pings - 1) * ttl.seconds, idle + pings * ttl.seconds
        cost += read * sum(gap > start for gap in later) / len(later)
        saved = (ttl.write - read) * sum(gap < end for gap in later) / len(later)
        if saved - cost > best.saved - best.cost:
            best = Warming(pings, cost, saved)
    return best
