"""The exact tier: find a stored answer, or keep one. A store in trouble makes it step aside."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound, ExactStore
from trivet.messages import ExactKey
from trivet.telemetry import EntryRejected, Observer

_PASSED_OVER = frozenset({"no-cache", "max-age", "min-fresh", "tags"})
"""Reasons to pass over an answer that is stored, and good for others."""
PATIENCE_S = 0.25
"""How long an answer that its caller waits for is held back until it is known to be stored."""


class Question(NamedTuple):
    """What is looked up: the key, the bytes that were hashed, and how old an answer may be."""

    tenant: str
    key: ExactKey
    canonical: bytes
    max_age: float | None = None
    """The oldest answer that the caller takes; None is no bound."""
    fresh_for: float = math.inf
    """The policy's lifetime now, which may be shorter than when the entry was stored."""
    stale_for: float = 0.0
    """How long after that an answer may stand in for an upstream error."""
    min_fresh: float | None = None
    """How much of its lifetime an answer has to have left; None is no bound."""


class Hit(NamedTuple):
    """A stored answer that may be served. `age` is in seconds; `ttl` is negative when stale."""

    entry: Entry
    age: float
    ttl: float


class Miss(NamedTuple):
    """No answer, why, and under which key a new one is stored."""

    reason: str
    key: ExactKey
    stale: Hit | None = None
    """An expired answer that may stand in if the upstream fails."""
    labels: frozenset[str] = frozenset()
    """What the stored answer is purged by, that is not for this caller for want of more."""

    @property
    def replaces(self) -> bool:
        """Whether a new answer may take the place of one that other processes still give."""
        return self.reason in _PASSED_OVER


def carrying(found: Hit | Miss, labels: frozenset[str]) -> Hit | Miss:
    """`found`, but an answer without one of these labels is not for this caller.

    A purge by the label would not reach it, though the caller got it under that name.
    """
    if isinstance(found, Hit):
        stored = found.entry.labels
        return found if labels <= stored else Miss("tags", found.entry.key, labels=stored)
    if found.stale is None or labels <= found.stale.entry.labels:
        return found
    return found._replace(stale=None)


class ExactTier:
    """Lookups and writes over one store. No method raises; trouble is a `Miss` with its reason."""

    def __init__(
        self,
        store: ExactStore,
        observer: Observer,
        clock: Callable[[], float] = time.time,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.store = store
        self._memory = store if isinstance(store, MemoryStore | LayeredStore) else None
        self._observer = observer
        self._clock = clock
        self._patience_s = patience_s
        self._writing: set[asyncio.Task[str]] = set()

    async def find(self, question: Question) -> Hit | Miss:
        """The stored answer to `question`, if one may be served now."""
        try:
            entry = await self.store.get(question.tenant, question.key)
        except StoreError as error:
            return Miss(f"store-{error.reason}", question.key)
        if entry is None:
            return Miss("", question.key)
        if entry.canonical != question.canonical or entry.tenant != question.tenant:
            self._observer(EntryRejected(self.store.name, "canonical"))
            return Miss("canonical", question.key)
        return self._judge(entry, question)

    @property
    def in_memory(self) -> bool:
        """What `peek` does not find, `find` will not either."""
        return isinstance(self.store, MemoryStore)

    def peek(self, question: Question) -> Hit | None:
        """A fresh answer that this process holds in memory; None says nothing. Never waits."""
        if self._memory is None:
            return None
        entry = self._memory.peek(question.tenant, question.key)
        if entry is None or entry.tenant != question.tenant:
            return None
        if entry.canonical != question.canonical:
            return None
        found = self._judge(entry, question)
        return found if isinstance(found, Hit) else None

    async def named(self, question: Question) -> Hit | Miss:
        """What is stored under `question.key`, whatever request it answers: the caller compares.

        The semantic tier finds answers of other requests so.
        """
        try:
            entry = await self.store.get(question.tenant, question.key)
        except StoreError as error:
            return Miss(f"store-{error.reason}", question.key)
        if entry is None or entry.tenant != question.tenant:
            return Miss("", question.key)
        return self._judge(entry, question)

    async def entry(self, tenant: str, key: ExactKey) -> Entry | None:
        """The entry itself, fresh or not; None also where the store is in trouble."""
        try:
            found = await self.store.get(tenant, key)
        except StoreError:
            return None
        return found if found is not None and found.tenant == tenant else None

    def _judge(self, entry: Entry, question: Question) -> Hit | Miss:
        now = self._clock()
        expires = min(entry.expires, entry.created + question.fresh_for)
        hit = Hit(entry, max(0.0, now - entry.created), expires - now)
        if question.max_age is not None and hit.age > question.max_age:
            return Miss("max-age", question.key)
        if question.min_fresh is not None and hit.ttl < question.min_fresh:
            return Miss("min-fresh", question.key)
        if hit.ttl > 0:
            return hit
        stale_until = min(entry.stale_until, expires + question.stale_for)
        return Miss("expired", question.key, hit if now < stale_until else None)

    async def draw(self, question: Question, keys: Sequence[ExactKey]) -> Hit | Miss:
        """One of the pooled answers at random once every slot is full, else a free slot."""
        found = await asyncio.gather(*(self.find(question._replace(key=key)) for key in keys))
        hits = [item for item in found if isinstance(item, Hit)]
        free = [item for item in found if isinstance(item, Miss)]
        return random.choice(free) if free else random.choice(hits)

    async def keep(self, entry: Entry, bound: Bound, *, replaces: bool = False) -> str:
        """Store an answer. Returns why it was not stored, or an empty string.

        `replaces`: there may be another one under the key, which all processes are to forget. A
        store that does not say so within `patience_s` is `store-slow`: the write goes on, but
        the caller, who has an answer, does not wait for it.
        """
        if type(self.store) is MemoryStore:
            return await self._put(entry, bound, replaces)
        writing = asyncio.create_task(self._put(entry, bound, replaces))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.wait((writing,), timeout=self._patience_s)
        return writing.result() if writing.done() else "store-slow"

    async def _put(self, entry: Entry, bound: Bound, replaces: bool) -> str:
        try:
            if replaces:
                await self.store.delete(entry.tenant, entry.key)
            return await self.store.put(entry, bound)
        except StoreError as error:
            return f"store-{error.reason}"
