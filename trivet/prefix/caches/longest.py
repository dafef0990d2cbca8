"""Caches that keep the beginnings of all prompts unasked: OpenAI before gpt-5.6, Gemini's implicit
one.

https://developers.openai.com/api/docs/guides/prompt-caching,
https://ai.google.dev/gemini-api/docs/caching. Writes cost nothing beside the input itself, so no
tokens are billed as written. Where hits are exact, they are found at ends of parts and at every 64
tokens: how finely Gemini cuts is not published.
"""

from __future__ import annotations

from typing import Final

from trivet.prefix.caches.base import Billed, Entries, Refused, RulesFor
from trivet.prefix.caches.steps import grid_steps
from trivet.prefix.prompts.outline import Outline

GRID: Final = 64
"""Tokens between two places where a prefix is known, where hits are not rounded."""


class LongestPrefixCache:
    """The longest beginning that an earlier prompt of this owner had too."""

    def __init__(self, provider: str, rules: RulesFor) -> None:
        self._provider = provider
        self._rules = rules
        self._entries = Entries()

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """See `CacheModel`."""
        rules = self._rules(self._provider, outline.model)
        total = outline.tokens
        ttl = rules.ttl(outline.retention) if rules.automatic else None
        if ttl is None:
            return Billed(total, 0, (), "no-mark")
        if total < rules.min_tokens:
            return Billed(total, 0, (), "below-minimum")
        exact = rules.step == 1
        steps = grid_steps(outline, GRID if exact else rules.step, exact)
        steps = [step for step in steps if step.tokens >= rules.min_tokens]
        hit = self._entries.longest(owner, steps, at)
        why = self._entries.why(owner, steps[hit + 1 :], at, hit >= 0)
        for step in steps[: hit + 1]:
            self._entries.refresh(owner, step.digest, at)
        for step in steps:
            self._entries.write(owner, step.digest, ttl, at, first_byte_s)
        read = steps[hit].tokens if hit >= 0 else 0
        return Billed(total - read, read, (), why)
