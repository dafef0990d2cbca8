"""Builders of entries for the store tests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from trivet.exact.entry import Entry
from trivet.messages import Api, ExactKey, Usage

NOW = 1_800_000_000.0


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def key(name: str) -> ExactKey:
    """A key of its own for each name."""
    return ExactKey(hashlib.sha256(name.encode()).digest())


def entry(name: str = "a", tenant: str = "t1", **changes: Any) -> Entry:
    """An entry of 100 bytes and its overhead, created at NOW and kept for an hour."""
    made = Entry(
        key=key(name),
        tenant=tenant,
        api=Api.CHAT,
        canonical=f"request {name}".encode().ljust(50),
        body=f"answer {name}".encode().ljust(50),
        model="model-1",
        usage=Usage(10, 20, 3, 4),
        ids=("chatcmpl-1", "call-1"),
        created=NOW,
        expires=NOW + 3600,
        stale_until=NOW + 3600,
        labels=frozenset(),
        headers=(("openai-version", "2020-10-01"),),
    )
    return replace(made, **changes)
