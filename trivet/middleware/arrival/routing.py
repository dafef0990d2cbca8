"""Which upstream a request goes to: by prefix, API family, model, and what the tenant may use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trivet.errors import ConfigError, Problem, RequestError
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner
from trivet.middleware.running.config import DialectFamily, UpstreamConfig
from trivet.policies.model import TenantPolicy
from trivet.policies.settings import may_use_model, may_use_upstream, wildcard


def check_model(policy: TenantPolicy, model: str) -> None:
    """Raises `RequestError` 403 for a model that the tenant may not name."""
    if not may_use_model(policy, model):
        raise RequestError(
            403,
            f"The model {model!r} is not allowed for this tenant.",
            field="model",
            code="model_not_allowed",
        )


def keyless_upstreams(
    tenants: Mapping[str, TenantPolicy], upstreams: Sequence[UpstreamConfig]
) -> list[Problem]:
    """Upstreams that may be asked without a key; warnings, because some need none.

    Keys made by `trivet keygen` are not sent on, and a hash does not tell whose key it is of.
    """
    known = [
        policy
        for _, policy in sorted(tenants.items())
        if any(credential.sha256 for credential in policy.credentials)
    ]
    found = []
    for upstream in upstreams:
        names = [one.tenant for one in known if may_use_upstream(one, upstream.name)]
        keyless = upstream.credential_env is None and upstream.engine_secret_env is None
        if keyless and names:
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            message = (
                f"is not set, so callers of {shown} with a key of `trivet keygen` reach it without "
                "any key; fine if it needs none."
            )
            found.append(Problem(f"upstream {upstream.name}", 0, 0, "credential_env", message))
    return found


def unset_variables(
    upstreams: Sequence[UpstreamConfig], env: Mapping[str, str] = os.environ
) -> list[Problem]:
    """Environment variables that `serve` will ask for and that are not set where this runs."""
    named = [
        (upstream.name, field, getattr(upstream, field))
        for upstream in upstreams
        for field in ("credential_env", "engine_secret_env")
    ]
    return [
        Problem(f"upstream {name}", 0, 0, field, f"names {variable}, which is not set here.")
        for name, field, variable in named
        if variable and not env.get(variable, "").strip()
    ]


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream with the credential that it is asked with; None sends the caller's own."""

    config: UpstreamConfig
    credential: bytes | None


class Routing:
    """The declared upstreams in their order. Raises `ConfigError` for a credential not set."""

    def __init__(
        self, upstreams: Sequence[UpstreamConfig], env: Mapping[str, str] = os.environ
    ) -> None:
        self._targets = tuple(
            Target(upstream, _credential(upstream, env)) for upstream in upstreams
        )
        self.signer = TenantSigner(upstreams, env)
        """Of requests to engines of our own."""
        self._prefixed = tuple(target for target in self._targets if target.config.prefix)

    def by_prefix(self, path: str) -> Target | None:
        """The upstream that `path` names by its prefix."""
        for target in self._prefixed:
            if path.startswith(target.config.prefix.rstrip("/") + "/"):
                return target
        return None

    def named(self, name: str) -> Target | None:
        """The upstream of this name."""
        return next((target for target in self._targets if target.config.name == name), None)

    def choose(
        self, policy: TenantPolicy, family: DialectFamily, model: str, named: Target | None
    ) -> Target:
        """Where a request for `model` goes. Raises `RequestError` 403 or 404 naming the model."""
        check_model(policy, model)
        for target in (named,) if named else self._targets:
            config = target.config
            if (
                family in config.dialects
                and may_use_upstream(policy, config.name)
                and any(wildcard(model, pattern) for pattern in config.models)
            ):
                return target
        raise RequestError(
            404,
            f"No upstream serves the model {model!r} for this tenant.",
            field="model",
            code="model_not_found",
        )

    def first(self, policy: TenantPolicy, family: DialectFamily, named: Target | None) -> Target:
        """Where a path goes that names no model. Raises `RequestError` 403."""
        for target in (named,) if named else self._targets:
            if family in target.config.dialects and may_use_upstream(policy, target.config.name):
                return target
        raise RequestError(403, "This tenant may use no upstream for this path.", code="forbidden")


def _credential(upstream: UpstreamConfig, env: Mapping[str, str]) -> bytes | None:
    name = upstream.credential_env
    if name is None:
        return None
    value = env.get(name, "").strip()
    if not value:
        raise _unusable(
            name, f"is not set, and the upstream {upstream.name!r} takes its key from it"
        )
    if not (value.isascii() and value.isprintable()):
        raise _unusable(name, f"holds a character that no key of {upstream.name!r} can have")
    return value.encode("ascii")


def _unusable(name: str, message: str) -> ConfigError:
    return ConfigError(Problem("environment", 0, 0, name, message))
