"""TensorRT-LLM: block reuse, kept apart by `cache_salt` in the root of the block keys.

TensorRT-LLM docs, "KV cache reuse", and `tensorrt_llm/serve/openai_protocol.py`. Its request models
take no unknown fields, so nothing but the salt of chat and completions is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.messages import Api, Usage
from trivet.prefix.backends.base import OPENAI_FIELDS, SERVER_HEADERS, Ask, Isolation, Prepared
from trivet.prefix.backends.servers import salted, unsteered
from trivet.prefix.backends.usage import usage_of


class TensorrtBackend:
    """A `trtllm-serve`."""

    kind = "tensorrt"
    isolates: Isolation = "salt"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's salt over whatever the caller sent, where the API has one."""
        if ask.api in (Api.CHAT, Api.COMPLETIONS):
            return salted(ask, OPENAI_FIELDS)
        draft = unsteered(ask)
        generates = ask.api is not Api.EMBEDDINGS
        if generates:
            draft.note("this API has no salt")
        return draft.done(dropped=SERVER_HEADERS, apart=not generates)

    def read_usage(self, answer: Mapping[str, Any]) -> Usage | None:
        """See `usage`."""
        return usage_of(answer)
