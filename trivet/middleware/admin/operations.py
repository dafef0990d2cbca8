"""The operator's side of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trivet.errors import RequestError, StoreError
from trivet.exact.purges import key_label
from trivet.exact.store import ExactStore
from trivet.messages import ExactKey
from trivet.middleware.admin.control import Ask, Component, Heard, Readiness, Said, Verdict
from trivet.middleware.admin.engine_purges import EnginePurges
from trivet.middleware.admin.health import StoreHealth
from trivet.middleware.admin.policy_check import checked
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.observe.books import statement
from trivet.middleware.observe.exposition import Snapshot, exposition
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.semantic_tier.effective import Running
from trivet.middleware.semantic_tier.feedback import Feedback, Told, unknown
from trivet.middleware.semantic_tier.semantics import Semantics
from trivet.policies.model import TenantPolicy
from trivet.policies.source import PolicySource
from trivet.policies.tenants import PolicySet, TenantDirectory
from trivet.telemetry import Observer, PolicyReload

Teller = Callable[[Any], Awaitable[Any]]
"""Tells the console what this process knows of a topic. Given what the page asks and gives back
JSON-able values. `RequestError` says what is wrong with what was asked."""


class Operations:
    """`Control` of one process."""

    def __init__(
        self,
        source: PolicySource,
        store: ExactStore,
        metrics: PrometheusObserver,
        observer: Observer,
        explainer: Explainer,
        health: StoreHealth,
    ) -> None:
        self._source = source
        self._store = store
        self._metrics = metrics
        self._observer = observer
        self._explainer = explainer
        self._health = health
        self.draining = False
        self.similar: Feedback | None = None
        """Where feedback about similar answers goes; set where the semantic tier runs."""
        self.semantics: Semantics | None = None
        self.prefixes: Callable[[], tuple[Component, ...]] = tuple
        """What the servers' prefix caches were found to be."""
        self.flood: Callable[[], Mapping[str, Any] | None] = lambda: None
        """What the guard against floods knows."""
        self.engine: Ask | None = None
        """The engine that this process runs, where it does."""
        self.engines: EnginePurges | None = None
        """Engines that keep KV for tenants."""
        self.forgets: list[Callable[[str], None]] = []
        """What this process lets go of when all of a tenant is purged."""
        self.tellers: dict[str, Teller] = {}
        """What this process tells the console, by topic."""

    @property
    def in_use(self) -> PolicySet:
        """The policies in use."""
        return self._source.current

    @property
    def directory(self) -> TenantDirectory:
        """Who is which tenant, under the policies in use."""
        return self._source.tenants

    @property
    def tenants(self) -> Mapping[str, TenantPolicy]:
        """The policies in use, by tenant."""
        return self._source.current.tenants

    async def ready(self) -> Readiness:
        """Not ready while draining, and without the engine that the proxy was to run: a store in
        trouble costs hits, not answers, and caches answer for an upstream that is down."""
        stores = await self._health.components(self._store)
        policies = Component("policies", True, "up", f"version {self._source.current.version}")
        if self._source.problem is not None:
            policies = Component(
                "policies", True, "stale", f"the old set is in use: {self._source.problem}"
            )
        server = Component("server", not self.draining, "draining" if self.draining else "up")
        semantic = () if self.semantics is None else self.semantics.components()
        engine = () if self.engine is None else (await self.engine(),)
        ok = server.ok and all(one.ok for one in engine)
        prefixes = self.prefixes()
        return Readiness(ok, (server, policies, *stores, *semantic, *prefixes, *engine))

    async def stats(self) -> dict[str, Any]:
        """Figures of this process and of its store."""
        try:
            stored: dict[str, Any] = asdict(await self._store.usage(None))
        except StoreError as error:
            stored = {"name": self._store.name, "error": error.reason}
        counters = self._metrics.snapshot()["counters"]
        told = {"store": stored, "money": statement(counters), "flood": self.flood()}
        return {**told, "metrics": counters}

    async def purge(
        self,
        tenant: str,
        *,
        tag: str | None,
        version: str | None,
        key: str | None,
        at: float | None = None,
    ) -> int:
        """Forget entries of a tenant in this process and in its store.

        `at` is the purge's time where several workers are asked: they have to agree on it.
        """
        now = time.time() if at is None else at
        check_declared(self._source.current, tenant)
        if key is not None:
            wanted = full_key(key)
            known = await self._store.get(tenant, wanted) is not None
            # So that an answer that is under way is not stored after it.
            await self._store.purge(tenant, key_label(wanted), now)
            await self._store.delete(tenant, wanted)
            return int(known)
        label = f"tag:{tag}" if tag is not None else None
        if version is not None:
            label = f"version:{version}"
        if self.semantics is not None:
            await self.semantics.purge(tenant, label, now)
        deleted = await self._store.purge(tenant, label, now)
        for forget in self.forgets if label is None else ():
            forget(tenant)
        if label is None and self.engines is not None:
            await self.engines.purge(tenant)
        return deleted

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        """Act on what the operator says of a similar answer."""
        policy = self.tenants.get(tenant)
        if policy is None:
            raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
        if self.similar is None:
            raise unknown(hit)
        return await self.similar.give(policy, Told(hit, verdict), "operator")

    async def verdicts(self, tenant: str, said: Sequence[Said]) -> list[Heard]:
        """Act on what a person says of hits that were drawn."""
        policy = self.tenants.get(tenant)
        if policy is None:
            raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
        verdicts = None if self.semantics is None else self.semantics.verdicts
        if verdicts is None:
            raise not_open()
        return await verdicts.give(policy, said)

    async def reload(self) -> PolicyReload:
        """Read the policies again, once their files are at rest."""
        result = await self._source.reload_at_rest()
        self._observer(result)
        return result

    async def explain(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str | None = None
    ) -> dict[str, Any]:
        """What would happen to a request under the policies in use."""
        tenants = self._source.tenants
        return self._explainer.explain(tenants, path, headers, body, self.running, tenant=tenant)

    def running(self, policy: TenantPolicy) -> Running | None:
        """What the semantic tier of this process knows of a tenant."""
        return None if self.semantics is None else self.semantics.running(policy)

    def snapshot(self) -> Snapshot:
        """The metrics of this process, to be merged with others'."""
        return self._metrics.snapshot()

    async def metrics(self) -> bytes:
        """The metrics of this process."""
        return await asyncio.to_thread(exposition, self.snapshot())

    async def check_policy(self, text: str) -> dict[str, Any]:
        """What a text would be as a policy file."""
        return await checked(self._source, text)

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        """What this process knows of a topic of the console; empty where nobody here tells it."""
        teller = self.tellers.get(topic)
        return [] if teller is None else [await teller(asked)]

    def policies(self) -> dict[str, Any]:
        """The policies in use."""
        return shown_policies(self._source)


def shown_policies(source: PolicySource) -> dict[str, Any]:
    """The policies in use as JSON values."""
    current = source.current
    tenants = {name: policy.model_dump(mode="json") for name, policy in current.tenants.items()}
    return {"version": current.version, "tenants": tenants}


def check_declared(policies: PolicySet, tenant: str) -> None:
    """Raises `RequestError` 404 for a tenant that no policy declares, where there are policies."""
    if policies.declared and tenant not in policies.tenants:
        raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")


def not_open() -> RequestError:
    """What is said of verdicts while the semantic tier does not run."""
    message = "The semantic tier is not open here; send the verdicts again once /readyz says it is."
    return RequestError(503, message, code="semantic-not-open")


def full_key(text: str) -> ExactKey:
    """An exact key from hex. Raises `RequestError` 422."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise RequestError(
            422, "A key is 64 hex digits, as `trivet explain --admin URL` prints it.", field="key"
        )
    return ExactKey(key)


async def follow_policies(source: PolicySource, observer: Observer) -> None:
    """Reload whenever a policy file changes."""
    async for result in source.watch():
        observer(result)


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it is over."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
