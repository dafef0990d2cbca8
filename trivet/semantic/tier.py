"""The semantic tier: look up a similar question, and learn a new one. No method raises.

The answer itself is the exact tier's: a record says which exact entry answers a question, and
without that entry there is no hit. TTLs, purges and versions of the exact tier hold here too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from trivet.canonical import digest
from trivet.errors import EmbedderError
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import Quarantine, SemanticPolicy
from trivet.semantic.decide import Decision, Standing, decide
from trivet.semantic.engines import Engine, Engines
from trivet.semantic.poison import instructs
from trivet.semantic.types import (
    Intention,
    Neighbour,
    Partition,
    Record,
    TextPair,
    Verdict,
)
from trivet.semantic.unseen import unseen

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_TAG = b"trivet-semantic-v1"
_MOST_SEEN = 16
_LONGEST = 4096
"""Characters of an answer that are compared by their vectors."""


class Index(Protocol):
    """The part of `partitions.PartitionedIndex` that the tier needs."""

    def nearest(
        self, partition: Partition, vector: Vectors, k: int, now: float
    ) -> list[Neighbour]: ...

    def touch(self, tenant: str, record_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Feed:
    """How the tier changes what is stored, here and in the other processes. Raises nothing."""

    add: Callable[[Record], Awaitable[None]]
    confirm: Callable[[Record], Awaitable[None]]
    remove: Callable[[str, str], Awaitable[None]]
    """Tenant and record id."""
    building: Callable[[], bool]
    """Whether the index is still being read in after the start."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A question and everything that was decided about it."""

    tenant: str
    policy: SemanticPolicy
    text: str
    rest: bytes
    """Digest of all that has to be equal but the text."""
    principal: str
    """Opaque name of who asks."""
    scope: str = ""
    """Who may be answered by what: vectors are shared within it, since a text that was embedded
    before is answered sooner."""
    may_write: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """What a lookup found. `vector` and `intention` are there once the text was read."""

    decision: Decision
    asking: Asking
    partition: Partition | None = None
    vector: Vectors | None = None
    intention: Intention | None = None
    at: float = 0.0
    """When it was looked up, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Learned:
    """An answer that came in for a question. Times are Unix seconds."""

    key: bytes
    created: float
    expires: float
    labels: frozenset[str]


class SemanticTier:
    """Looks up and learns, for one event loop."""

    def __init__(
        self,
        engines: Engines,
        index: Index,
        feed: Feed,
        closed: Callable[[str, SemanticPolicy, Intent], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`closed` tells why the running measurement has closed a tenant's intent, or nothing."""
        self._engines = engines
        self._index = index
        self._feed = feed
        self._closed = closed
        self._clock = clock

    async def look(self, asking: Asking) -> Looked:
        """Find the nearest stored question and decide about it."""
        engine = self._engines.ready(asking.policy)
        if isinstance(engine, str):
            return Looked(Decision("miss", engine), asking)
        try:
            vector = await engine.embedder.embed(asking.text, asking.scope)
            return await self._look(engine, asking, vector)
        except EmbedderError as error:
            return Looked(Decision("miss", f"embedder-{error.reason}"), asking)
        except Exception:
            # A boundary: models and indexes are other people's code, and a request is not lost
            # over them.
            return Looked(Decision("miss", "semantic-failed"), asking)

    async def _look(self, engine: Engine, asking: Asking, vector: Vectors) -> Looked:
        chain = engine.chain
        partition = Partition(digest(_TAG, chain.embedder.fingerprint.encode(), asking.rest))
        (intention,) = chain.classify([asking.text], vector.reshape(1, -1))
        now = self._clock()
        measured = asking.policy.measured
        found: tuple[Neighbour, Verdict] | None = None
        strange = unseen(asking.text, measured)
        if not strange and intention.admitted and intention.intent in asking.policy.intents:
            near = self._index.nearest(partition, vector, 1, now)
            if near:
                verdict = await _verify(engine, near[0], asking)
                if isinstance(verdict, str):
                    decision = Decision("miss", verdict)
                    return Looked(decision, asking, partition, vector, intention, now)
                found = near[0], verdict
                strange = unseen(near[0].record.text, measured)
        standing = Standing(
            chain.fingerprint,
            measured,
            self._closed(asking.tenant, asking.policy, intention.intent),
            strange,
        )
        decision = decide(intention, found, standing, asking.policy, now)
        if decision.kind in ("hit", "assist") and decision.neighbour is not None:
            self._index.touch(asking.tenant, decision.neighbour.record.id)
        if decision.reason == "no-neighbour" and self._feed.building():
            decision = Decision("miss", "index-building")
        return Looked(decision, asking, partition, vector, intention, now)

    async def alike(self, asking: Asking, stored: str, fresh: str) -> bool:
        """Whether two answers say the same: by their words, or by their vectors' cosine where the
        policy's judge is `embedder`."""
        if stored.casefold().split() == fresh.casefold().split():
            return True
        judge, engine = asking.policy.audit.judge, self._engines.ready(asking.policy)
        if judge.kind != "embedder" or isinstance(engine, str):
            return False
        try:
            one = await engine.embedder.embed(stored[:_LONGEST], asking.scope)
            other = await engine.embedder.embed(fresh[:_LONGEST], asking.scope)
        except EmbedderError:
            return False
        return float(one @ other) >= judge.threshold

    async def learn(self, looked: Looked, answer: Learned, *, agrees: bool = False) -> str:
        """Keep the question with its new answer. Returns why it was not kept, or an empty string.

        `agrees`: the answer says the same as that of the neighbour in quarantine.
        """
        asking, intention = looked.asking, looked.intention
        if looked.vector is None or looked.partition is None or intention is None:
            return looked.decision.reason
        refused = _unlearned(asking, intention)
        if refused:
            return refused
        quarantine = asking.policy.quarantine
        near = looked.decision.neighbour
        if quarantine and near and looked.decision.reason == "quarantine":
            if agrees:
                # It gathers what speaks for it: a second one would share the votes.
                await self._vouch(near.record, asking.principal, quarantine)
                return "vouched"
            await self._feed.remove(asking.tenant, near.record.id)  # Its answer is contested.
        ttl = asking.policy.intent_ttl.get(intention.intent, asking.policy.ttl)
        await self._feed.add(
            Record(
                id=secrets.token_hex(16),
                tenant=asking.tenant,
                partition=looked.partition,
                key=answer.key,
                text=asking.text,
                vector=looked.vector.astype("<f4").tobytes(),
                intent=intention.intent,
                created=answer.created,
                expires=min(answer.expires, answer.created + ttl),
                labels=answer.labels,
                author=asking.principal,
                confirmed=quarantine is None or (quarantine.users <= 1 or quarantine.answers <= 1),
                seen=(asking.principal,),
            )
        )
        return ""

    async def _vouch(self, record: Record, principal: str, quarantine: Quarantine) -> None:
        seen = record.seen
        if principal not in seen and len(seen) < _MOST_SEEN:
            seen = (*seen, principal)
        answers = record.answers + 1
        confirmed = len(seen) >= quarantine.users or answers >= quarantine.answers
        await self._feed.confirm(replace(record, seen=seen, answers=answers, confirmed=confirmed))

    async def forget(self, tenant: str, record_id: str) -> None:
        """Take a record out: its answer is gone, or it was reported as wrong."""
        await self._feed.remove(tenant, record_id)


async def _verify(engine: Engine, neighbour: Neighbour, asking: Asking) -> Verdict | str:
    """What the chain makes of the two texts; of one that is slow, maybe why it says nothing."""
    pair = TextPair(neighbour.record.text, asking.text, neighbour.cosine)
    if engine.slow is not None:
        return await engine.slow.verify(pair, asking.tenant)
    return engine.chain.verify([pair])[0]


def _unlearned(asking: Asking, intention: Intention) -> str:
    if not intention.admitted:
        return intention.reason or f"intent-{intention.intent}"
    if intention.intent not in asking.policy.intents:
        return f"intent-{intention.intent}"
    strange = unseen(asking.text, asking.policy.measured)
    if strange:
        return strange
    if not asking.may_write:
        return "writer"
    return instructs(asking.text) or ""
