"""Servers of one's own that keep prefixes apart by a salt: it is the proxy's, never the caller's.

vLLM     0.32, `vllm/entrypoints/openai/*/protocol.py`: `cache_salt` in the first block's hash,
         1 to 128 characters without `@ / \\` and NUL, on chat, completions, responses, messages
         and pooling. `usage` tells of hits only with `--enable-prompt-tokens-details`
SGLang   0.5.23, `srt/entrypoints/openai/protocol.py`, `srt/managers/schedule_batch.py`: a radix
         tree for each pair of `extra_key` and `cache_salt`. The engine appends the LoRA id to
         `extra_key` by plain concatenation, so a caller's never goes on. `usage` tells of hits
         only with `--enable-cache-report`
trivet   an engine of our own without `engine_secret_env`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trivet.prefix.backends.base import SERVER_FIELDS, SERVER_HEADERS, Ask, Isolation, Prepared
from trivet.prefix.backends.draft import Draft

_OVERRULED: Final = "whose prefixes a request reads is not the caller's to say"


def salted(ask: Ask, also: Iterable[str] = ()) -> Prepared:
    """The request with the tenant's `cache_salt`, over whatever the caller sent."""
    draft = Draft(ask)
    draft.drop([name for name in (*SERVER_FIELDS, *also) if name != "cache_salt"], _OVERRULED)
    draft.put("cache_salt", ask.salt, "cache_salt set for the tenant")
    return draft.done(dropped=SERVER_HEADERS)


def unsteered(ask: Ask) -> Draft:
    """A draft without any field that steers prefix reuse."""
    draft = Draft(ask)
    draft.drop(SERVER_FIELDS, _OVERRULED)
    return draft


class SaltedServer:
    """A server that takes `cache_salt` on every API that it has."""

    isolates: Isolation = "salt"
    takes_marks = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's salt over whatever the caller sent."""
        return salted(ask)
