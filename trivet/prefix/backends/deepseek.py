"""DeepSeek: caching by itself, kept apart by a user id.

https://api-docs.deepseek.com/guides/kv_cache. `user_id` ([A-Za-z0-9_-], up to 512 bytes) in
OpenAI's shape, `metadata.user_id` in Anthropic's.
"""

from __future__ import annotations

from trivet.messages import Api
from trivet.prefix.backends.base import OPENAI_FIELDS, SERVER_FIELDS, Ask, Isolation, Prepared
from trivet.prefix.backends.draft import Draft, separate_key
from trivet.prefix.prompts.outline import MARKERS


class DeepSeekBackend:
    """The DeepSeek API."""

    kind = "deepseek"
    isolates: Isolation = "key"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's user id, and nothing that the API does not know."""
        draft = Draft(ask)
        draft.drop((*SERVER_FIELDS, *OPENAI_FIELDS), "the API does not know it")
        for name in sorted(MARKERS):
            draft.unmark(name, "the API does not know it")
        if ask.api is Api.MESSAGES:
            _set_metadata(draft)
        elif ask.api in (Api.CHAT, Api.COMPLETIONS):
            own = draft.body.get("user_id")
            joined = " (the caller's own is part of it)" if isinstance(own, str) else ""
            key = separate_key(ask.salt, own)
            draft.put("user_id", key, f"user_id set for the tenant{joined}")
        else:
            draft.drop(("user_id",), "this API has no such field")
        return draft.done()


def _set_metadata(draft: Draft) -> None:
    metadata = draft.body.get("metadata")
    own = metadata.get("user_id") if isinstance(metadata, dict) else None
    key = separate_key(draft.ask.salt, own)
    joined = " (the caller's own is part of it)" if isinstance(own, str) else ""
    note = f"metadata.user_id set for the tenant{joined}"
    if isinstance(metadata, dict):
        draft.text.add(("metadata",), "user_id", key)
        draft.note(note)
    else:
        draft.put("metadata", {"user_id": key}, note)
