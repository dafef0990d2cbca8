"""The semantic tier of one process, opened when a policy first asks for it.

A proxy whose policies leave the tier off imports nothing of it. Requests never wait for it: until
it is open they go on without, and their `Cache-Status` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from trivet.exact.entry import Entry
from trivet.exact.tier import Question
from trivet.middleware.admin.control import Component
from trivet.middleware.call import Call
from trivet.middleware.semantic_tier.effective import Running
from trivet.middleware.status import CacheStatus
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.telemetry import Observer, StoreState

if TYPE_CHECKING:
    from trivet.middleware.semantic_tier.feedback import Feedback
    from trivet.middleware.semantic_tier.insight import Insight
    from trivet.middleware.semantic_tier.tier import Suggested
    from trivet.middleware.semantic_tier.verdicts import Verdicts
    from trivet.semantic.tier import Asking, Looked

FEEDBACK_PATH = "/trivet/feedback"
_AGAIN_S = 30.0
_NAME = "semantic"


class OpenTier(Protocol):
    """What `similar_parts.open_tier` makes."""

    async def find(self, call: Call, question: Question) -> Suggested | None: ...

    async def look(self, asking: Asking) -> Looked: ...

    def learn(self, call: Call, entry: Entry) -> None: ...

    @property
    def feedback(self) -> Feedback: ...

    @property
    def verdicts(self) -> Verdicts: ...

    @property
    def insight(self) -> Insight: ...

    async def purge(self, tenant: str, label: str | None, at: float) -> None: ...

    def components(self) -> tuple[Component, ...]: ...

    def running(self, tenant: str, policy: SemanticPolicy) -> Running: ...

    async def close(self) -> None: ...


class Semantics:
    """`suggest.Similarity` of one process."""

    def __init__(self, opening: Callable[[], Awaitable[OpenTier]], observer: Observer) -> None:
        """`opening` may raise anything; it is tried again after a while."""
        self._opening = opening
        self.on_open: Callable[[OpenTier], None] = lambda tier: None
        self._observe = observer
        self._tier: OpenTier | None = None
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._again_at = 0.0

    def begin(self) -> None:
        """Open the tier in the background, unless it is open or was tried a moment ago."""
        loop = asyncio.get_running_loop()
        if self._tier is None and self._task is None and loop.time() >= self._again_at:
            self._task = loop.create_task(self._open(), name="trivet-semantic")

    async def find(self, call: Call, question: Question) -> Suggested | None:
        """See `suggest.Similarity`."""
        if call.policy.semantic.mode == "off":
            return None
        if self._tier is None:
            self.begin()
            reason = "unavailable" if self._trouble else "loading"
            call.note.similar = CacheStatus("semantic", fwd="miss", detail=reason)
            return None
        return await self._tier.find(call, question)

    async def look(self, asking: Asking) -> Looked | None:
        """What would be decided about a question; None while the tier is not open."""
        return None if self._tier is None else await self._tier.look(asking)

    def learn(self, call: Call, entry: Entry) -> None:
        """See `suggest.Similarity`."""
        if self._tier is not None:
            self._tier.learn(call, entry)

    async def purge(self, tenant: str, label: str | None, at: float) -> None:
        """Forget questions whose answers were purged. Without them they are misses anyway."""
        if self._tier is not None:
            await self._tier.purge(tenant, label, at)

    @property
    def feedback(self) -> Feedback | None:
        """Where verdicts on hits go; None while the tier is not open."""
        return None if self._tier is None else self._tier.feedback

    @property
    def verdicts(self) -> Verdicts | None:
        """Where a person's verdicts go; None while the tier is not open."""
        return None if self._tier is None else self._tier.verdicts

    @property
    def insight(self) -> Insight | None:
        """What people see of it; None while the tier is not open."""
        return None if self._tier is None else self._tier.insight

    def components(self) -> tuple[Component, ...]:
        """For readiness: a tier in trouble costs hits, not answers."""
        if self._tier is not None:
            return self._tier.components()
        if self._trouble:
            return (Component(_NAME, True, "down", f"{self._trouble}: the tier serves nothing"),)
        return () if self._task is None else (Component(_NAME, True, "loading"),)

    def running(self, policy: TenantPolicy) -> Running:
        """What the tier knows of a tenant whose policy has it on. Asks no model."""
        if self._tier is not None:
            return self._tier.running(policy.tenant, policy.semantic)
        return Running("unavailable", self._trouble) if self._trouble else Running("loading")

    async def close(self) -> None:
        """Close what is open."""
        task, tier = self._task, self._tier
        self._tier = None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if tier is not None:
            await tier.close()

    async def _open(self) -> None:
        try:
            self._tier = await self._opening()
        except Exception as error:
            # Whatever is missing or broken in it, the proxy runs without the tier.
            told, self._trouble = self._trouble, _sentence(error)
            self._again_at = asyncio.get_running_loop().time() + _AGAIN_S
            if told != self._trouble:
                self._observe(StoreState(_NAME, "down", self._trouble))
        else:
            self._trouble = ""
            self.on_open(self._tier)
            self._observe(StoreState(_NAME, "up", ""))
        finally:
            self._task = None


def _sentence(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error.name} is not installed (pip install 'trivet[semantic]')"
    return f"{type(error).__name__}: {error}"
