"""DeepSeek's cache on disk.

https://api-docs.deepseek.com/guides/kv_cache: prefixes are kept as whole units, and only a request
that matches a unit in full reads it. A unit ends where a request's input ended, where two requests
were seen to part, and at fixed intervals of long inputs. `user_id` keeps owners apart.

Three things are not published, or not to be seen here: the interval (8,192 tokens are taken), the
lifetime ("a few hours to a few days": `rules.json` takes four hours), and the unit at the end of
an answer, which this model leaves out: a later turn reads up to the end of the input before it.
"""

from __future__ import annotations

from typing import Final

from trivet.prefix.caches.base import Billed, Entries, Refused, RulesFor
from trivet.prefix.caches.longest import GRID
from trivet.prefix.caches.steps import grid_steps
from trivet.prefix.prompts.outline import Outline

INTERVAL: Final = 8_192
"""Tokens between two units inside a long input."""


class DeepSeekCache:
    """Units, and what was seen of prompts, from which common beginnings become units."""

    def __init__(self, rules: RulesFor) -> None:
        self._rules = rules
        self._units = Entries()
        self._seen = Entries()

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """See `CacheModel`."""
        rules = self._rules("deepseek", outline.model)
        total, ttl = outline.tokens, rules.ttls[0]
        if total < rules.min_tokens:
            return Billed(total, 0, (), "below-minimum")
        steps = [one for one in grid_steps(outline, GRID, True) if one.tokens >= rules.min_tokens]
        hit = self._units.longest(owner, steps, at)
        why = self._units.why(owner, steps[hit + 1 :], at, hit >= 0)
        common = self._seen.longest(owner, steps, at)
        for index, step in enumerate(steps):
            if index <= hit:
                self._units.refresh(owner, step.digest, at)
            if index in (common, len(steps) - 1) or step.tokens % INTERVAL == 0:
                self._units.write(owner, step.digest, ttl, at, first_byte_s)
            self._seen.write(owner, step.digest, ttl, at, first_byte_s)
        read = steps[hit].tokens if hit >= 0 else 0
        return Billed(total - read, read, (), why)
