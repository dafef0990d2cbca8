"""From `--store` to a store: `memory`, `sqlite:PATH`, or a URL that `redis_client` reads."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from trivet.errors import ConfigError, Problem
from trivet.exact.followed import FollowedStore
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.opened import Opened
from trivet.exact.purges import SharedStore
from trivet.exact.seal import Seal
from trivet.exact.store import Bound, ServingStore
from trivet.exact.store_url import check_store_url, parse_url
from trivet.telemetry import Observer, ignore

_OPENED = 16 << 20
"""Bytes of entries that stay opened where no memory is in front."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Bounds over all tenants, and the time that the calls of a store may take."""

    most: Bound = field(default=Bound(entries=1_000_000, bytes=1 << 30))
    """The store that the URL names."""
    front: Bound = field(default=Bound(entries=100_000, bytes=64 << 20))
    """The memory in front of a store that processes share; 0 entries or bytes: none."""
    budget: Budget = field(default_factory=Budget)

    @property
    def has_front(self) -> bool:
        """Whether there is memory in front."""
        return 0 not in (self.front.entries, self.front.bytes)


def open_store(
    url: str, *, seal: Seal, observer: Observer = ignore, limits: StoreLimits | None = None
) -> ServingStore:
    """The store that `url` names. Opens and connects when it is first used.

    Raises `ConfigError` for a URL that is not understood or whose library is not installed.
    """
    limits = limits or StoreLimits()
    if url == "memory":
        return _memory(limits.most)
    shared = _shared(url, seal, observer, limits)
    if not limits.has_front:
        return FollowedStore(shared, limits.budget, observer)
    guarded = GuardedStore(shared, limits.budget, observer)
    return LayeredStore(_memory(limits.front), guarded, observer=observer)


def _memory(bound: Bound) -> MemoryStore:
    return MemoryStore(
        sys.maxsize if bound.bytes is None else bound.bytes,
        sys.maxsize if bound.entries is None else bound.entries,
    )


def _shared(url: str, seal: Seal, observer: Observer, limits: StoreLimits) -> SharedStore:
    opened = Opened(seal, 0 if limits.has_front else _OPENED)
    try:
        check_store_url(url)
    except ValueError as error:
        raise _refuse(str(error)) from None
    if url in ("sqlite", "sqlite:"):
        raise _refuse("sqlite: has no path here")
    if url.startswith("sqlite:"):
        from trivet.exact.sqlite import SqliteStore

        file = SqliteStore(
            Path(url.removeprefix("sqlite:")), seal, most=limits.most, observer=observer
        )
        file.opened = opened
        return file
    try:
        from trivet.exact.redis import RedisStore
    except ImportError:
        raise _refuse("Redis needs the extra: pip install 'trivet[redis]'") from None
    redis = RedisStore(
        parse_url(url), seal, most=limits.most, observer=observer, get_s=limits.budget.get_s
    )
    redis.opened = opened
    return redis


def _refuse(message: str) -> ConfigError:
    return ConfigError(Problem("--store", 0, 0, "store", message))
