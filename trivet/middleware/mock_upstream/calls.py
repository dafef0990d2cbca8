"""What the mock upstream was asked, for tests to read: counts, and the latest requests."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import Any

_KEPT = 100
_KEPT_BODY = 64 * 1024
_MOST_BODIES = 200_000


class Calls:
    """Counters over all requests that were read to their end. Bounded."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all but what is open now."""
        self.total = 0
        self.by_path: Counter[str] = Counter()
        self.by_body: Counter[str] = Counter()
        self.last: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.open = getattr(self, "open", 0)
        self.peak_open = self.open
        self.disconnects = 0

    def add(self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Count one request. Of a body above 64 KiB only the beginning is kept."""
        digest = hashlib.sha256(body).hexdigest()
        self.total += 1
        self.by_path[path] += 1
        known = digest in self.by_body or len(self.by_body) < _MOST_BODIES
        self.by_body[digest if known else "others"] += 1
        self.last.append(
            {"method": method, "path": path, "headers": headers, "body": body[:_KEPT_BODY]}
            | {"sha256": digest, "bytes": len(body)}
        )

    def enter(self) -> None:
        """A request is being answered."""
        self.open += 1
        self.peak_open = max(self.peak_open, self.open)

    def leave(self, disconnected: bool) -> None:
        """It ended; `disconnected`: because its caller went away first."""
        self.open -= 1
        self.disconnects += disconnected

    def report(self) -> dict[str, Any]:
        """All of it as JSON values. Header names repeat as they came; bodies are text."""
        return {
            "total": self.total,
            "by_path": dict(self.by_path),
            "by_body": dict(self.by_body),
            "open": self.open,
            "peak_open": self.peak_open,
            "disconnects": self.disconnects,
            "last": [_readable(call) for call in self.last],
        }


def _readable(call: dict[str, Any]) -> dict[str, Any]:
    pairs = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in call["headers"]]
    return call | {"headers": pairs, "body": call["body"].decode("utf-8", "replace")}
