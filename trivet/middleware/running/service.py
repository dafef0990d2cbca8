"""Everything that one process runs: built inside its event loop, closed once."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from trivet.canonical import mac
from trivet.errors import ConfigError, Problem, StoreError
from trivet.exact.codec import Rejected, decode, encode
from trivet.exact.collapse import Collapser
from trivet.exact.entry import Entry
from trivet.exact.fleet import EventCodec
from trivet.exact.hub_client import HubClient
from trivet.exact.nested_fleet import NestedFleet
from trivet.exact.seal import Seal, load_secret
from trivet.exact.store import ExactStore
from trivet.exact.tier import ExactTier
from trivet.messages import ExactKey
from trivet.middleware.admin.answering import handlers_of
from trivet.middleware.admin.engine_purges import EnginePurges
from trivet.middleware.admin.health import StoreHealth
from trivet.middleware.admin.operations import Operations, follow_policies, stop
from trivet.middleware.app import ProxyApp
from trivet.middleware.arrival.intake import Intake
from trivet.middleware.arrival.quick import QuickLane
from trivet.middleware.arrival.recall import Recall
from trivet.middleware.arrival.reception import Reception, Tiers
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.console.prefix_telling import prefix_tellers
from trivet.middleware.console.semantic_telling import semantic_tellers
from trivet.middleware.console.telling import look_teller, tellers_of, usage_teller
from trivet.middleware.embeddings import Embeddings
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.fleets.fleets import Fleets
from trivet.middleware.fleets.probes import Probes
from trivet.middleware.observe.logs import LogObserver
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.observing import tell_all
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.observe.recent import RecentRequests
from trivet.middleware.observe.tracing import otlp_observer
from trivet.middleware.pipeline import CachePipeline
from trivet.middleware.prefix_tier.doctoring import Doctoring
from trivet.middleware.prefix_tier.flood import FloodGuard
from trivet.middleware.prefix_tier.metering import Metering
from trivet.middleware.prefix_tier.pinging import keep_warm_of
from trivet.middleware.prefix_tier.route_log import RouteLog
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner
from trivet.middleware.prefix_tier.slots import SlotBook
from trivet.middleware.prefix_tier.tier import Prefixes
from trivet.middleware.reply import Replies
from trivet.middleware.running.config import GatewayConfig, ServerConfig, state_dir
from trivet.middleware.running.stores import fleet_of, store_of
from trivet.middleware.running.strangers import Strangers
from trivet.middleware.semantic_tier.semantics import OpenTier, Semantics
from trivet.middleware.traffic.log import TrafficLog
from trivet.middleware.upstream import Sender, UpstreamClient
from trivet.policies.source import PolicySource
from trivet.policies.tenants import GatewayTrust
from trivet.telemetry import Observer

_WARM_S = 2.0
_PATIENCE = 5
"""Store budgets that an answer waits to be stored before its caller gets the end of it."""
_WINDOW = 1 << 20
"""Bytes that a reader of a shared stream may fall behind before the stream waits for it."""


class Within(NamedTuple):
    """What a service runs in: a server of ours, or somebody's process."""

    client: Callable[[TenantSigner, Fleets], UpstreamClient] = UpstreamClient
    helper: bool = True
    """See `Intake`."""


SERVER: Final = Within()


class Service:
    """One process of the proxy: `app` answers callers, `operations` the operator."""

    def __init__(
        self,
        app: ProxyApp,
        quick: QuickLane,
        operations: Operations,
        observer: Observer,
        stack: AsyncExitStack,
    ) -> None:
        self.app = app
        self.quick = quick
        self.operations = operations
        self.observer = observer
        self._stack = stack

    async def close(self) -> None:
        """Let go of connections, stores and tasks, in the reverse order of their making."""
        await self._stack.aclose()


def server_secret(config: ServerConfig, env: Mapping[str, str] = os.environ) -> bytes:
    """The deployment's secret: TRIVET_SECRET, or a file that is made on first use."""
    return load_secret(config.store.secret_file or state_dir(env) / "secret", env)


