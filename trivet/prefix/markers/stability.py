"""What earlier requests of a tenant and route showed: which prefixes came again, how soon, and
which of them the provider should have. Digests and times, never text.

Only ends are kept that matter: of each tool and system block, of each prompt, and of each part
that was marked. What the provider has is believed, not known: requests fail, entries go early, and
other proxies write too. So placement uses it to choose, and never relies on it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from trivet.canonical import digest
from trivet.prefix.backends.base import Marked
from trivet.prefix.markers.gaps import Habit
from trivet.prefix.markers.rules import CacheRules
from trivet.prefix.prompts.outline import Level, Outline, Part, chain

_ENDS: Final = 16_384
_ROUTES: Final = 512
_GAPS: Final = 64
_OPEN: Final = 128
_FORGOTTEN: Final = 3600.0
"""Seconds after which a prompt that goes out of sight counts as one that was not continued."""


class Sight(NamedTuple):
    """A prefix that came before. Times in the seconds of whoever asks."""

    times: int
    last: float
    expires: float = -inf
    """Until when the provider should have it."""
    lasts: float = 0.0
    """For how long it was written, and is renewed by a read."""


class Prompt(NamedTuple):
    """One request, as this module looks at it."""

    owner: bytes
    """Digest of the tenant and the route: no other tenant's prompts are seen."""
    outline: Outline
    chain: tuple[bytes, ...]
    now: float


def prompt_of(tenant: str, route: str, outline: Outline, now: float) -> Prompt:
    """`route` names the upstream, and the application where the caller does."""
    owner = digest(tenant.encode("utf-8", "surrogatepass"), route.encode("utf-8", "surrogatepass"))
    return Prompt(owner, outline, chain(outline), now)


class Seen(NamedTuple):
    """What placement is told of earlier requests."""

    sights: tuple[Sight | None, ...] = ()
    """For each part, the prefix up to its end; None where it was not seen, or was not kept."""
    turns: Habit = Habit()
    """How soon prompts of this kind were continued."""
    tools: Habit = Habit()
    """How soon the whole of the tools came again."""
    system: Habit = Habit()
    """How soon the tools and the whole system prompt came again."""
    history: Habit = Habit()
    """How soon all up to the turn before the newest came again."""

    def at(self, index: int) -> Sight | None:
        """What was seen of the prefix that ends with that part."""
        return self.sights[index] if index < len(self.sights) else None


NOTHING_SEEN: Final = Seen()


def last_asked(parts: Sequence[Part]) -> int:
    """Index of the last part that the caller wrote: what the model began to say before it is not
    continued as it is. -1 for none."""
    return next((at for at in range(len(parts) - 1, -1, -1) if parts[at].role != "assistant"), -1)


def turn_before(parts: Sequence[Part]) -> int:
    """Index of the last part of the request before this one, where this one goes on from it: the
    end of what stands before the model's last answer. -1 where there is no such turn."""
    at = last_asked(parts)
    while at >= 0 and parts[at].level is Level.MESSAGES and parts[at].role != "assistant":
        at -= 1
    while at >= 0 and parts[at].level is Level.MESSAGES and parts[at].role == "assistant":
        at -= 1
    return at if at >= 0 and parts[at].level is Level.MESSAGES else -1


def level_end(parts: Sequence[Part], level: Level) -> int:
    """Index of the last part of a level; -1 for none. Levels stand in their order."""
    if level is Level.MESSAGES:
        return len(parts) - 1 if parts and parts[-1].level is level else -1
    end = -1
    for at, part in enumerate(parts):
        if part.level is level:
            end = at
        elif end >= 0 or part.level is Level.MESSAGES:
            break
    return end


def _gaps() -> deque[float]:
    return deque(maxlen=_GAPS)


@dataclass(slots=True)
class _Habits:
    """Of prompts of one kind."""

    turns: deque[float] = field(default_factory=_gaps)
    open: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    """When prompts came that were not continued yet."""
    tools: deque[float] = field(default_factory=_gaps)
    system: deque[float] = field(default_factory=_gaps)
    history: deque[float] = field(default_factory=_gaps)
    requests: int = 0

    def of_turns(self, keys: Sequence[bytes], now: float) -> Habit:
        """How soon prompts are continued. One that this prompt continues has just come."""
        waits = dict(self.open)
        came = [now - waits.pop(key) for key in keys if key in waits]
        return Habit((*self.turns, *came[-1:]), tuple(now - began for began in waits.values()))

    def close(self, end: bytes, now: float) -> bool:
        """Whether a prompt that ended there was open; it was continued."""
        began = self.open.pop(end, None)
        if began is not None:
            self.turns.append(max(0.0, now - began))
        return began is not None

    def begin(self, end: bytes, now: float) -> None:
        """A prompt that may be continued."""
        self.open[end] = now
        if len(self.open) > _OPEN:
            _, began = self.open.popitem(last=False)
            if now - began > _FORGOTTEN:
                self.turns.append(inf)


