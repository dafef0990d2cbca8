"""Which slot of a llama.cpp server is whose, the same for all workers of a machine.

A slot holds what was computed for its tenant until something else is. It is given away once and
never to another tenant, because whoever is put on it reads what the one before left there. The
book is a text file beside the server's secret: a line for each tenant, in the order in which they
came, only ever added to. To start anew, remove it and restart the llama-servers.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from trivet.canonical import mac


class Slot(NamedTuple):
    """`number` is None for a tenant without a slot of its own."""

    number: int | None
    common: int
    """Where requests of tenants without one run, each with caching off."""


class SlotBook:
    """Tenants of each upstream. One for a process; `path` is shared."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path = path
        self._secret = secret
        self._seen: tuple[int, int] | None = None
        self._tenants: dict[str, list[str]] = {}

    def slot(self, upstream: str, tenant: str, slots: int) -> Slot:
        """The tenant's slot, of `slots` that the server has.

        While there are more tenants than slots the last one is common, also for the tenant that
        had it. A book that cannot be read or written gives nobody a slot.
        """
        rank, known = self._rank(upstream, tenant, slots + 1)
        common = slots - 1
        own = rank is not None and (rank < common or (rank == common and known <= slots))
        return Slot(rank if own else None, common)

    def _rank(self, upstream: str, tenant: str, most: int) -> tuple[int | None, int]:
        """The tenant's place in the book and how many are in it, of `most` that are written."""
        name = mac(self._secret, b"slot-book", upstream.encode(), tenant.encode()).hex()[:32]
        try:
            known = self._read(upstream)
            if name not in known and len(known) < most:
                known = self._enter(upstream, name, most)
        except (OSError, ValueError):
            return None, most
        return (known.index(name) if name in known else None), len(known)

    def _read(self, upstream: str) -> list[str]:
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._tenants = None, {}
            return []
        seen = (state.st_ino, state.st_size)
        if seen != self._seen:
            self._tenants = _parsed(self._path.read_text("ascii"))
            self._seen = seen
        return self._tenants.get(upstream, [])

    def _enter(self, upstream: str, name: str, most: int) -> list[str]:
        """Write a tenant into the book, unless another process did or it is full by now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a+", encoding="ascii") as book:
            fcntl.flock(book, fcntl.LOCK_EX)
            book.seek(0)
            known = _parsed(book.read()).get(upstream, [])
            if name not in known and len(known) < most:
                book.write(f"{upstream} {name}\n")
                book.flush()
                os.fsync(book.fileno())
                known.append(name)
        return known


def _parsed(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        upstream, name = line.split(" ")
        found.setdefault(upstream, []).append(name)
    return found
