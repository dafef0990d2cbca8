"""A cache for LangChain: `set_llm_cache(TrivetCache(tenant="acme"))`.

LangChain makes the key: the prompt, and a text about the model. `docs/library.md` says what that
text leaves out. Where the model takes an HTTP client, `TrivetTransport` there sees whole requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.messages import message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from trivet.exact.tier import Question
from trivet.library.kept import Kept, Tenant, complete

_STATES = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""Where LangChain's integrations put the terminal state of an answer."""


class TrivetCache(BaseCache):
    """Stores complete answers of one tenant; `ttl` is in seconds, `store` as for `trivet serve`.

    An answer whose terminal state is not told, or is none of a complete answer, is not stored.
    Raises `ConfigError`.
    """

    def __init__(self, tenant: Tenant, *, store: str | None = None, ttl: float = 86_400.0) -> None:
        self._kept = Kept("langchain", tenant, store, ttl)

    def lookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        """The stored answer, or None."""
        return _read(self._kept.run(self._kept.find(self._asked(prompt, llm_string))))

    async def alookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        """The stored answer, or None."""
        found = self._kept.find(self._asked(prompt, llm_string))
        return _read(await self._kept.run_async(found))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Store an answer, if it is complete."""
        body = _written(return_val)
        if body is not None:
            self._kept.run(self._kept.keep(self._asked(prompt, llm_string), body))

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Store an answer, if it is complete."""
        body = _written(return_val)
        if body is not None:
            await self._kept.run_async(self._kept.keep(self._asked(prompt, llm_string), body))

    def clear(self, **kwargs: Any) -> None:
        """Forget the tenant's answers that came by LangChain. Raises `StoreError`."""
        self._kept.run(self._kept.purge(self._kept.tenant))

    async def aclear(self, **kwargs: Any) -> None:
        """Forget the tenant's answers that came by LangChain. Raises `StoreError`."""
        await self._kept.run_async(self._kept.purge(self._kept.tenant))

    def close(self) -> None:
        """Let go of the store."""
        self._kept.close()

    def _asked(self, prompt: str, llm_string: str) -> Question:
        # The text about the model may quote headers and keys, and what is asked is stored.
        return self._kept.asked(self._kept.name(llm_string), prompt.encode())


def _written(answer: Sequence[Generation]) -> bytes | None:
    """The answer as JSON; None for one that is not complete, or that JSON cannot hold."""
    if not complete([_state(one) for one in answer]):
        return None
    try:
        return json.dumps([_as_dict(one) for one in answer]).encode()
    except (TypeError, ValueError):
        return None


def _state(one: Generation) -> Any:
    told = dict(one.generation_info or {})
    if isinstance(one, ChatGeneration):
        told |= one.message.response_metadata
        if one.message.additional_kwargs.get("refusal"):
            return "refusal"
    return next((told[name] for name in _STATES if told.get(name)), None)


def _as_dict(one: Generation) -> dict[str, Any]:
    made: dict[str, Any] = {"text": one.text, "info": one.generation_info}
    if isinstance(one, ChatGeneration):
        made["message"] = message_to_dict(one.message)
    return made


def _read(body: bytes | None) -> Sequence[Generation] | None:
    if body is None:
        return None
    try:
        return [_generation(made) for made in json.loads(body)]
    except (ValueError, TypeError, KeyError):
        # Written by another version of LangChain: a miss, and the next answer replaces it.
        return None


def _generation(made: dict[str, Any]) -> Generation:
    if "message" in made:
        (message,) = messages_from_dict([made["message"]])
        return ChatGeneration(message=message, generation_info=made["info"])
    return Generation(text=made["text"], generation_info=made["info"])
