"""The `cachedContents` resources of the Gemini simulator: create, list, get, patch, delete.

https://ai.google.dev/api/caching. Times are counted from the simulator's clock, and shown as if
that had started with 2026.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from trivet.errors import RequestError
from trivet.middleware.mock_upstream.answers import Body
from trivet.prefix.caches.base import Refused
from trivet.prefix.caches.gemini import Content, GeminiCache
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Contents:
    """One request's view: whose project, and when (seconds)."""

    def __init__(self, cache: GeminiCache, owner: str, at: float) -> None:
        self._cache = cache
        self._owner = owner
        self._at = at

    def answer(self, method: str, name: str, body: Body) -> Body:
        """The JSON of an answer. Raises `RequestError`."""
        full = f"cachedContents/{name}"
        if method == "POST" and not name:
            return self._create(body)
        if method == "GET" and not name:
            alive = self._cache.contents(self._owner, self._at)
            return {"cachedContents": [_shown(one) for one in alive]} if alive else {}
        if method == "GET":
            return _shown(_found(self._cache.get(self._owner, full, self._at)))
        if method == "PATCH":
            expires = self._expires(body)
            if expires is None:
                raise RequestError(400, "Only ttl or expireTime can be updated.")
            return _shown(_found(self._cache.renew(self._owner, full, self._at, expires)))
        if method == "DELETE":
            _found(self._cache.delete(self._owner, full, self._at))
            return {}
        raise RequestError(404, f"There is no {method} {full}.")

    def _create(self, body: Body) -> Body:
        model = str(body.get("model", "")).removeprefix("models/")
        if not model:
            raise RequestError(400, "* CreateCachedContentRequest.cached_content.model: required")
        outline = native_outline(NativeApi.GENERATE, model, body)
        expires = self._expires(body)
        seconds = None if expires is None else expires - self._at
        return _shown(_found(self._cache.create(self._owner, outline, self._at, seconds)))

    def _expires(self, body: Body) -> float | None:
        ttl = body.get("ttl")
        until = body.get("expireTime", body.get("expire_time"))
        try:
            if isinstance(ttl, str):
                return self._at + float(ttl.removesuffix("s"))
            if isinstance(until, str):
                return (datetime.fromisoformat(until) - _EPOCH).total_seconds()
        except (ValueError, TypeError):
            raise RequestError(400, "Invalid value for ttl or expireTime.") from None
        return None


def _found(content: Content | Refused) -> Content:
    if isinstance(content, Refused):
        raise RequestError(content.status, content.message, field=content.field)
    return content


def _shown(content: Content) -> Body:
    return {
        "name": content.name,
        "model": f"models/{content.model}",
        "createTime": _time(content.created),
        "updateTime": _time(content.updated),
        "expireTime": _time(content.expires),
        "usageMetadata": {"totalTokenCount": content.tokens},
    }


def _time(seconds: float) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
