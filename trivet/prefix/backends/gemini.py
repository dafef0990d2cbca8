"""Gemini: caching by itself, or by `cachedContents` that somebody made; kept apart by project.

https://ai.google.dev/gemini-api/docs/caching (2026-10-13). Requests carry no markers. A
`cachedContent` is named by who made it: Trivet makes none, and passes the caller's on.
"""

from __future__ import annotations

from trivet.messages import Api
from trivet.prefix.backends.base import OPENAI_FIELDS, SERVER_FIELDS, Ask, Isolation, Prepared
from trivet.prefix.backends.draft import Draft
from trivet.prefix.prompts.outline import MARKERS


class GeminiBackend:
    """AI Studio and Agent Platform, native and in OpenAI's shape."""

    kind = "gemini"
    isolates: Isolation = "account"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The request without what the API refuses; native ones as they are."""
        if not isinstance(ask.api, Api):
            return Prepared(ask.raw, notes=("nothing to ask for: this model caches by itself",))
        draft = Draft(ask)
        draft.drop((*SERVER_FIELDS, *OPENAI_FIELDS), "the API refuses it")
        for name in sorted(MARKERS):
            draft.unmark(name, "the API refuses it")
        return draft.done()