class Stability:
    """Of one process. Bounded: the least recently seen goes first. For several threads."""

    def __init__(self, ends: int = _ENDS, routes: int = _ROUTES) -> None:
        self._most = ends
        self._most_routes = routes
        self._sights: OrderedDict[bytes, Sight] = OrderedDict()
        self._habits: OrderedDict[bytes, _Habits] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sights)

    def view(self, prompt: Prompt) -> Seen:
        """What earlier requests showed. Changes nothing."""
        with self._lock:
            keys = list(_keys(prompt))
            sights = tuple(self._sights.get(key) for key in keys)
            habits = self._habits.get(_kind(prompt))
            if habits is None:
                return Seen(sights)
            return Seen(
                sights,
                habits.of_turns(keys, prompt.now),
                Habit(tuple(habits.tools)),
                Habit(tuple(habits.system)),
                Habit(tuple(habits.history)),
            )

    def see(self, prompt: Prompt, rules: CacheRules, marks: Sequence[Marked] = ()) -> None:
        """The request goes upstream, marked so; the caller's own marks count beside them."""
        if not prompt.chain:
            return
        with self._lock:
            keys = list(_keys(prompt))
            habits = self._of_kind(prompt)
            self._observe(prompt, keys, habits)
            self._believe(prompt, keys, _written(prompt.outline, rules, marks))
            self._bound()

    def _of_kind(self, prompt: Prompt) -> _Habits:
        kind = _kind(prompt)
        habits = self._habits.setdefault(kind, _Habits())
        self._habits.move_to_end(kind)
        return habits

    def _observe(self, prompt: Prompt, keys: Sequence[bytes], habits: _Habits) -> None:
        parts, now = prompt.outline.parts, prompt.now
        for end, gaps in (
            (level_end(parts, Level.TOOLS), habits.tools),
            (level_end(parts, Level.SYSTEM), habits.system),
            (turn_before(parts), habits.history),
        ):
            if end >= 0 and habits.requests:
                sight = self._sights.get(keys[end])
                gaps.append(inf if sight is None else max(0.0, now - sight.last))
        for key in reversed(keys):
            if habits.close(key, now):
                break
        tip = last_asked(parts)
        if tip >= 0 and parts[tip].level is Level.MESSAGES:
            habits.begin(keys[tip], now)
        habits.requests += 1

    def _believe(
        self, prompt: Prompt, keys: Sequence[bytes], written: Sequence[tuple[int, float]]
    ) -> None:
        """What the provider has from now on, and that all of it was seen."""
        parts, now, sights = prompt.outline.parts, prompt.now, self._sights
        hit = alive(tuple(sights.get(key) for key in keys), now)
        lasts = dict(written)
        kept = {at for at, part in enumerate(parts) if part.level is not Level.MESSAGES}
        kept |= {last_asked(parts), turn_before(parts), *lasts} - {-1}
        kept |= {at for at, key in enumerate(keys) if key in sights}
        read = sights.get(keys[hit]) if hit >= 0 else None
        for at in sorted(kept):
            old = sights.pop(keys[at], Sight(0, now))
            expires, seconds = old.expires, old.lasts
            if at <= hit and expires > now:
                expires = max(expires, now + seconds)
            elif at < hit and read is not None and at in lasts:
                expires, seconds = max(read.expires, now + read.lasts), read.lasts
            elif at in lasts:
                expires, seconds = now + lasts[at], lasts[at]
            sights[keys[at]] = Sight(old.times + 1, now, expires, seconds)

    def _bound(self) -> None:
        while len(self._sights) > self._most:
            self._sights.popitem(last=False)
        while len(self._habits) > self._most_routes:
            self._habits.popitem(last=False)


def alive(sights: Sequence[Sight | None], now: float, lasts: float = 0.0) -> int:
    """Index of the last prefix that the provider should have, of those that were written for at
    least so many seconds; -1 for none."""
    for at in range(len(sights) - 1, -1, -1):
        sight = sights[at]
        if sight is not None and sight.expires > now and sight.lasts >= lasts:
            return at
    return -1


def _keys(prompt: Prompt) -> Iterator[bytes]:
    owner = prompt.owner[:8]
    return (owner + link[:12] for link in prompt.chain)


def _kind(prompt: Prompt) -> bytes:
    """Prompts of one kind have habits in common: the same model and as many tools and system
    blocks. By numbers and not by content, so that what varies is noticed as varying."""
    parts = prompt.outline.parts
    counts = [sum(part.level is level for part in parts) for level in (Level.TOOLS, Level.SYSTEM)]
    model = prompt.outline.model.encode("utf-8", "surrogatepass")
    return digest(prompt.owner, model, str(counts).encode())


def _written(
    outline: Outline, rules: CacheRules, marks: Sequence[Marked]
) -> list[tuple[int, float]]:
    """Where the request writes, and for how many seconds."""
    places = {part.place: at for at, part in enumerate(outline.parts)}
    asked = [(places[mark.place], mark.ttl) for mark in marks if mark.place in places]
    asked += [(at, part.mark.ttl) for at, part in enumerate(outline.parts) if part.mark is not None]
    last = len(outline.parts) - 1
    if outline.automatic is not None:
        asked.append((last, outline.automatic.ttl))
    elif rules.explicit and rules.automatic and outline.mode != "explicit":
        asked.append((last, outline.ttl))
    sizes = _sizes(outline)
    found = ((at, rules.ttl(name)) for at, name in asked if sizes[at] >= rules.min_tokens)
    return [(at, float(ttl.seconds)) for at, ttl in found if ttl is not None]


def _sizes(outline: Outline) -> list[int]:
    total, made = 0, []
    for part in outline.parts:
        total += part.tokens
        made.append(total)
    return made
