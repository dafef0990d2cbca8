"""The semantic tier within a request: what it is asked, what is served, and what it learns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol

from trivet.canonical import split
from trivet.exact.entry import Entry
from trivet.exact.tier import ExactTier, Hit, Miss, Question, carrying
from trivet.messages import ExactKey
from trivet.middleware.call import Call
from trivet.middleware.dialects.texts import answer_text
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.middleware.semantic_tier.asking import asked_of, may_write, principal_of, rest_of
from trivet.middleware.semantic_tier.hit_log import HitLog
from trivet.middleware.status import CacheStatus
from trivet.semantic.asked import Asked, read_asked
from trivet.semantic.decide import Decision
from trivet.semantic.poison import steers
from trivet.semantic.tier import Asking, Learned, Looked, SemanticTier
from trivet.semantic.types import Record
from trivet.semantic.unseen import REASONS as UNSEEN
from trivet.telemetry import Observer, SemanticLookup, SemanticState

_TRIES = 4
"""Neighbours that are tried while the answers of nearer ones turn out to be gone."""
_MOST_LEARNING = 256
_UNFIT = frozenset({"uncalibrated", "other-chain", "not-certified"})


@dataclass(frozen=True, slots=True)
class Suggested:
    """A stored answer to a similar question, and what was decided about it."""

    hit: Hit
    looked: Looked

    @property
    def record(self) -> Record:
        """The stored question."""
        assert self.looked.decision.neighbour is not None
        return self.looked.decision.neighbour.record


class Watch(Protocol):
    """Measures the tier while it runs: `audits.Audits`. Raises nothing."""

    def looked(self, call: Call, found: Suggested | None) -> None:
        """A lookup ended."""
        ...

    def served(self, call: Call, found: Suggested) -> None:
        """A similar answer is about to be served or suggested."""
        ...

    def shadowed(self, call: Call, looked: Looked, entry: Entry) -> None:
        """The model's answer to a question that was looked up came in."""
        ...


