"""Where breakpoints go, and for how long what they write is kept.

A breakpoint costs nothing where the prefix up to it is in the cache, and writes what is new. So
those that may be read again are set at once: the end of the tools, of the system prompt, of the
turn before, and of the whole prompt. What was seen of earlier requests takes away the ends that
hardly come again (a clock in the system prompt, questions that nobody continues), and says for
which lifetime. A prefix that the provider should have is always within reach of a breakpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import Final

from trivet.messages import Api
from trivet.policies.prefix_model import MarkPlace, PrefixPolicy
from trivet.prefix.backends.base import Marked
from trivet.prefix.caches.openai import EXPLICIT
from trivet.prefix.caches.steps import plain
from trivet.prefix.markers.gaps import (
    AGENT,
    CHAT,
    SHARED,
    SINGLE,
    Growth,
    Guess,
    Habit,
    cheapest,
    for_turn,
)
from trivet.prefix.markers.rules import CacheRules, Ttl
from trivet.prefix.markers.stability import Seen, alive, last_asked, level_end, turn_before
from trivet.prefix.prompts.outline import Level, Mark, Outline, Part, Place

_BLOCKS: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})
"""Blocks of Anthropic's and Bedrock's messages that take a breakpoint; no thinking."""
_OPENAI_PARTS: Final = frozenset({"text", "image", "audio", "document"})
_BLOCK: Final = 4
"""Steps to a block of a message: `messages[3].content[0]`."""
_MESSAGE: Final = 2
_SHORT: Final = 200
"""Bytes beyond which a text is not empty."""
_MESSAGE_ENDS: Final = 20
"""Earlier ends of messages at which OpenAI looks by itself."""


def place_breakpoints(
    outline: Outline, rules: CacheRules, seen: Seen, policy: PrefixPolicy, now: float
) -> tuple[Marked, ...]:
    """The breakpoints to add, in the order of the prompt, within the rules. `now` and the times in
    `seen` are of one clock. None where the caller set any, or said that there shall be none."""
    off = not policy.enabled or policy.mark == "never" or not (rules.max_marks and rules.ttls)
    if off or outline.marks or outline.mode == EXPLICIT or not outline.parts:
        return ()
    plan = _Plan(outline, rules, seen, _lifetimes(outline, rules, policy), now)
    implicit = rules.provider == "openai"
    if isinstance(policy.mark, tuple):
        _pinned(plan, policy.mark)
    elif implicit:
        _beside_implicit(plan)
    else:
        _all_ends(plan)
    return plan.chosen(rules.max_marks - implicit)


def as_sent(outline: Outline, marks: Sequence[Marked]) -> Outline:
    """The outline of the request with these breakpoints added, as a backend writes it: a message
    that is a string is sent as a list of one block."""
    named = {mark.place: Mark(mark.ttl) for mark in marks}
    parts = tuple(
        part._replace(mark=named[part.place], place=_block_of(part.place))
        if part.place in named
        else part
        for part in outline.parts
    )
    return outline._replace(parts=parts)


def _block_of(place: Place) -> Place:
    whole = len(place) == _MESSAGE and place[0] in ("messages", "input")
    return (*place, "content", 0) if whole else place


def _lifetimes(outline: Outline, rules: CacheRules, policy: PrefixPolicy) -> tuple[Ttl, ...]:
    """Those to choose from, the shortest first."""
    offered = sorted(rules.ttls, key=lambda ttl: ttl.seconds)
    if rules.provider == "openai" and outline.api is not Api.RESPONSES:
        offered = offered[:1]
    if policy.ttl == "auto":
        return tuple(offered)
    named = [ttl for ttl in offered if ttl.name == policy.ttl]
    # A provider with other lifetimes: its longer one for an hour, its shorter one for 5 minutes.
    return tuple(named or (offered[-1:] if policy.ttl == "1h" else offered[:1]))


class _Plan:
    """The breakpoints of one prompt while they are being chosen, the most wanted first."""

    def __init__(
        self, outline: Outline, rules: CacheRules, seen: Seen, ttls: tuple[Ttl, ...], now: float
    ) -> None:
        self.rules, self.seen, self.ttls, self.now = rules, seen, ttls, now
        self.parts = outline.parts
        self.ends = list(accumulate(part.tokens for part in self.parts))
        self.hit = alive(seen.sights, now)
        """Index of the longest prefix that the provider should have; -1 for none."""
        self.anchor = alive(seen.sights, now, ttls[-1].seconds) if len(ttls) > 1 else -1
        """The longest of those that are kept for the longer lifetime."""
        self._marks: dict[int, Ttl] = {}

    def end(self, at: int) -> int:
        """Index of the last part of the same level, up to that one, that takes a breakpoint; -1."""
        if at < 0:
            return -1
        level = self.parts[at].level
        while at >= 0 and self.parts[at].level is level:
            if _markable(self.parts[at], self.rules):
                return at
            at -= 1
        return -1

    def tokens(self, at: int) -> int:
        """Tokens of the prefix that ends with that part."""
        return self.ends[at] if at >= 0 else 0

    def want(self, at: int, ttl: Ttl | None) -> None:
        """A breakpoint there, unless there is one, or none could be."""
        if at >= 0 and ttl is not None and self.tokens(at) >= self.rules.min_tokens:
            self._marks.setdefault(at, ttl)

    def reach(self, at: int) -> None:
        """One there too, unless one that is wanted already looks that far."""
        if at < 0 or any(at <= mark < at + self.rules.lookback for mark in self._marks):
            return
        self.want(self.end(at), self.written_for(at))

    def written_for(self, at: int) -> Ttl:
        """The lifetime under which a prefix was written."""
        sight = self.seen.at(at)
        lasts = sight.lasts if sight is not None else 0.0
        return next((ttl for ttl in self.ttls if ttl.seconds >= lasts), self.ttls[-1])

    def chosen(self, room: int) -> tuple[Marked, ...]:
        """The first `room` of them, no shorter lifetime before a longer one."""
        kept = sorted(list(self._marks.items())[:room], reverse=True)
        found, longest = [], self.ttls[0]
        for at, ttl in kept:
            longest = max(longest, ttl, key=lambda one: one.seconds)
            name = "" if longest == self.rules.ttls[0] else longest.name
            found.append(Marked(self.parts[at].place, name))
        return tuple(reversed(found))


def _all_ends(plan: _Plan) -> None:
    """For caches that hold what breakpoints ask for, and nothing else."""
    seen, parts = plan.seen, plan.parts
    tip = plan.end(last_asked(parts))
    ttl = _of_turn(plan, tip)
    if ttl is not None:
        plan.want(tip, ttl)
    before = plan.end(turn_before(parts))
    if ttl is None and _comes_again(seen.history):
        plan.want(before, cheapest(seen.history, SHARED, plan.ttls, plan.rules.read))
    plan.reach(plan.hit)
    _shared(plan, Level.SYSTEM, seen.system)
    plan.want(plan.anchor, plan.ttls[-1])
    plan.want(before if ttl is not None else -1, ttl)
    _shared(plan, Level.TOOLS, seen.tools)


def _of_turn(plan: _Plan, tip: int) -> Ttl | None:
    if tip < 0 or plan.parts[tip].level is not Level.MESSAGES:
        return None
    if tip == plan.hit:
        return plan.written_for(tip)
    size = plan.tokens(tip)
    growth = Growth(size - plan.tokens(plan.hit), size - plan.tokens(plan.anchor))
    return for_turn(
        plan.seen.turns, _guess(plan.parts), plan.ttls, plan.rules.read, growth
    )  # fmt: skip


def _guess(parts: Sequence[Part]) -> Guess:
    """By the shape of a prompt, where nothing was seen of its kind."""
    if parts[0].level is Level.TOOLS:
        return AGENT
    turns = any(part.role == "assistant" for part in parts)
    return CHAT if turns else SINGLE


def _comes_again(habit: Habit) -> bool:
    """Whether it was ever seen to."""
    return any(gap < inf for gap in habit.came)


def _shared(plan: _Plan, level: Level, habit: Habit) -> None:
    """The end of a level that other conversations have too, or of what of it stays the same."""
    last = level_end(plan.parts, level)
    steady = _steady(plan, level)
    varies = steady != last and not _comes_again(habit) and (steady >= 0 or len(habit.came) > 0)
    if not varies:
        plan.want(plan.end(last), cheapest(habit, SHARED, plan.ttls, plan.rules.read))
    sight = plan.seen.at(steady) if steady >= 0 else None
    if sight is not None:
        gap = plan.now - sight.last
        ttls = [ttl for ttl in plan.ttls if ttl.seconds > gap]
        plan.want(plan.end(steady), cheapest(Habit((gap,)), SHARED, ttls, plan.rules.read))


def _steady(plan: _Plan, level: Level) -> int:
    """Index of the last part of the level up to which all was seen before; -1 for none."""
    for at in range(level_end(plan.parts, level), -1, -1):
        if plan.parts[at].level is not level:
            return -1
        if plan.seen.at(at) is not None:
            return at
    return -1


def _beside_implicit(plan: _Plan) -> None:
    """For OpenAI from gpt-5.6 on, which writes and looks at ends of messages by itself: the end of
    the system prompt, which it does not write, and what lies further back than it looks."""
    _shared(plan, Level.SYSTEM, plan.seen.system)
    if plan.hit >= 0:
        later = {part.place[:_MESSAGE] for part in plan.parts[plan.hit + 1 :]}
        if len(later) > _MESSAGE_ENDS:
            plan.want(plan.end(plan.hit), plan.written_for(plan.hit))


def _pinned(plan: _Plan, names: Iterable[MarkPlace]) -> None:
    """What the policy names, and nothing else."""
    parts = plan.parts
    newest = len(parts)
    while newest and parts[newest - 1].place[:_MESSAGE] == parts[-1].place[:_MESSAGE]:
        newest -= 1
    places: dict[MarkPlace, int] = {
        "tools": level_end(parts, Level.TOOLS),
        "system": level_end(parts, Level.SYSTEM),
        "history": newest - 1 if parts[newest - 1].level is Level.MESSAGES else -1,
        "last": level_end(parts, Level.MESSAGES),
    }
    growing = ("history", "last")
    for name in dict.fromkeys(names):
        end = plan.end(places[name])
        habit = {"tools": plan.seen.tools, "system": plan.seen.system}.get(name)
        found = (
            _of_turn(plan, end)
            if name in growing
            else cheapest(habit or Habit(), SHARED, plan.ttls, plan.rules.read)
        )
        plan.want(end, found or plan.ttls[0])


def _markable(part: Part, rules: CacheRules) -> bool:
    """Whether the provider takes a breakpoint at that part."""
    if rules.provider == "openai":
        # A string is made a list of one part on the way.
        typed = part.kind in _OPENAI_PARTS and part.role in ("system", "developer", "user")
        return typed and part.place[0] in ("messages", "input") and not _is_empty(part)
    if part.level is Level.TOOLS:
        return "nova" not in rules.model and b'"defer_loading":true' not in part.content
    if part.kind not in _BLOCKS or _is_empty(part):
        return False
    if part.level is Level.SYSTEM:
        return True
    placed = len(part.place) == _BLOCK or (len(part.place) == _MESSAGE and part.kind == "text")
    return placed and part.role in ("user", "assistant", "tool")


def _is_empty(part: Part) -> bool:
    return part.kind == "text" and len(part.content) < _SHORT and plain(part) == b"t"
