"""A random share of the similar answers that were served is compared with what the model says.

The model is asked in the background, as it would have been without the tier: the caller's own
request and credentials, through the collapser, and the new answer is stored under the request's
own key. The sample is drawn here, so nobody chooses what is measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trivet.exact.collapse import Collapser
from trivet.exact.entry import Entry
from trivet.exact.flight import Stored
from trivet.exact.tier import ExactTier, Miss
from trivet.messages import ExactKey
from trivet.middleware.call import Call, Note
from trivet.middleware.dialects.texts import answer_text
from trivet.middleware.record import Leader
from trivet.middleware.semantic_tier.hit_log import HitLog
from trivet.middleware.semantic_tier.label_queue import LabelQueue
from trivet.middleware.semantic_tier.tier import Suggested
from trivet.policies.eligibility import Eligible
from trivet.semantic.draws import DrawNames, drawn
from trivet.semantic.judges import Judge
from trivet.semantic.monitor import Monitor
from trivet.semantic.tally import digest_of
from trivet.semantic.tier import Looked

_AT_ONCE = 4
_WAITING = 64
_PATIENCE_S = 300.0

_Work = Callable[[], Awaitable[bool]]
JudgeOf = Callable[[Call], Judge | None]
"""Who judges a call's answers; None where nobody can: a person, or models that still load."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What judging takes."""

    monitor: Monitor
    judge_of: JudgeOf
    labels: LabelQueue | None = None
    names: DrawNames | None = None
    """Names what waits for a person; without them no person is heard."""
    log: HitLog | None = None
    """Where people see the hits that wait for them."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A stored question with its answer, and a new question with its own."""

    looked: Looked
    stored: str
    fresh: str


