"""Facts about policies and calibrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trivet.errors import CacheError, ConfigError, Problem
from trivet.middleware.arrival.routing import Routing, unset_variables
from trivet.middleware.deployment_doctor.deployment import Deployment
from trivet.middleware.deployment_doctor.facts import CalibrationFacts, FileFacts, PolicyFacts
from trivet.middleware.deployment_doctor.gather_store import file_facts
from trivet.middleware.running.named_users import nameable_users
from trivet.middleware.running.unreached import unreached
from trivet.middleware.semantic_tier.effective import Running, effective
from trivet.policies.calibration import Fingerprint
from trivet.policies.loader import ignored_files, load
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.policies.tenants import PolicySet
from trivet.semantic.decide import unfit

_WRITABLE_BY_OTHERS = 0o022
Opened = Callable[[SemanticPolicy], Fingerprint]
"""Blocking: loads the models that a policy names. Raises `CacheError`."""


def gather_policies(deployment: Deployment) -> PolicyFacts:
    """What the policies are, as the proxy would read them."""
    config = deployment.config
    unset = _variables(deployment)
    if config.policies is None:
        return PolicyFacts(problems=tuple(unset), loose=_loose(deployment, ()))
    names = [one.name for one in deployment.upstreams] or None
    try:
        policies = load(config.policies, names)
        ignored = ignored_files(config.policies)
    except ConfigError as error:
        loose = _loose(deployment, (config.policies,))
        return PolicyFacts(problems=(*error.problems, *unset), loose=loose)
    warnings = [
        *nameable_users(policies),
        *unreached(policies, gateway=config.gateway is not None),
        *(Problem(str(one), 0, 0, "", "is not read: name it *.yaml") for one in ignored),
    ]
    return PolicyFacts(
        tenants=tuple(sorted(policies.tenants)),
        problems=tuple(unset),
        warnings=tuple(warnings),
        calibrations=_calibrations(policies, deployment.models),
        loose=_loose(deployment, (config.policies, *_files(policies))),
    )


def _variables(deployment: Deployment) -> list[Problem]:
    """Keys and secrets that are not set here, or that no upstream can take."""
    gateway, env = deployment.config.gateway, deployment.env
    found = unset_variables(deployment.upstreams, env)
    if gateway is not None and gateway.secret_env and not env.get(gateway.secret_env, "").strip():
        told = f"names {gateway.secret_env}, which is not set here."
        found.append(Problem("gateway", 0, 0, "secret_env", told))
    if not found:
        try:
            Routing(deployment.upstreams, env)
        except ConfigError as error:
            found.extend(error.problems)
    return found


def _files(policies: PolicySet) -> list[Path]:
    return [Path(source.file) for source in policies.sources.values()]


def _loose(deployment: Deployment, named: Iterable[Path]) -> tuple[FileFacts, ...]:
    config = [] if deployment.config_file is None else [deployment.config_file]
    seen = map(file_facts, (*config, *named))
    return tuple(one for one in seen if one.mode is not None and one.mode & _WRITABLE_BY_OTHERS)


def _calibrations(policies: PolicySet, models: bool) -> tuple[CalibrationFacts, ...]:
    on = {
        tenant: policy
        for tenant, policy in sorted(policies.tenants.items())
        if policy.semantic.mode != "off"
    }
    if not on:
        return ()
    return calibration_facts(on, _opener() if models else None)


def calibration_facts(
    tenants: Mapping[str, TenantPolicy], opened: Opened | None
) -> tuple[CalibrationFacts, ...]:
    """What each tenant's mode comes to; `opened` tells the fingerprint of the chain that runs."""
    return tuple(
        CalibrationFacts(
            tenant,
            effective(policy.semantic, _running(policy.semantic, opened)),
            None if policy.semantic.measured is None else policy.semantic.measured.made,
            compared=opened is not None,
        )
        for tenant, policy in tenants.items()
    )


def _running(policy: SemanticPolicy, opened: Opened | None) -> Running | None:
    if opened is None or policy.measured is None:
        return None
    try:
        return Running(unfit(policy, opened(policy)))
    except CacheError as error:
        return Running("embedder-missing", str(error))
    except Exception as error:
        # Whatever a model's library raises, it is what the proxy would meet.
        return Running("embedder-missing", f"{type(error).__name__}: {error}")


def _opener() -> Opened | None:
    try:
        from trivet.middleware.semantic_tier.parts import Chains
        from trivet.semantic.engines import key_of
    except ImportError as error:
        told = f"needs {error.name or error}: pip install 'trivet[semantic]'"

        def missing(_: SemanticPolicy) -> Fingerprint:
            raise CacheError(told)

        return missing
    chains = Chains()
    return lambda policy: chains.open(key_of(policy)).fingerprint
