"""The last requests of one process, without their text: what was asked, and what became of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from itertools import islice
from typing import Any, Final, NamedTuple

from trivet.telemetry import Event, RequestDone

KEPT: Final = 1_000
_LONGEST: Final = 128
"""Characters of what a caller chose: a model, a route, an id."""
_Row = tuple[Any, ...]
"""The fields of `Recent`, but for what its making costs."""
REQUEST_IDS: Final = (b"x-request-id", b"request-id")
"""Headers in which a caller is told the id of its request."""
_LONGEST_ID: Final = 128


class Recent(NamedTuple):
    """One request. `at` is Unix seconds; durations are seconds."""

    id: str
    """What the caller was told, and can name; empty where it was told none."""
    at: float
    tenant: str
    api: str
    route: str
    model: str
    upstream: str
    status: int
    stream: bool
    tier: str
    outcome: str
    reason: str
    cache_status: str
    """What each tier said, as the caller was told (RFC 9211)."""
    own_s: float
    upstream_s: float
    input_tokens: int | None
    output_tokens: int | None
    stored: bool


class RecentRequests:
    """An observer that keeps the last `KEPT` requests."""

    hears: Final = frozenset({RequestDone})

    def __init__(self, kept: int = KEPT) -> None:
        # Rows as plain tuples: a named one takes a microsecond more to make.
        self._kept: deque[_Row] = deque(maxlen=kept)

    def __call__(self, event: Event, /) -> None:
        """Keep a `RequestDone`; other events are no matter."""
        if type(event) is RequestDone:
            self._kept.append(_row(event))

    def __len__(self) -> int:
        return len(self._kept)

    def newest(self, count: int, tenant: str | None = None) -> list[Recent]:
        """The newest first, of one tenant where one is named."""
        wanted = (row for row in reversed(self._kept) if tenant is None or row[_TENANT] == tenant)
        return [_recent(row) for row in islice(wanted, count)]

    def failures(self) -> Counter[tuple[str, str]]:
        """Of what is kept, how many were answered 500 and above, by upstream and reason."""
        failed = (row for row in self._kept if row[_STATUS_CODE] >= 500)
        return Counter((row[_UPSTREAM], row[_REASON]) for row in failed)

    def forget(self, tenant: str) -> None:
        """Let go of what a tenant asked."""
        self._kept = deque((row for row in self._kept if row[_TENANT] != tenant), self._kept.maxlen)


def _row(event: RequestDone) -> _Row:
    usage = event.usage
    told = status = b""
    for name, value in event.reply_headers:
        if name in REQUEST_IDS:
            told = value[:_LONGEST_ID]
        elif name == b"cache-status":
            status = value
    return (
        told,
        time.time() - event.total_s,
        event.tenant,
        event.api,
        event.route[:_LONGEST],
        event.model[:_LONGEST],
        event.upstream,
        event.status,
        event.stream,
        event.tier,
        event.outcome,
        event.reason,
        status,
        event.total_s - event.upstream_s,
        event.upstream_s,
        None if usage is None else usage[0],
        None if usage is None else usage[1],
        event.stored,
    )


def _recent(row: _Row) -> Recent:
    named = Recent(*row)
    return named._replace(
        id=row[0][:_LONGEST].decode("latin-1"),
        tier=named.tier or "",
        cache_status=row[_STATUS].decode("latin-1"),
        own_s=max(0.0, named.own_s),
    )


_TENANT: Final = Recent._fields.index("tenant")
_UPSTREAM: Final = Recent._fields.index("upstream")
_REASON: Final = Recent._fields.index("reason")
_STATUS_CODE: Final = Recent._fields.index("status")
_STATUS: Final = Recent._fields.index("cache_status")
