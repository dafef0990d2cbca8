"""What routers are told of a cache: which blocks came, which went.

Blocks are named by their hashes, which start from a secret salt: neither tokens nor salts are told,
and who does not hold a tenant's salt learns only how long chains are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from trivet.prefix.pool.hashing import BlockHash

Medium = Literal["device", "host", "disk"]


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of one chain are there now. `parent` is None behind a chain's root."""

    parent: BlockHash | None
    hashes: tuple[BlockHash, ...]
    block_size: int
    medium: Medium


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """These blocks are gone from one medium; another may have them."""

    hashes: tuple[BlockHash, ...]
    medium: Medium


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """Nothing is left in any medium."""


KvEvent = BlocksStored | BlocksRemoved | BlocksCleared

Emit = Callable[[KvEvent], None]
"""Told of every event, in order. Returns at once, raises nothing."""


def ignore(event: KvEvent, /) -> None:
    """For caches that no router watches."""


def as_json(event: KvEvent) -> dict[str, Any]:
    """The event as JSON values; hashes in hex."""
    match event:
        case BlocksStored():
            return {
                "type": "stored",
                "parent": None if event.parent is None else event.parent.hex(),
                "hashes": [each.hex() for each in event.hashes],
                "block_size": event.block_size,
                "medium": event.medium,
            }
        case BlocksRemoved():
            hashes = [each.hex() for each in event.hashes]
            return {"type": "removed", "hashes": hashes, "medium": event.medium}
        case BlocksCleared():
            return {"type": "cleared"}
        case _:
            assert_never(event)


class EventLog:
    """The last events under increasing numbers, for routers that ask from time to time."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._events: deque[KvEvent] = deque(maxlen=capacity)
        self._count = 0

    def __call__(self, event: KvEvent, /) -> None:
        self._events.append(event)
        self._count += 1

    @property
    def count(self) -> int:
        """How many events there were; the number of the next one."""
        return self._count

    def since(self, number: int) -> list[KvEvent] | None:
        """The events from `number` on, oldest first.

        None if some of them are not kept any more, or never were: the router has to forget what it
        knows of this cache and go on from `count`.
        """
        behind = self._count - number
        if not 0 <= behind <= len(self._events):
            return None
        return list(self._events)[len(self._events) - behind :]
