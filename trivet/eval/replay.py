"""Plays recorded traffic through the real tiers, in order, with a fresh store and a virtual clock.

Nothing of the future leaks: a request finds only what was asked and answered before it arrived. An
answer is there once its own request has ended, as many seconds later as the upstream took.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from trivet.errors import EmbedderError
from trivet.eval.remembered import Foreseen
from trivet.eval.replay_result import Played
from trivet.exact.entry import Entry
from trivet.exact.key import pool_key
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Hit, Question
from trivet.messages import ExactKey, Usage
from trivet.policies.semantic_model import SemanticPolicy
from trivet.policies.traffic import RecordedAnswer, Traffic
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.semantic.engines import Engines
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.tier import Asking, Feed, Learned, Looked, SemanticTier
from trivet.semantic.types import Record
from trivet.telemetry import ignore

_AHEAD = 64
"""Requests whose texts are embedded together."""
_TRIES = 4
"""Neighbours that are tried while the answers of nearer ones are gone, as in the proxy."""
_NO_DEADLINE_S = 86_400.0
"""Of embedder and cross-encoder: a replay waits for them where a request would not."""
_STARTS = 60_000
_UNKNOWN = frozenset({"assisted"})
"""Why an answer was not stored that would have been stored under another policy."""


@dataclass(frozen=True, slots=True)
class How:
    """What is replayed under."""

    policy: SemanticPolicy
    """Of every tenant. Its calibration is attached; what it would serve is what counts."""
    ttl: float | None = None
    """Lifetime of every answer in seconds; None is as recorded."""
    capacity: int = 1_000_000
    """Answers that the exact store holds."""


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Ending(NamedTuple):
    """A request that was sent to the model, and ends at `at`."""

    at: float
    number: int
    row: Traffic
    key: ExactKey
    looked: Looked | None


@dataclass(slots=True)
class _Semantic:
    tier: SemanticTier
    index: PartitionedIndex
    embedder: Foreseen
    engines: Engines


async def replay(
    rows: Iterable[Traffic], how: How, models: tuple[Chain, Foreseen] | None
) -> AsyncGenerator[Played, None]:
    """What became of each request, in order. `rows` are by arrival.

    Without `models` the exact tier alone is played. Raises `EmbedderError`.
    """
    clock = _Clock()
    semantic = None if models is None else _semantic(how, models, clock)
    player = _Player(how, clock, semantic)
    try:
        if semantic is not None:
            await _ready(semantic.engines, how.policy)
        for some in _chunks(iter(rows), _AHEAD):
            if semantic is not None:
                texts = [row.text for row in some if row.text is not None and not row.exact.reason]
                await asyncio.to_thread(semantic.embedder.foresee, texts)
            # An exact replay awaits nothing else, and has to notice that it is interrupted.
            await asyncio.sleep(0)
            for row in some:
                yield await player.play(row)
            player.tidy()
    finally:
        if semantic is not None:
            await semantic.engines.close()


def _chunks(rows: Iterator[Traffic], size: int) -> Iterator[list[Traffic]]:
    while some := list(islice(rows, size)):
        yield some


def _semantic(how: How, models: tuple[Chain, Foreseen], clock: _Clock) -> _Semantic:
    chain, embedder = models
    index = PartitionedIndex(lambda tenant: how.policy.max_entries, clock=clock)

    async def add(record: Record) -> None:
        index.add(record)

    async def remove(tenant: str, record_id: str) -> None:
        index.remove(tenant, record_id)

    engines = Engines(
        lambda key: chain,
        lambda one: BatchedEmbedder(one.embedder, 1, _NO_DEADLINE_S),
        verify_s=_NO_DEADLINE_S,
    )
    feed = Feed(add=add, confirm=add, remove=remove, building=lambda: False)
    tier = SemanticTier(engines, index, feed, lambda tenant, policy, intent: "", clock)
    return _Semantic(tier, index, embedder, engines)


async def _ready(engines: Engines, policy: SemanticPolicy) -> None:
    """Wait for the chain, which is open: the engine is made in the background all the same."""
    for _ in range(_STARTS):
        if not isinstance(engines.ready(policy), str):
            return
        await asyncio.sleep(0.001)
    raise EmbedderError("loading", "The semantic tier did not start.")


class _Player:
    """Plays one request after the other. Their times never go back."""

    def __init__(self, how: How, clock: _Clock, semantic: _Semantic | None) -> None:
        self._how = how
        self._clock = clock
        self._semantic = semantic
        self._exact = ExactTier(
            MemoryStore(1 << 40, how.capacity, clock=clock), ignore, clock=clock
        )
        self._ending: list[_Ending] = []
        self._flying: Counter[tuple[str, bytes]] = Counter()
        self._sent = 0

    async def play(self, row: Traffic) -> Played:
        """What becomes of a request, by all that has ended before it arrived."""
        await self._end_until(row.at)
        self._clock.now = row.at
        if row.exact.reason and row.exact.reason != "no-cache":
            return Played(row, "bypass", row.exact.reason)
        key = ExactKey(bytes.fromhex(row.key))
        looks = not row.exact.reason
        place = key
        if looks:
            found = await self._find(row, key)
            if isinstance(found, Hit):
                return Played(row, "hit", "", saved=_answer_of(found.entry))
            place = found
        looked, played = await self._similar(row, key, looks=looks)
        if played is not None and played.semantic == "hit":
            return played
        alone = not looks or row.exact.pool is not None
        if not alone and self._flying[row.tenant, key]:
            # The leader's answer, which is this one's as well.
            saved = row.answer.model_copy(update={"tier": "model", "upstream_s": 0.0})
            return _also(played, row, "collapsed", saved)
        self._send(row, place, looked)
        return _also(played, row, "miss", None)

    def tidy(self) -> None:
        """Let expired questions go, and large partitions be indexed, as the proxy does."""
        if self._semantic is None:
            return
        self._semantic.index.sweep()
        while (job := self._semantic.index.due()) is not None:
            job()()

    async def _find(self, row: Traffic, key: ExactKey) -> Hit | ExactKey:
        """The stored answer, or the key under which a new one is kept."""
        question = _question(row, key)
        if row.exact.pool is None:
            found = await self._exact.find(question)
        else:
            slots = [pool_key(key, slot) for slot in range(row.exact.pool)]
            found = await self._exact.draw(question, slots)
        return found if isinstance(found, Hit) else found.key

    async def _similar(
        self, row: Traffic, key: ExactKey, *, looks: bool
    ) -> tuple[Looked | None, Played | None]:
        semantic = self._semantic
        if semantic is None or not looks or row.exact.pool is not None:
            return None, None
        if row.unasked or row.text is None or row.rest is None:
            reason = row.unasked or "redacted"
            return None, Played(row, "miss", semantic="bypass", semantic_reason=reason)
        asking = Asking(
            tenant=row.tenant,
            policy=self._how.policy,
            text=row.text,
            rest=bytes.fromhex(row.rest),
            principal=row.principal,
            may_write=row.may_write,
        )
        looked, hit = await self._look(semantic, asking, _question(row, key))
        intent = "" if looked.intention is None else str(looked.intention.intent)
        if hit is not None:
            return looked, _served(row, hit, intent)
        decision = looked.decision
        kind = "miss" if decision.kind in ("hit", "assist") else decision.kind
        reason = decision.reason or "no-answer"
        return looked, Played(
            row, "miss", semantic=kind, semantic_reason=reason, intent=intent, asked=True
        )

    async def _look(
        self, semantic: _Semantic, asking: Asking, question: Question
    ) -> tuple[Looked, Hit | None]:
        looked = await semantic.tier.look(asking)
        for _ in range(_TRIES):
            near = looked.decision.neighbour
            if looked.decision.kind not in ("hit", "assist") or near is None:
                return looked, None
            found = await self._exact.named(question._replace(key=ExactKey(near.record.key)))
            if isinstance(found, Hit):
                semantic.index.touch(asking.tenant, near.record.id)
                return looked, found
            if found.reason not in ("", "expired"):
                return looked, None
            await semantic.tier.forget(asking.tenant, near.record.id)
            looked = await semantic.tier.look(asking)
        return looked, None

    def _send(self, row: Traffic, key: ExactKey, looked: Looked | None) -> None:
        self._sent += 1
        at = row.at + row.answer.upstream_s
        heapq.heappush(self._ending, _Ending(at, self._sent, row, key, looked))
        if _stored(row.answer) and row.exact.store:
            self._flying[row.tenant, key] += 1

    async def _end_until(self, at: float) -> None:
        while self._ending and self._ending[0].at <= at:
            await self._end(heapq.heappop(self._ending))

    async def _end(self, ending: _Ending) -> None:
        row = ending.row
        self._clock.now = ending.at
        if not (_stored(row.answer) and row.exact.store):
            return
        place = row.tenant, ending.key
        self._flying[place] -= 1
        if not self._flying[place]:
            del self._flying[place]
        entry = _entry(row, ending.key, row.exact.ttl if self._how.ttl is None else self._how.ttl)
        await self._exact.keep(entry, Bound())
        plain = row.answer.plain or row.answer.reason in _UNKNOWN
        if self._semantic is None or ending.looked is None or not plain:
            return
        learned = Learned(entry.key, entry.created, entry.expires, frozenset())
        agrees = await self._agrees(ending.looked, row)
        await self._semantic.tier.learn(ending.looked, learned, agrees=agrees)

    async def _agrees(self, looked: Looked, row: Traffic) -> bool:
        near = looked.decision.neighbour
        if looked.decision.reason != "quarantine" or near is None:
            return False
        stored = await self._exact.entry(row.tenant, ExactKey(near.record.key))
        return stored is not None and differs(_answer_of(stored), row.answer) is False


def _question(row: Traffic, key: ExactKey) -> Question:
    exact = row.exact
    return Question(row.tenant, key, b"", exact.max_age, min_fresh=exact.min_fresh)


def _stored(answer: RecordedAnswer) -> bool:
    """Whether the request's own answer is one that is stored.

    The answer that a request served by the semantic tier would have got is not known; most are.
    """
    return answer.tier == "semantic" or not answer.reason or answer.reason in _UNKNOWN


def _entry(row: Traffic, key: ExactKey, ttl: float) -> Entry:
    usage, expires = row.answer.usage, row.at + ttl
    return Entry(
        key=key,
        tenant=row.tenant,
        api=row.api,
        canonical=b"",
        body=row.answer.model_dump_json().encode(),
        model=row.model,
        usage=None if usage is None else Usage(usage.input, usage.output),
        ids=(),
        created=row.at,
        expires=expires,
        stale_until=expires,
    )


def _answer_of(entry: Entry) -> RecordedAnswer:
    return RecordedAnswer.model_validate_json(entry.body)


def _served(row: Traffic, hit: Hit, intent: str) -> Played:
    stored = _answer_of(hit.entry)
    return Played(
        row,
        "miss",
        semantic="hit",
        intent=intent,
        saved=stored,
        differs=differs(stored, row.answer),
        asked=True,
    )


def _also(played: Played | None, row: Traffic, exact: str, saved: RecordedAnswer | None) -> Played:
    if played is None:
        return Played(row, exact, row.exact.reason, saved=saved)
    return played._replace(exact=exact, saved=saved)


def differs(stored: RecordedAnswer, fresh: RecordedAnswer) -> bool | None:
    """Whether two answers differ in their words, case aside; None where one is not recorded."""
    if stored.text is None or fresh.text is None:
        return None
    return stored.text.casefold().split() != fresh.text.casefold().split()
