"""From a deployment to findings: facts are gathered, then judged."""

from __future__ import annotations

import asyncio
import platform
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from trivet import __version__
from trivet.errors import ConfigError
from trivet.middleware.deployment_doctor.checks import check_all
from trivet.middleware.deployment_doctor.deployment import Deployment, Given, deployment_of
from trivet.middleware.deployment_doctor.facts import (
    Facts,
    MachineFacts,
    StoreFacts,
    UpstreamFacts,
)
from trivet.middleware.deployment_doctor.findings import Finding, fault
from trivet.middleware.deployment_doctor.gather_admin import gather_admin
from trivet.middleware.deployment_doctor.gather_policies import gather_policies
from trivet.middleware.deployment_doctor.gather_store import gather_secret, gather_store
from trivet.middleware.deployment_doctor.gather_upstreams import gather_upstreams
from trivet.middleware.running.config import UpstreamConfig
from trivet.progress import busy


def diagnose(config_file: Path | None, given: Given) -> list[Finding]:
    """What is found of the deployment that these flags tell of; see `deployment_of`."""
    try:
        deployment = deployment_of(config_file, given)
    except ConfigError as error:
        remedy = "mend it: `trivet serve` does not start with it"
        return [fault("config", str(one), remedy) for one in error.problems]
    with busy("looking at stores, upstreams and models"):
        facts = _gather(deployment)
    return check_all(facts, deployment)


def _gather(deployment: Deployment) -> Facts:
    config, env = deployment.config, deployment.env
    store, upstreams = asyncio.run(_over_the_network(deployment))
    return Facts(
        machine=MachineFacts(__version__, platform.python_version(), _missing(deployment)),
        secret=gather_secret(config.store, env),
        store=store,
        upstreams=upstreams,
        policies=gather_policies(deployment),
        # Not in a thread: Ctrl-C would wait for it.
        admin=gather_admin(deployment.admin, deployment.admin_key),
        today=datetime.now(UTC).date(),
    )


async def _over_the_network(
    deployment: Deployment,
) -> tuple[StoreFacts, tuple[UpstreamFacts, ...]]:
    return await asyncio.gather(
        gather_store(deployment.config.store),
        gather_upstreams(deployment.upstreams, deployment.env),
    )


def _missing(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Settings whose library is not there, each with its extra."""
    config = deployment.config
    upstreams = deployment.upstreams
    wanted = (
        (config.store.url.startswith(("redis", "valkey")), "redis", "store.url", "redis"),
        (config.store.encrypt, "cryptography", "store.encrypt", "encryption"),
        (config.tracing, "opentelemetry.sdk", "tracing", "otel"),
        (any(_has_events(one) for one in upstreams), "zmq", "replicas.kv_events", "fleet"),
    )
    return tuple(
        (setting, extra)
        for needed, module, setting, extra in wanted
        if needed and not _installed(module)
    )


def _has_events(upstream: UpstreamConfig) -> bool:
    return any(one.kv_events is not None for one in upstream.replicas)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
