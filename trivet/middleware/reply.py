"""What the caller is told: status, headers and `Cache-Status` of every kind of reply."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from trivet.errors import CacheError, RequestError, UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.tier import Hit
from trivet.messages import ExactKey, Request, Usage
from trivet.middleware.arrival.headers import RawHeaders, new_request_id, to_caller
from trivet.middleware.call import Asker, Call, Note, Whole
from trivet.middleware.dialects.base import Dialect, error_from
from trivet.middleware.replay import render
from trivet.middleware.status import CacheStatus, Forward, cache_status, member

if TYPE_CHECKING:
    from trivet.middleware.semantic_tier.tier import Suggested

_JSON = (b"content-type", b"application/json")
_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
_MOST_SHOWN = 4096
_NO_BUFFERING = (b"cache-control", b"no-cache")


class Replies:
    """Builds replies. `secret` makes the key that callers see opaque and different per tenant."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shown_keys: dict[ExactKey, str] = {}

    def hit(self, asker: Asker, note: Note, hit: Hit) -> Whole:
        """A stored answer, fresh or (where the policy allows) in place of an upstream error."""
        return self._replay(asker, hit.entry, self._note_hit(note, hit))

    def composed(self, call: Call, hit: Hit, body: bytes, usage: Usage | None) -> Whole:
        """An answer made of several stored ones, of which `hit` is the oldest."""
        extra = self._note_hit(call.note, hit)
        call.note.usage = usage
        return Whole(200, [*_own_headers(call.dialect, call.request), *extra], body)

    def _note_hit(self, note: Note, hit: Hit) -> RawHeaders:
        entry, age, ttl = hit
        note.entry = entry
        note.tier, note.collapsed = "exact", False
        note.usage, note.response_model = entry.usage, entry.model
        status = f'trivet-exact; hit; ttl={int(ttl)}; key="{self._shown(entry.key)}"'
        if ttl > 0:
            note.outcome, note.reason = "hit", ""
        else:
            note.outcome, note.reason = "stale", "stale-if-error"
            status += "; detail=stale-if-error"
        return [(b"cache-status", status.encode()), (b"age", b"%d" % age)]

    def similar(self, call: Call, found: Suggested) -> Whole:
        """The stored answer to a similar question."""
        note, (entry, age, ttl) = call.note, found.hit
        decision = found.looked.decision
        status = cache_status(
            CacheStatus("exact", fwd=_FORWARDS.get(note.reason, "miss")),
            CacheStatus(
                "semantic",
                hit=True,
                ttl=int(min(ttl, found.record.expires - found.looked.at)),
                key=self._shown(entry.key),
                detail=f"score={decision.score:.3f} threshold={decision.threshold:.3f}",
            ),
        )
        extra = [
            (b"cache-status", status.encode()),
            (b"age", b"%d" % age),
            (b"trivet-hit-id", found.record.id.encode()),
        ]
        note.outcome, note.tier, note.reason, note.entry = "hit", "semantic", "", entry
        note.usage, note.response_model = entry.usage, entry.model
        return self._replay(call, entry, extra)

    def shared(self, call: Call, entry: Entry) -> Whole:
        """The answer of another caller's flight, which this one waited for."""
        note = call.note
        note.outcome, note.tier, note.usage, note.stored = "collapsed", "exact", entry.usage, True
        note.entry = entry
        status = CacheStatus("exact", fwd="miss", collapsed=True, key=self._shown(entry.key))
        return self._replay(call, entry, [(b"cache-status", member(status).encode())])

    def _replay(self, asker: Asker, entry: Entry, extra: RawHeaders) -> Whole:
        request, dialect = asker.request, asker.dialect
        body = render(dialect, entry, request, zero_usage=asker.policy.usage_on_hit == "zero")
        headers = _own_headers(dialect, request)
        headers += extra
        if entry.headers:
            headers += [(name.encode(), value.encode("latin-1")) for name, value in entry.headers]
        return Whole(200, headers, body)

    def upstream_headers(self, call: Call, raw: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        """The upstream's own headers, and what the tiers did.

        Who follows another caller's call gets neither that one's request id nor its cookies.
        """
        kept = to_caller(raw)
        if call.note.collapsed:
            own = call.dialect.request_id_header.encode()
            kept = [item for item in kept if item[0] not in (own, b"set-cookie")]
            kept.append((own, new_request_id().encode()))
        return [*kept, *call.note.headers, (b"cache-status", _status_of(call.note).encode())]

    def failed(self, call: Call, error: UpstreamError) -> Whole:
        """The upstream's failure, in the caller's dialect."""
        call.note.outcome = "bypass" if call.note.outcome == "bypass" else "error"
        call.note.reason = error.reason
        return error_reply(call.dialect, error, _status_of(call.note))

    def not_cached(self, call: Call) -> Whole:
        """`only-if-cached` and nothing stored (RFC 9111 section 5.2.1.7)."""
        call.note.reason = "only-if-cached"
        error = RequestError(
            504, "No stored answer, and the request said only-if-cached.", code="only_if_cached"
        )
        return error_reply(call.dialect, error, _status_of(call.note))

    def _shown(self, key: ExactKey) -> str:
        shown = self._shown_keys.get(key)
        if shown is None:
            if len(self._shown_keys) >= _MOST_SHOWN:
                self._shown_keys.clear()
            shown = self._shown_keys[key] = hmac.digest(self._secret, key, "sha256")[:8].hex()
        return shown


_FORWARDS: Final[dict[str, Forward]] = {
    "no-cache": "request",
    "max-age": "request",
    "min-fresh": "request",
    "expired": "stale",
}
"""RFC 9211 section 2.2 has words of its own for these misses."""


def _status_of(note: Note) -> str:
    exact = _forwarded(note.outcome == "bypass", note.reason, note.stored, note.collapsed)
    return exact if note.similar is None else f"{exact}, {member(note.similar)}"


@lru_cache(maxsize=512)
def _forwarded(bypassed: bool, reason: str, stored: bool, collapsed: bool) -> str:
    forward: Forward = "bypass" if bypassed else "miss"
    fwd = _FORWARDS.get(reason, forward)
    return member(
        CacheStatus("exact", fwd=fwd, stored=stored, collapsed=collapsed, detail=reason or None)
    )


def _own_headers(dialect: Dialect, request: Request) -> RawHeaders:
    request_id = (_header_name(dialect.request_id_header), new_request_id().encode())
    return [_STREAM, _NO_BUFFERING, request_id] if request.stream else [_JSON, request_id]


@lru_cache(maxsize=16)
def _header_name(name: str) -> bytes:
    return name.encode()


def error_reply(dialect: Dialect, error: CacheError, cache_status: str) -> Whole:
    """An error that Trivet itself reports."""
    status, body = error_from(dialect, error)
    headers = [
        _JSON,
        (dialect.request_id_header.encode(), new_request_id().encode()),
        (b"cache-status", cache_status.encode()),
    ]
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    return Whole(status, headers, body)
