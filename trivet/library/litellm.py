"""A cache for LiteLLM: `litellm.cache = TrivetCache(tenant="acme")`.

LiteLLM's own key leaves out the account, the base URL and the extra headers; this one holds all of
a call's arguments but those that are known not to shape the answer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from litellm.caching.base_cache import BaseCache
from litellm.caching.caching import Cache
from litellm.types.caching import LiteLLMCacheType
from pydantic import BaseModel

from trivet.exact.tier import Question
from trivet.library.kept import Kept, complete

Arguments = Mapping[str, Any]
Tenant = str | Callable[[Arguments], str]
"""Whose answers these are: one tenant's, or whose the function says of a call's arguments."""
_NOT_KEYED: Final = frozenset(
    (
        *("cache", "cache_key", "caching", "preset_cache_key", "ttl"),
        *("timeout", "stream_timeout", "request_timeout", "num_retries", "max_retries"),
        *("litellm_call_id", "litellm_logging_obj", "litellm_trace_id", "litellm_session_id"),
        *("litellm_params", "litellm_metadata", "metadata", "model_info"),
        *("litellm_parent_otel_span", "parent_otel_span", "shared_session", "original_response"),
        *("proxy_server_request", "secret_fields", "logger_fn", "verbose"),
        *("callbacks", "success_callback", "failure_callback"),
        *("input_cost_per_token", "output_cost_per_token"),
        *("acompletion", "aembedding", "atext_completion", "aresponses"),
    )
)
"""Arguments that say how a call is made, watched or paid for."""
_SEPARATOR: Final = "/"


class TrivetCache(Cache):
    """Stores complete answers; `ttl` is in seconds, `store` as for `trivet serve`.

    A call's own `ttl` counts where it is shorter. An argument that cannot be told apart by its
    content (a `client`) is in no key: such a call is not cached. Raises `ConfigError`.
    """

    def __init__(self, tenant: Tenant, *, store: str | None = None, ttl: float = 86_400.0) -> None:
        super().__init__(type=LiteLLMCacheType.LOCAL)
        self._tenant = tenant
        self._kept = Kept("litellm", "", store, ttl)
        self.cache = _Store(self._kept)

    def get_cache_key(self, **kwargs: Any) -> str:
        """The tenant, and a name for all of the call's arguments that may shape the answer."""
        tenant = self._tenant(kwargs) if callable(self._tenant) else self._tenant
        preset: str | None = self.get_preset_cache_key_from_kwargs(**kwargs)
        if preset is not None and preset.rpartition(_SEPARATOR)[0] == tenant:
            # The arguments may have been rewritten for the provider since the look-up.
            return preset
        asked = {name: value for name, value in kwargs.items() if name not in _NOT_KEYED}
        try:
            text = json.dumps(asked, sort_keys=True, default=_plain)
        except (TypeError, ValueError):
            text = secrets.token_hex(16)
        key = f"{tenant}{_SEPARATOR}{self._kept.name(text).hex()}"
        told = {name: value for name, value in kwargs.items() if name != "preset_cache_key"}
        self._set_preset_cache_key_in_kwargs(preset_cache_key=key, **told)
        return key

    def close(self) -> None:
        """Let go of the store."""
        self._kept.close()


class _Store(BaseCache):
    """What LiteLLM calls with its keys and values."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(default_ttl=int(kept.ttl))
        self._kept = kept

    def get_cache(self, key: str, **kwargs: Any) -> Any:
        return _read(self._kept.run(self._kept.find(self._asked(key))))

    async def async_get_cache(self, key: str, **kwargs: Any) -> Any:
        return _read(await self._kept.run_async(self._kept.find(self._asked(key))))

    def set_cache(self, key: str, value: Any, **kwargs: Any) -> None:
        body = _written(value)
        if body is not None:
            self._kept.run(self._kept.keep(self._asked(key), body, self._ttl(kwargs)))

    async def async_set_cache(self, key: str, value: Any, **kwargs: Any) -> None:
        body = _written(value)
        if body is not None:
            work = self._kept.keep(self._asked(key), body, self._ttl(kwargs))
            await self._kept.run_async(work)

    async def async_set_cache_pipeline(
        self, cache_list: list[tuple[str, Any]], **kwargs: Any
    ) -> None:
        for key, value in cache_list:
            await self.async_set_cache(key, value, **kwargs)

    async def delete_cache_keys(self, keys: list[str]) -> None:
        for key in keys:
            await self._kept.run_async(self._kept.forget(self._asked(key)))

    async def disconnect(self) -> None:
        """LiteLLM disconnects at its end only."""
        self._kept.close()

    def _asked(self, key: str) -> Question:
        tenant, _, name = key.rpartition(_SEPARATOR)
        return self._kept.asked_by(tenant, name.encode())

    def _ttl(self, arguments: Arguments) -> float:
        wished = arguments.get("ttl")
        if isinstance(wished, int | float):
            return min(self._kept.ttl, float(wished))
        return self._kept.ttl


def _plain(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(type(value).__name__)


def _written(value: Any) -> bytes | None:
    """What LiteLLM stores, as JSON; None for an answer that is not complete."""
    try:
        answer = value["response"]
        if isinstance(answer, str):
            answer = json.loads(answer)
        return json.dumps(value).encode() if _complete(answer) else None
    except (KeyError, TypeError, ValueError):
        return None


def _complete(answer: Any) -> bool:
    if not isinstance(answer, dict):
        return False
    if answer.get("choices"):
        choices = answer["choices"]
        refused = any((one.get("message") or {}).get("refusal") for one in choices)
        return not refused and complete([one.get("finish_reason") for one in choices])
    if "embedding" in answer:
        return bool(answer["embedding"])
    if answer.get("object") == "list" and "data" in answer:
        return bool(answer["data"])
    return complete([answer.get("status")])


def _read(body: bytes | None) -> Any:
    return None if body is None else json.loads(body)