class Similar:
    """Between the pipeline and the tier. Raises nothing."""

    def __init__(
        self,
        tier: SemanticTier,
        exact: ExactTier,
        secret: bytes,
        observer: Observer,
        watch: Watch | None = None,
        log: HitLog | None = None,
    ) -> None:
        """`watch` measures while the tier runs, `log` keeps the last lookups for people."""
        self._tier = tier
        self._exact = exact
        self._secret = secret
        self._observe = observer
        self._watch = watch
        self._log = log
        self._learning: set[asyncio.Task[None]] = set()
        self._standing: dict[str, str] = {}
        """Tenants that only watch though their policy says otherwise, and why; as told."""

    async def find(self, call: Call, question: Question) -> Suggested | None:
        """The answer to serve, or to suggest (`looked.decision.kind` is `hit` or `assist`)."""
        policy = call.policy.semantic
        if policy.mode == "off":
            return None
        began = time.perf_counter()
        asked = asked_of(call.request, call.policy.semantic)
        if isinstance(asked, str):
            call.note.similar = CacheStatus("semantic", fwd="bypass", detail=asked)
            self._tell(call, "bypass", asked, began)
            return None
        asking = self._asking(call, asked)
        found = await self._served(call, question, asking, asked)
        if isinstance(found, Suggested):
            self._tell(call, found.looked.decision.kind, "", began)
        else:
            status = call.note.similar = _status(found)
            self._tell(
                call, "bypass" if status.fwd == "bypass" else found.kind, found.reason, began
            )
        served = found if isinstance(found, Suggested) else None
        self._tell_standing(call)
        if self._watch is not None:
            self._watch.looked(call, served)
            if served is not None:
                self._watch.served(call, served)
        return served

    async def look(self, asking: Asking) -> Looked:
        """What would be decided about a question: nothing is served, learned or told."""
        return await self._tier.look(asking)

    async def _served(
        self, call: Call, question: Question, asking: Asking, asked: Asked
    ) -> Suggested | Decision:
        """The nearest neighbour whose answer is still there; or why there is none."""
        for _ in range(_TRIES):
            looked = call.looked = await self._tier.look(asking)
            near = looked.decision.neighbour
            if near is None or looked.decision.kind not in ("hit", "assist"):
                return looked.decision
            hit = await self._exact.named(question._replace(key=ExactKey(near.record.key)))
            if isinstance(hit, Miss) and hit.reason:
                # Too old for this caller, or a store in trouble: others may get it.
                return replace(looked.decision, kind="miss", reason=hit.reason)
            if isinstance(hit, Hit) and _differs_in_text_only(call, asked, hit.entry, near.record):
                if isinstance(carrying(hit, call.labels), Miss):
                    return replace(looked.decision, kind="miss", reason="tags")
                return Suggested(hit, looked)
            # The first step takes it out here; nobody waits until the other processes are told.
            self._later(self._tier.forget(call.tenant, near.record.id))
            await asyncio.sleep(0)
        return replace(looked.decision, kind="miss", reason="no-answer")

    def learn(self, call: Call, entry: Entry) -> None:
        """Keep the question of a new stored answer, in the background."""
        looked, call.looked = call.looked, None
        if looked is None or len(self._learning) >= _MOST_LEARNING:
            return
        if self._watch is not None:
            self._watch.shadowed(call, looked, entry)
        self._later(self._learn(call, looked, entry))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._learning.add(task)
        task.add_done_callback(self._learning.discard)

    async def close(self) -> None:
        """Let what is being learned or forgotten end."""
        await asyncio.gather(*self._learning, return_exceptions=True)

    async def _learn(self, call: Call, looked: Looked, entry: Entry) -> None:
        # An answer that calls tools acts: it is for the same conversation only.
        text = answer_text(entry.api, entry.body)
        if text is None or steers(text):
            return
        agrees = await self._agrees(looked, entry, text)
        learned = Learned(entry.key, entry.created, entry.expires, entry.labels)
        await self._tier.learn(looked, learned, agrees=agrees)

    async def _agrees(self, looked: Looked, entry: Entry, fresh: str) -> bool:
        near = looked.decision.neighbour
        if looked.decision.reason != "quarantine" or near is None:
            return False
        stored = await self._exact.entry(entry.tenant, ExactKey(near.record.key))
        text = None if stored is None else answer_text(stored.api, stored.body)
        return text is not None and await self._tier.alike(looked.asking, text, fresh)

    def _asking(self, call: Call, asked: Asked) -> Asking:
        scoped = call.parts.scope.user
        return Asking(
            tenant=call.tenant,
            scope=call.tenant if scoped is None else f"{call.tenant}\n{scoped}",
            policy=call.policy.semantic,
            text=asked.text,
            rest=rest_of(call, asked),
            principal=principal_of(call, self._secret),
            may_write=may_write(call),
        )

    def _tell_standing(self, call: Call) -> None:
        """Once, that a policy which wants to serve only watches, and once that it serves again."""
        decision = call.looked.decision if call.looked else None
        if decision is None or call.policy.semantic.mode not in ("assist", "replace"):
            return
        reason = decision.reason if decision.kind == "shadow" else ""
        before = self._standing.get(call.tenant, "")
        if reason in _UNFIT and reason != before:
            self._standing[call.tenant] = reason
            self._observe(SemanticState(call.tenant, "", False, reason))
        elif before and decision.threshold is not None:
            del self._standing[call.tenant]
            self._observe(SemanticState(call.tenant, "", True, ""))

    def _tell(self, call: Call, kind: str, reason: str, began: float) -> None:
        looked = call.looked
        intention = looked.intention if looked else None
        costs = call.policy.semantic.economics
        event = SemanticLookup(
            tenant=call.tenant,
            kind=kind,
            reason=reason,
            intent="" if intention is None else intention.intent,
            seconds=time.perf_counter() - began,
            route=route_of_call(call),
            model=call.request.model,
            cost=0.0 if costs is None else costs.lookup_cost,
        )
        self._observe(event)
        if self._log is not None:
            self._log.noted(call, event)


def _status(decision: Decision) -> CacheStatus:
    reason = decision.reason
    refused = reason in UNSEEN or reason.startswith(("intent-", "rule-", "unread", "unsure"))
    detail = f"shadow-{reason}" if decision.kind == "shadow" else reason
    return CacheStatus("semantic", fwd="bypass" if refused else "miss", detail=detail)


def _differs_in_text_only(call: Call, asked: Asked, entry: Entry, record: Record) -> bool:
    """Compares the stored request itself, not digests: a mixed-up record serves nothing."""
    if entry.tenant != call.tenant or call.question is None:
        return False
    if entry.created != record.created:
        return False  # Another answer than the one that was learned took its place.
    try:
        *stored, request = split(entry.canonical)
        *wanted, _ = split(call.question.canonical)
    except ValueError:
        return False
    if stored != wanted:
        return False
    other = read_asked(entry.api, request)
    return isinstance(other, Asked) and other.rest == asked.rest and other.text == record.text