def policy_source(config: ServerConfig, secret: bytes) -> PolicySource:
    """The policies. Raises `ConfigError`, also where they name an upstream that is not there."""
    upstreams = [upstream.name for upstream in config.upstreams]
    return PolicySource(config.policies, secret, gateway_trust(config.gateway), upstreams)


async def open_service(
    config: ServerConfig, secret: bytes, hub: Path | None = None, within: Within = SERVER
) -> Service:
    """Build a process. `hub` is the machine hub's socket where there are several workers.

    Raises `ConfigError`. A store or fleet in trouble is not an error: the proxy starts without.
    What was opened before a step that raises is closed again.
    """
    async with AsyncExitStack() as stack:
        app, quick, operations, observer = await _open(config, secret, hub, stack, within)
        return Service(app, quick, operations, observer, stack.pop_all())


async def _open(
    config: ServerConfig,
    secret: bytes,
    hub: Path | None,
    stack: AsyncExitStack,
    within: Within,
) -> tuple[ProxyApp, QuickLane, Operations, Observer]:
    routing = Routing(config.upstreams)
    source = policy_source(config, secret)
    health = StoreHealth()
    pricing = Pricing()
    guard = FloodGuard(config.flood)
    routes, recent = RouteLog(), RecentRequests()
    metrics, observer = _observers(config, (health, guard, routes, recent), pricing)
    guard.observer = observer
    traffic = TrafficLog(config.traffic_log or state_dir() / "traffic.jsonl", secret, pricing.price)
    stack.push_async_callback(asyncio.to_thread, traffic.close)
    doctor = Doctoring(observer)
    doctor.examined = routes.examined
    stack.push_async_callback(asyncio.to_thread, doctor.close)
    seal = Seal(mac(secret, b"trivet-store"), encrypt=config.store.encrypt)
    store = store_of(config.store, seal, observer)
    stack.push_async_callback(store.close)
    await _warm(store)
    tier = ExactTier(store, observer, patience_s=_PATIENCE * config.store.budget)
    explainer = Explainer(routing, secret)
    operations = Operations(source, store, metrics, observer, explainer, health)
    codec = _event_codec(seal)
    fleet = await fleet_of(config.store, seal, codec, observer, stack)
    if hub is not None:
        machine = HubClient(hub, codec, observer, handlers_of(operations))
        await machine.start()
        stack.push_async_callback(machine.close)
        fleet = machine if fleet is None else NestedFleet(machine, fleet)
    collapser = Collapser(fleet, observer, keep_bytes=4 * _WINDOW, window=_WINDOW)
    collapser.purged = lambda tenant: store.purge_times.mark(tenant)
    stack.push_async_callback(collapser.close, config.drain)
    fleets = Fleets(config.upstreams, observer)
    stack.push_async_callback(fleets.close)
    fleets.start()
    upstream = within.client(routing.signer, fleets)
    stack.push_async_callback(upstream.close)
    operations.engines = EnginePurges(config.upstreams, routing.signer, upstream)
    prefixes = Prefixes(
        upstream,
        config.upstreams,
        secret,
        lambda: source.current,
        SlotBook(state_dir() / "prefix-slots", secret),
        observer,
    )
    metering = Metering(prefixes, upstream, observer, guard)
    prefixes.keep_warm = keep_warm_of(upstream, metering, pricing, observer)
    explainer.warmth = prefixes.keep_warm.state
    stack.push_async_callback(prefixes.keep_warm.close)
    operations.forgets.append(prefixes.keep_warm.forget)
    operations.flood = guard.told
    operations.forgets += [doctor.forget, routes.forget, recent.forget]
    operations.tellers.update(tellers_of(metrics, guard.told, recent))
    operations.tellers.update(prefix_tellers(routes, fleets.sets, operations))
    operations.tellers.update(semantic_tellers(operations))
    probes = Probes(upstream, config.upstreams, routing, observer)
    stack.push_async_callback(probes.close)
    prefixes.unsafe, prefixes.unverified = probes.unsafe, probes.unverified
    operations.prefixes = lambda: (*fleets.components(), *probes.components())
    explainer.doubt = probes.doubt
    probes.start()
    semantics = _semantics(
        config, secret, seal, (source, tier, observer), (collapser, metering, routing)
    )
    semantics.on_open = lambda tier: setattr(operations, "similar", tier.feedback)
    operations.semantics = semantics
    stack.push_async_callback(semantics.close)
    replies = Replies(mac(secret, b"trivet-shown-key"))
    recall = Recall()
    tiers = Tiers(
        CachePipeline(tier, collapser, metering, replies, config.collapse_wait, semantics),
        Embeddings(tier, collapser, metering, replies, config.collapse_wait),
        upstream,
        recall,
        semantics,
        prefixes,
        metering,
    )
    intake = Intake(config.max_body, config.body_timeout, helper=within.helper)
    stack.callback(intake.close)
    identify = Strangers(lambda: source.tenants).identify
    reception = Reception(
        identify,
        routing,
        intake,
        tiers,
        secret,
        _hidden(config.gateway),
    )
    operations.tellers["look"] = look_teller(operations, explainer)
    operations.tellers["usage"] = usage_teller(store, reception.in_flight)
    quick = QuickLane(identify, recall, tier, replies, observer)
    watching = asyncio.create_task(follow_policies(source, observer), name="trivet-policies")
    stack.push_async_callback(stop, watching)
    return ProxyApp(reception, observer, traffic, doctor), quick, operations, observer


