"""Answers that a framework keys and reads itself, kept in a store of Trivet's.

The exact tier holds them: by tenant, sealed outside of the process, bounded, with an end. What the
framework leaves out of its key is not in this one either; `docs/library.md` says what that is.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from trivet.canonical import join, mac, sha256
from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Hit, Question
from trivet.library.background import Background, background
from trivet.library.settings import plan_of
from trivet.messages import Api, ExactKey
from trivet.middleware.running.stores import store_of
from trivet.telemetry import ignore

Tenant = str | Callable[[], str]
"""Whose answers these are: one tenant's, or whose the function says, called for each request."""
_T = TypeVar("_T")
_UNBOUNDED: Final = Bound()
_CLOSE_S: Final = 5.0
_COMPLETE: Final = frozenset(
    {
        *("stop", "stop_sequence", "end_turn", "eos", "completed"),
        *("tool_calls", "tool_use", "function_call"),
    }
)
"""Terminal states of complete answers, as providers name them. Whatever is not here is not known
to be complete: cut, filtered, refused, broken off."""


def complete(states: list[Any]) -> bool:
    """Whether an answer with these terminal states, one a choice, may be stored."""
    return bool(states) and all(str(state).lower() in _COMPLETE for state in states)


class Kept:
    """A store for one framework's answers, for callers with and without an event loop.

    `kind` names the framework: no other's answers are found. `ttl` is in seconds. Raises
    `ConfigError` for a store that cannot be meant; one in trouble keeps and finds nothing.
    """

    def __init__(self, kind: str, tenant: Tenant, store: str | None, ttl: float) -> None:
        self.ttl = ttl
        self._kind = kind
        self._tenant = tenant
        self._plan = plan_of(None, store, None, named=False)
        self._placed: tuple[Background, ExactTier] | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of one of the coroutines below, for a caller in no event loop."""
        return background().run(work)

    async def run_async(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The same in an event loop, which goes on meanwhile."""
        return await asyncio.wrap_future(background().begin(work))

    def asked(self, *parts: bytes) -> Question:
        """What is looked up: `parts` are all that the answer depends on. To be called by whoever
        asks, in the context that the tenant is told from."""
        return self.asked_by(self.tenant, *parts)

    def asked_by(self, tenant: str, *parts: bytes) -> Question:
        """The same for a tenant whose name came another way."""
        canonical = join(f"trivet-{self._kind}-v1".encode(), tenant.encode(), *parts)
        return Question(tenant, ExactKey(sha256(canonical)), canonical)

    def name(self, secret: str) -> bytes:
        """Stands for a text in a key that may hold a credential: keys are stored."""
        return mac(self._plan.secret, b"trivet-library-v1", secret.encode())

    async def find(self, question: Question) -> bytes | None:
        """The stored answer."""
        found = await (await self._tier()).find(question)
        return found.entry.body if isinstance(found, Hit) else None

    async def keep(self, question: Question, body: bytes, ttl: float | None = None) -> None:
        """Store an answer that is known to be complete."""
        now = time.time()
        expires = now + (self.ttl if ttl is None else ttl)
        entry = Entry(
            key=question.key,
            tenant=question.tenant,
            api=Api.CHAT,
            canonical=question.canonical,
            body=body,
            model="",
            usage=None,
            ids=(),
            created=now,
            expires=expires,
            stale_until=expires,
            labels=frozenset((self._label,)),
        )
        await (await self._tier()).keep(entry, _UNBOUNDED)

    async def forget(self, question: Question) -> None:
        """Delete one answer. Raises `StoreError`."""
        await (await self._tier()).store.delete(question.tenant, question.key)

    async def purge(self, tenant: str) -> None:
        """Delete the tenant's answers of this framework. Raises `StoreError`."""
        await (await self._tier()).store.purge(tenant, self._label, time.time())

    @property
    def tenant(self) -> str:
        """Whose answers are asked for here and now."""
        return self._tenant() if callable(self._tenant) else self._tenant

    def close(self) -> None:
        """Let go of the store. What is asked afterwards opens it again."""
        placed, self._placed = self._placed, None
        if placed is not None and placed[0] is background():
            placed[0].run(placed[1].store.close(), seconds=_CLOSE_S)

    @property
    def _label(self) -> str:
        return f"tag:{self._kind}"

    async def _tier(self) -> ExactTier:
        # Within the background's loop only, so nothing comes between the look and the opening.
        behind = background()
        placed = self._placed
        if placed is not None and placed[0] is behind:
            return placed[1]
        config = self._plan.config.store
        seal = Seal(mac(self._plan.secret, b"trivet-store"), encrypt=config.encrypt)
        tier = ExactTier(store_of(config, seal, ignore), ignore)
        self._placed = behind, tier
        weakref.finalize(self, _close_later, behind, tier).atexit = False
        # A store that is in trouble answers when it can; until then there is nothing in it.
        with suppress(StoreError):
            await tier.store.ready()
        return tier


def _close_later(behind: Background, tier: ExactTier) -> None:
    behind.call(lambda: asyncio.ensure_future(tier.store.close()))
