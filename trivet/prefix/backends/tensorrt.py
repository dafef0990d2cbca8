"""TensorRT-LLM: block reuse, kept apart by `cache_salt` in the root of the block keys.

TensorRT-LLM docs, "KV cache reuse", and `tensorrt_llm/serve/openai_protocol.py`. Its request models
take no unknown fields, so nothing but the salt of chat and completions is added.
"""

from __future__ import annotations

from trivet.messages import Api
from trivet.prefix.backends.base import OPENAI_FIELDS, SERVER_HEADERS, Ask, Isolation, Prepared
from trivet.prefix.backends.servers import salted, unsteered


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
