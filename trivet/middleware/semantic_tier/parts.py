"""Builds the semantic tier of one process. Imported in a thread: it brings numpy with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trivet.canonical import mac
from trivet.errors import StoreError
from trivet.exact.collapse import Collapser
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.exact.tier import ExactTier, Question
from trivet.middleware.admin.control import Component
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.call import Call
from trivet.middleware.record import Leader
from trivet.middleware.running.config import StoreConfig, state_dir
from trivet.middleware.running.stores import store_url
from trivet.middleware.semantic_tier.audits import Audits, Bench
from trivet.middleware.semantic_tier.effective import Running
from trivet.middleware.semantic_tier.feedback import Feedback
from trivet.middleware.semantic_tier.hit_log import HitLog
from trivet.middleware.semantic_tier.insight import Insight, Known
from trivet.middleware.semantic_tier.judging import judges
from trivet.middleware.semantic_tier.label_queue import LabelQueue
from trivet.middleware.semantic_tier.monitor_stores import monitor_store_of
from trivet.middleware.semantic_tier.tier import Similar, Suggested
from trivet.middleware.semantic_tier.verdicts import Verdicts
from trivet.middleware.upstream import Sender
from trivet.policies.calibration import Fingerprint
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.semantic.decide import unfit
from trivet.semantic.draws import DrawNames
from trivet.semantic.embedders import open_embedder
from trivet.semantic.engines import EngineKey, Engines
from trivet.semantic.follower import IndexFollower
from trivet.semantic.gate import load_gate
from trivet.semantic.memory_records import MemoryRecords
from trivet.semantic.monitor import Monitor
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.records import (
    Added,
    Confirmed,
    Event,
    Purged,
    RecordBound,
    RecordStore,
    Removed,
)
from trivet.semantic.sqlite_records import SqliteRecords
from trivet.semantic.tally import Rules
from trivet.semantic.tier import Asking, Feed, Looked, SemanticTier
from trivet.semantic.types import Embedder, Record
from trivet.semantic.verifiers import open_chain
from trivet.telemetry import Observer

_DEADLINE_S = 0.5
_UNDECLARED = 100_000
_MOST_NAMED = 5
"""Closed intents that readiness names."""
_PATIENCE = 4
"""Clean runs that an open tier is given before its running bound has to be under the target: with
1, a tier of half the target's false hits would be closed in 98 of 100 runs; with 4, a tier of an
eighth in 2 (300 simulated runs of 8,000 audits)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tier needs of the process that it runs in."""

    exact: ExactTier
    store: StoreConfig
    seal: Seal
    secret: bytes
    observer: Observer
    tenants: Callable[[], Mapping[str, TenantPolicy]]
    way: tuple[Collapser, Sender, Routing]
    """How audits reach a model."""


class Chains:
    """Opens chains; an embedder that several of them use is opened once. For one thread each."""

    def __init__(self) -> None:
        self._embedders: dict[str, Embedder] = {}

    def open(self, key: EngineKey) -> Chain:
        """Blocking. Raises `CacheError`."""
        found = self._embedders.get(key.embedder)
        if found is None:
            found = self._embedders[key.embedder] = open_embedder(key.embedder)
        return open_chain(key.chain, found, load_gate(), key.cross_encoder, key.fitted)


@dataclass(frozen=True, slots=True)
class Followed:
    """The index, what keeps it in step, the models, and the running measurement."""

    index: PartitionedIndex
    follower: IndexFollower
    engines: Engines
    monitor: Monitor


class OpenSemantics:
    """The tier, and what keeps it in step with the other processes."""

    def __init__(
        self,
        similar: Similar,
        followed: Followed,
        tenants: Callable[[], Mapping[str, TenantPolicy]],
        stack: AsyncExitStack,
        told: tuple[Feedback, Verdicts, Insight],
    ) -> None:
        self.feedback, self.verdicts, self.insight = told
        self._similar = similar
        self._followed = followed
        self._tenants = tenants
        self._stack = stack

    async def find(self, call: Call, question: Question) -> Suggested | None:
        """See `suggest.Similarity`."""
        return await self._similar.find(call, question)

    async def look(self, asking: Asking) -> Looked:
        """A lookup that nothing follows from."""
        return await self._similar.look(asking)

    def learn(self, call: Call, entry: Entry) -> None:
        """See `suggest.Similarity`."""
        self._similar.learn(call, entry)

    async def purge(self, tenant: str, label: str | None, at: float) -> None:
        """Forget records here and in the other processes."""
        if label is None:
            self.insight.forget(tenant)
        await _tell(self._followed.follower, Purged(tenant, label, at))

    def components(self) -> tuple[Component, ...]:
        """For readiness."""
        tenants, engines = self._tenants(), self._followed.engines
        troubles = engines.trouble(policy.semantic for policy in tenants.values())
        if troubles:
            told = f"{'; '.join(troubles)}: the tier serves nothing"
            return (Component("semantic", True, "down", told),)
        state, detail = self._state_of_index()
        if engines.loading and state == "up":
            state, detail = "loading", "loading the models"
        for told in (self._closed(tenants), _watching(tenants, engines)):
            if told:
                state = "degraded" if state == "up" else state
                detail = f"{detail}; {told}"
        return (Component("semantic", True, state, detail),)

    def running(self, tenant: str, policy: SemanticPolicy) -> Running:
        """What is known of a tenant beyond its policy: asks what a lookup asks."""
        engine = self._followed.engines.ready(policy)
        troubles = "; ".join(self._followed.engines.trouble([policy]))
        if isinstance(engine, str):
            return Running(engine, troubles)
        if troubles:
            return Running("unavailable", troubles)
        closed = self._followed.monitor.closed
        reasons = {str(intent): closed(tenant, policy, intent) for intent in policy.intents}
        return Running(
            unfit(policy, engine.chain.fingerprint),
            _other_parts(policy, engine.chain.fingerprint),
            {intent: reason for intent, reason in reasons.items() if reason},
        )

    def _state_of_index(self) -> tuple[str, str]:
        progress = self._followed.follower.progress
        if progress.phase == "building":
            return "building", f"building the index: {progress.share:.0%}"
        if progress.phase == "waiting":
            return "degraded", f"{progress.reason}: new entries of other processes are not seen"
        return "up", f"{self._followed.index.stats().entries} entries"

    def _closed(self, tenants: Mapping[str, TenantPolicy]) -> str:
        def policy_of(tenant: str) -> SemanticPolicy | None:
            found = tenants.get(tenant)
            return None if found is None else found.semantic

        closings = self._followed.monitor.closings(policy_of)
        named = [
            f"{tenant} {intent or 'all intents'} ({reason})"
            for tenant, intent, reason in closings[:_MOST_NAMED]
        ]
        if len(closings) > len(named):
            named.append(f"{len(closings) - len(named)} more")
        return f"closed by measurement: {', '.join(named)}" if named else ""

    async def close(self) -> None:
        """Close index, records and models."""
        await self._stack.aclose()


def _other_parts(policy: SemanticPolicy, running: Fingerprint) -> str:
    """Which parts of the chain that runs are not those that were calibrated; empty: none."""
    if policy.measured is None:
        return ""
    was, runs = policy.measured.fingerprint.model_dump(), running.model_dump()
    other = [name for name in was if was[name] != runs[name]]
    return f"another {' and '.join(other)}" if other else ""


def _watching(tenants: Mapping[str, TenantPolicy], engines: Engines) -> str:
    """Tenants whose policy says assist or replace, and who get neither: the calibration is not
    there, or is about other models."""
    found = []
    for tenant, policy in sorted(tenants.items()):
        if policy.semantic.mode in ("assist", "replace"):
            engine = engines.ready(policy.semantic)
            reason = (
                "" if isinstance(engine, str) else unfit(policy.semantic, engine.chain.fingerprint)
            )
            if reason:
                found.append(f"{tenant} ({reason})")
    more = [f"{len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    named = ", ".join(found[:_MOST_NAMED] + more)
    return f"watching only, whatever the policy says: {named}" if named else ""


async def open_tier(around: Surroundings) -> OpenSemantics:
    """Open the tier. Models are loaded when a policy first names them."""
    async with AsyncExitStack() as stack:
        bound = RecordBound(lambda tenant: _bound(around.tenants(), tenant))
        records = records_of(around.store, around.seal, bound, around.observer)
        stack.push_async_callback(records.close)
        index = PartitionedIndex(bound.of)
        follower = IndexFollower(records, index, around.observer)
        follower.start()
        stack.push_async_callback(follower.close)
        engines = Engines(
            Chains().open,
            lambda chain: BatchedEmbedder(
                chain.embedder, deadline_s=_DEADLINE_S, observer=around.observer
            ),
            around.observer,
        )
        stack.push_async_callback(engines.close)
        monitor, log = await _monitor(around, stack), HitLog()
        watch = _audits(around, monitor, engines, log)
        stack.push_async_callback(watch.close)
        tier = SemanticTier(engines, index, _feed(follower), monitor.closed)
        secret = mac(around.secret, b"trivet-principal")
        similar = Similar(tier, around.exact, secret, around.observer, watch, log)
        stack.push_async_callback(similar.close)
        forget = partial(_forget, records, index)
        feedback = Feedback(index.find, forget, monitor)
        verdicts = Verdicts(DrawNames(around.seal), forget, monitor)
        for policy in around.tenants().values():
            if policy.semantic.mode != "off":
                engines.ready(policy.semantic)  # Begins to load.
        followed = Followed(index, follower, engines, monitor)
        labels = LabelQueue(state_dir(os.environ) / "labels" / "judged")
        known = Known(index.find, around.exact, monitor, log, labels)
        told = feedback, verdicts, Insight(known, feedback, verdicts)
        return OpenSemantics(similar, followed, around.tenants, stack.pop_all(), told)


async def _monitor(around: Surroundings, stack: AsyncExitStack) -> Monitor:
    store = monitor_store_of(around.store, around.seal, around.observer)
    monitor = Monitor(store, around.observer, Rules(patience=_PATIENCE))
    monitor.start()
    stack.push_async_callback(monitor.close)
    return monitor


def _audits(around: Surroundings, monitor: Monitor, engines: Engines, log: HitLog) -> Audits:
    collapser, client, routing = around.way

    def embedder_of(policy: SemanticPolicy) -> BatchedEmbedder | None:
        engine = engines.ready(policy)
        return None if isinstance(engine, str) else engine.embedder

    labels = LabelQueue(state_dir(os.environ) / "labels")
    judge_of = judges(client, routing, embedder_of, around.observer)
    bench = Bench(monitor, judge_of, labels, DrawNames(around.seal), log)
    return Audits(Leader(client, around.exact), around.exact, collapser, bench)


async def _forget(
    records: RecordStore, index: PartitionedIndex, tenant: str, record_id: str
) -> None:
    # Published first: where that fails, the record is still there to be reported again.
    await records.publish(Removed(tenant, record_id))
    index.remove(tenant, record_id)


def _bound(tenants: Mapping[str, TenantPolicy], tenant: str) -> int:
    policy = tenants.get(tenant)
    return _UNDECLARED if policy is None else policy.semantic.max_entries


def _feed(follower: IndexFollower) -> Feed:
    async def add(record: Record) -> None:
        await _tell(follower, Added(record))

    async def confirm(record: Record) -> None:
        await _tell(follower, Confirmed(record))

    async def remove(tenant: str, record_id: str) -> None:
        await _tell(follower, Removed(tenant, record_id))

    return Feed(add, confirm, remove, lambda: follower.progress.phase == "building")


async def _tell(follower: IndexFollower, event: Event) -> None:
    # The follower tells of a store in trouble by itself; what it holds is served meanwhile.
    with suppress(StoreError):
        await follower.tell(event)


def records_of(
    config: StoreConfig, seal: Seal, bound: RecordBound, observer: Observer
) -> RecordStore:
    """Where records are kept: beside the exact store's entries."""
    url = store_url(config)
    if url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:"))
        return SqliteRecords(
            path.with_name(f"{path.name}-semantic"), seal, bound, observer=observer
        )
    if url.startswith(("redis", "valkey")):
        from trivet.exact.redis_client import connect
        from trivet.exact.store_url import parse_url
        from trivet.semantic.redis_records import RedisRecords

        link = connect(parse_url(url), timeout_s=2.0, connect_s=1.0, connections=8)
        return RedisRecords(link, seal, bound, observer=observer)
    return MemoryRecords()
