"""Gemini's caches: the implicit one, and `cachedContents`, made by name and paid by the hour.

https://ai.google.dev/gemini-api/docs/caching and https://ai.google.dev/api/caching. A content
stands before the prompt of each request that names it; such a request repeats neither system
instruction nor tools. `owner` is the project.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from trivet.prefix.caches.base import Billed, Refused, RulesFor
from trivet.prefix.caches.longest import LongestPrefixCache
from trivet.prefix.prompts.outline import Level, Outline


class Content(NamedTuple):
    """A `cachedContents` resource. Times in seconds."""

    name: str
    """`cachedContents/...`."""
    model: str
    tokens: int
    created: float
    updated: float
    expires: float


class GeminiCache:
    """Implicit by `ask`; explicit by `create`, `ask_with` and the rest."""

    def __init__(self, rules: RulesFor) -> None:
        self._rules = rules
        self._implicit = LongestPrefixCache("gemini", rules)
        self._contents: dict[tuple[str, str], Content] = {}
        self._numbers = itertools.count(1)

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """See `CacheModel`."""
        return self._implicit.ask(owner, outline, at, first_byte_s=first_byte_s)

    def create(
        self, owner: str, outline: Outline, at: float, seconds: float | None = None
    ) -> Content | Refused:
        """Keep a prompt's beginning for `seconds` (an hour if not told)."""
        rules = self._rules("gemini", outline.model)
        if not rules.explicit:
            told = f"{outline.model} does not support explicit caching."
            return Refused(400, "model", told)
        if outline.tokens < rules.min_tokens:
            told = f"Cached content is too small. total_token_count={outline.tokens}"
            return Refused(400, "contents", f"{told}, min_total_token_count={rules.min_tokens}")
        if seconds is not None and seconds <= 0:
            return Refused(400, "ttl", "ttl must be positive.")
        name = f"cachedContents/mock{next(self._numbers):08d}"
        lives = rules.ttls[-1].seconds if seconds is None else seconds
        made = Content(name, outline.model, outline.tokens, at, at, at + lives)
        self._contents[owner, name] = made
        return made

    def get(self, owner: str, name: str, at: float) -> Content | Refused:
        """The content of that name, as long as it lives."""
        found = self._contents.get((owner, name))
        if found is None or at >= found.expires:
            told = "CachedContent not found (or permission denied)"
            return Refused(403, "cachedContent", told)
        return found

    def contents(self, owner: str, at: float) -> Sequence[Content]:
        """All that are alive."""
        alive = (one for (whose, _), one in self._contents.items() if whose == owner)
        return [one for one in alive if at < one.expires]

    def renew(self, owner: str, name: str, at: float, expires: float) -> Content | Refused:
        """Another end of life: the one thing that can be changed."""
        found = self.get(owner, name, at)
        if isinstance(found, Content):
            found = found._replace(updated=at, expires=expires)
            self._contents[owner, name] = found
        return found

    def delete(self, owner: str, name: str, at: float) -> Content | Refused:
        """The content that was there."""
        found = self.get(owner, name, at)
        if isinstance(found, Content):
            del self._contents[owner, name]
        return found

    def ask_with(self, owner: str, name: str, outline: Outline, at: float) -> Billed | Refused:
        """Bill a request that names a content: its tokens are read, the prompt's own are not.

        The sum is of both.
        """
        found = self.get(owner, name, at)
        if isinstance(found, Refused):
            return found
        if found.model.rpartition("/")[2] != outline.model.rpartition("/")[2]:
            told = f"Model used by GenerateContent request ({outline.model}) and CachedContent"
            return Refused(400, "model", f"{told} ({found.model}) has to be the same.")
        if any(part.level is not Level.MESSAGES for part in outline.parts):
            told = "CachedContent can not be used with GenerateContent request setting"
            told += " system_instruction, tools or tool_config."
            return Refused(400, "cachedContent", told)
        return Billed(outline.tokens, found.tokens)
