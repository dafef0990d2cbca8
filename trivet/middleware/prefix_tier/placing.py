"""Chooses the breakpoints of a call by what earlier calls of its tenant and route showed."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from trivet.middleware.prefix_tier.asks import Asked
from trivet.prefix.backends.base import Marked, PrefixBackend, Prepared
from trivet.prefix.markers.gaps import Habit
from trivet.prefix.markers.placement import place_breakpoints
from trivet.prefix.markers.rules import NOTHING, CacheRules, rules_for
from trivet.prefix.markers.stability import NOTHING_SEEN, Prompt, Seen, Stability, prompt_of
from trivet.prefix.prompts.outline import Level, Outline


class Placed(NamedTuple):
    """What was chosen for one call."""

    marks: tuple[Marked, ...] = ()
    prompt: Prompt | None = None
    """None where the cache takes no breakpoints."""
    rules: CacheRules = NOTHING
    seen: Seen = NOTHING_SEEN

    def at(self) -> list[int]:
        """Indexes of the parts that have a breakpoint."""
        places = {mark.place for mark in self.marks}
        parts = () if self.prompt is None else self.prompt.outline.parts
        return [index for index, part in enumerate(parts) if part.place in places]

    def keys(self) -> tuple[list[bytes], list[bytes]]:
        """What names the prefixes that end at a breakpoint, and those of them that are new; of one
        tenant at one upstream."""
        if self.prompt is None:
            return [], []
        owner, links, now = self.prompt.owner, self.prompt.chain, self.prompt.now
        found = [(owner + links[at], self.seen.at(at)) for at in self.at()]
        new = [key for key, sight in found if sight is None or sight.expires <= now]
        return [key for key, _ in found], new

    def path(self) -> list[bytes]:
        """What names every prefix of the prompt."""
        prompt = self.prompt
        return [] if prompt is None else [prompt.owner + link for link in prompt.chain]

    def sizes(self) -> tuple[int, int]:
        """Tokens up to the last breakpoint, and behind it."""
        at = self.at()
        if self.prompt is None or not at:
            return 0, 0
        ends = list(accumulate(part.tokens for part in self.prompt.outline.parts))
        return ends[at[-1]], ends[-1] - ends[at[-1]]


NOWHERE = Placed()


class Placing:
    """Of one process. For several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stability = Stability()

    def choose(self, asked: Asked, outline: Outline, backend: PrefixBackend) -> Placed:
        """The breakpoints for a call, within the rules of the cache and the policy."""
        if not backend.takes_marks:
            return NOWHERE
        rules = rules_for(backend.kind, asked.model)
        if not rules.max_marks or not outline.parts or outline.cut:
            return NOWHERE
        now = self._clock()
        route = f"{asked.upstream.name}\n{asked.route}\n{asked.policy.epoch}"
        prompt = prompt_of(asked.tenant, route, outline, now)
        seen = self._stability.view(prompt)
        marks = place_breakpoints(outline, rules, seen, asked.policy, now)
        return Placed(marks, prompt, rules, seen)

    def sent(self, placed: Placed, prepared: Prepared) -> Placed:
        """The call goes upstream so. Where the backend set none, none are believed to be there."""
        prompt = placed.prompt
        if prompt is None:
            return placed
        made = placed if prepared.marks else placed._replace(marks=())
        self._stability.see(prompt, made.rules, made.marks)
        return made

    def habit(self, placed: Placed, now: float) -> Habit:
        """How soon the prefix up to the last breakpoint is asked for again, as known by now."""
        at = placed.at()
        if placed.prompt is None or not at:
            return Habit()
        seen = self._stability.view(placed.prompt._replace(chain=(), now=now))
        level = placed.prompt.outline.parts[at[-1]].level
        return {Level.TOOLS: seen.tools, Level.SYSTEM: seen.system}.get(level, seen.turns)