def _semantics(
    config: ServerConfig,
    secret: bytes,
    seal: Seal,
    parts: tuple[PolicySource, ExactTier, Observer],
    way: tuple[Collapser, Sender, Routing],
) -> Semantics:
    source, tier, observer = parts

    async def opening() -> OpenTier:
        # Brings numpy and more with it: in a thread, so that requests go on meanwhile.
        module = await asyncio.to_thread(import_module, "trivet.middleware.semantic_tier.parts")
        around = module.Surroundings(
            tier, config.store, seal, secret, observer, lambda: source.current.tenants, way
        )
        opened: OpenTier = await module.open_tier(around)
        return opened

    semantics = Semantics(opening, observer)
    if any(policy.semantic.mode != "off" for policy in source.current.tenants.values()):
        semantics.begin()
    return semantics


def _observers(
    config: ServerConfig, listening: tuple[Observer, ...], pricing: Pricing
) -> tuple[PrometheusObserver, Observer]:
    pricing.start()
    metrics = PrometheusObserver(pricing)
    observers: list[Observer] = [metrics, *listening, LogObserver(access=config.log_requests)]
    if config.tracing:
        observers.append(otlp_observer())
    return metrics, tell_all(*observers)


async def _warm(store: ExactStore) -> None:
    """Open the store before the first request does. One that does not answer is started without."""
    with suppress(StoreError, TimeoutError):
        async with asyncio.timeout(_WARM_S):
            await store.ready()


def _event_codec(seal: Seal) -> EventCodec:
    def read(tenant: str, key: ExactKey, raw: bytes) -> Entry | None:
        entry = decode(raw, tenant, key, seal)
        return None if isinstance(entry, Rejected) else entry

    return EventCodec(lambda entry: encode(entry, seal), read)


def gateway_trust(
    config: GatewayConfig | None, env: Mapping[str, str] = os.environ
) -> GatewayTrust | None:
    """The declared gateway. Raises `ConfigError` where its secret is not set."""
    if config is None:
        return None
    digest: str | None = None
    if config.secret_env is not None:
        secret = env.get(config.secret_env, "").strip()
        if not secret:
            raise ConfigError(
                Problem("environment", 0, 0, config.secret_env, "the gateway's secret is not set")
            )
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    return GatewayTrust(config.header, config.secret_header, digest, config.peers)


def _hidden(gateway: GatewayConfig | None) -> frozenset[bytes]:
    if gateway is None:
        return frozenset()
    names = (gateway.header, gateway.secret_header)
    return frozenset(name.lower().encode("latin-1") for name in names if name)
