"""Gemini: caching by itself, or by `cachedContents` that somebody made; kept apart by project.

https://ai.google.dev/gemini-api/docs/caching and /openai (2026-10-13). Requests carry no markers. A
`cachedContent` is named by who made it: Trivet makes none, and passes the caller's on where the
account is the caller's own. Any key of a project reads what any other has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        named = _names_content(draft.body)
        if named and ask.common:
            draft.note("cached_content refused: tenants share the account that it lies in")
        return draft.done(apart=not (named and ask.common))


def _names_content(body: Mapping[str, Any]) -> bool:
    """Whether the prompt begins with a `cachedContent`, in OpenAI's shape."""
    extra = body.get("extra_body")
    google = extra.get("google") if isinstance(extra, Mapping) else None
    shapes = [one for one in (body, extra, body.get("google"), google) if isinstance(one, Mapping)]
    return any(name in one for one in shapes for name in ("cached_content", "cachedContent"))