class Audits:
    """Draws, asks and judges. Raises nothing; what does not fit is dropped and counted."""

    def __init__(
        self,
        leader: Leader,
        exact: ExactTier,
        collapser: Collapser,
        bench: Bench,
        rng: random.Random | None = None,
    ) -> None:
        self._leader = leader
        self._exact = exact
        self._collapser = collapser
        self._bench = bench
        self._rng = rng or random.SystemRandom()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self.dropped = 0
        """Audits that were drawn and not begun, since too many waited."""
        self.unjudged = 0
        """Audits that ended without a verdict: no complete answer, or nobody who could tell."""

    def looked(self, call: Call, found: Suggested | None) -> None:
        """A lookup ended, with `found` or without: count it, where its intent is open."""
        looked, policy = call.looked, call.policy.semantic
        intention = None if looked is None else looked.intention
        if looked is None or intention is None:
            return
        if intention.admitted and intention.intent in policy.intents:
            decision = looked.decision
            hit = found is not None or (decision.kind == "shadow" and decision.would_serve)
            at = family_of(call), str(intention.intent)
            self._bench.monitor.looked(call.tenant, policy, at, hit)

    def served(self, call: Call, found: Suggested) -> None:
        """A similar answer is about to be served or suggested: audit it, or not."""
        if self._rng.random() < call.policy.semantic.audit.share and self._of_use(call):
            self._begin(partial(self._audit, _apart(call), found))

    def shadowed(self, call: Call, looked: Looked, fresh: Entry) -> None:
        """The model answered where a shadow would have served: compare, at no further call."""
        if looked.decision.kind == "shadow" and looked.decision.would_serve:
            self._begin(partial(self._compare, _apart(call), looked, fresh))

    async def close(self) -> None:
        """Give up what runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _of_use(self, call: Call) -> bool:
        """Whether anybody would read what the model says."""
        keeps = self._bench.labels is not None and call.policy.semantic.store_text
        return keeps or self._bench.judge_of(call) is not None

    def _begin(self, work: _Work) -> None:
        if len(self._running) >= _AT_ONCE + _WAITING:
            self.dropped += 1
            return
        task = asyncio.create_task(self._run(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, work: _Work) -> None:
        judged = False
        try:
            async with self._gate, asyncio.timeout(_PATIENCE_S):
                judged = await work()
        except Exception:
            # A boundary: judges and upstreams are other people's code, and nobody waits for this.
            judged = False
        self.unjudged += not judged

    async def _audit(self, call: Call, found: Suggested) -> bool:
        entry = found.hit.entry
        stored = answer_text(entry.api, entry.body)
        fresh = await self._ask(call)
        if stored is None or fresh is None:
            return False
        return await self._judge(call, _Pair(found.looked, stored, fresh))

    async def _compare(self, call: Call, looked: Looked, fresh: Entry) -> bool:
        near = looked.decision.neighbour
        assert near is not None
        entry = await self._exact.entry(call.tenant, ExactKey(near.record.key))
        stored = None if entry is None else answer_text(entry.api, entry.body)
        said = answer_text(fresh.api, fresh.body)
        if stored is None or said is None:
            return False
        return await self._judge(call, _Pair(looked, stored, said))

    async def _ask(self, call: Call) -> str | None:
        """What the model answers to this very request."""
        plan, question = call.plan, call.question
        if question is None or not isinstance(plan, Eligible):
            return None
        missed = Miss("audit", question.key)
        ticket = await self._collapser.join(
            missed.key, call.tenant, lambda flight: self._leader.run(call, plan, missed, flight)
        )
        try:
            async for _ in ticket.subscription:
                pass
            result = await ticket.subscription.result()
        finally:
            ticket.subscription.leave()
        if not isinstance(result, Stored):
            return None
        return answer_text(result.entry.api, result.entry.body)

    async def _judge(self, call: Call, pair: _Pair) -> bool:
        """Whether there was a verdict."""
        policy, looked = call.policy.semantic, pair.looked
        judge = self._bench.judge_of(call)
        question = looked.asking.text
        same = None if judge is None else await judge.judge(question, pair.stored, pair.fresh)
        if self._bench.labels is not None and policy.store_text:
            line = _labelled(call.tenant, pair, policy.audit.judge.kind, same)
            line["draw"] = self._named(call, looked)
            await self._bench.labels.put(call.tenant, line)
        if judge is None or same is None:
            return False
        self._bench.monitor.observe(call.tenant, policy, _at(call, looked), same, judge.name)
        return True

    def _named(self, call: Call, looked: Looked) -> str:
        """What a person's verdict on this hit names; empty where another judge judges it."""
        names, policy, near = self._bench.names, call.policy.semantic, looked.decision.neighbour
        book = self._bench.monitor.book
        if names is None or near is None or not book or policy.audit.judge.kind != "person":
            return ""
        calibration = digest_of(policy.measured)
        draw = drawn(book, calibration, _at(call, looked), near.record.id, time.time())
        name = names.name(call.tenant, draw)
        if self._bench.log is not None:
            self._bench.log.drawn(call.tenant, near.record.id, looked.asking.text, name)
        return name


def _at(call: Call, looked: Looked) -> tuple[str, str]:
    intent = "" if looked.intention is None else str(looked.intention.intent)
    return family_of(call), intent


def family_of(call: Call) -> str:
    """What counts together: the API and the model that was asked for."""
    return f"{call.request.api}:{call.request.model}"


def _apart(call: Call) -> Call:
    """The call as it is now, without ties to the caller's reply."""
    return replace(
        call,
        note=Note(),
        body=None,
        looked=None,
        asked=None,
        waiting=lambda: None,
        remember=lambda call, entry: None,
        purpose="audit",
    )


def _labelled(tenant: str, pair: _Pair, judge: str, same: bool | None) -> dict[str, Any]:
    """A line of the queue: see `policies.queued_pair`. The texts may be any, so none is checked."""
    near, decision = pair.looked.decision.neighbour, pair.looked.decision
    assert near is not None
    return {
        "tenant": tenant,
        "context": pair.looked.asking.rest.hex(),
        "a": near.record.text,
        "b": pair.looked.asking.text,
        "answer_a": pair.stored,
        "answer_b": pair.fresh,
        "same": None,
        "judge": judge,
        "judged": same,
        "intent": str(near.record.intent),
        "cosine": near.cosine,
        "score": decision.score,
        "threshold": decision.threshold,
        "id": near.record.id,
        "at": time.time(),
    }
