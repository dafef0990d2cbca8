"""`explain` with the upstreams of a running proxy, or with none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.exact.key import credential_scope
from trivet.middleware.arrival.routing import Routing, check_model
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.registry import dialect_of, route_of
from trivet.middleware.explain.considered import Case, Destination, consider
from trivet.middleware.explain.explain import Explanation, explain
from trivet.middleware.explain.sample import Sample, read_sample
from trivet.middleware.semantic_tier.effective import Running
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import Identified, TenantDirectory

RunningOf = Callable[[TenantPolicy], Running | None]
"""What the semantic tier of this process knows of a tenant; None where there is none."""


class Explainer:
    """Explains requests as they would fare in front of `routing`'s upstreams."""

    def __init__(self, routing: Routing | None, secret: bytes) -> None:
        self._routing = routing
        self._secret = secret
        self.warmth: Callable[[str, str, str], str | None] = lambda tenant, upstream, model: None
        """What this process knows of a tenant's prefixes that may be kept warm, by upstream and
        model."""
        self.doubt: Callable[[str], str] = lambda upstream: ""
        """What this process knows against an upstream's keeping tenants apart, by its name."""

    def explain(
        self,
        tenants: TenantDirectory,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        running_of: RunningOf = lambda policy: None,
        *,
        tenant: str | None = None,
    ) -> dict[str, Any]:
        """The explanation of one request as plain JSON values, of the caller that its headers name
        or of a declared `tenant`. Raises `RequestError`, 404 for a tenant that none declares."""
        sample = _sample(path, headers, body)
        who = _who(tenants, sample, tenant)
        running = None if who is None else running_of(who.policy)
        return self.of_sample(sample, who, running).as_json()

    def considered(
        self,
        tenants: TenantDirectory,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        tenant: str | None = None,
    ) -> tuple[Case, TenantPolicy] | None:
        """A request as the tiers see it, and its caller's policy; None for nobody's. Raises
        `RequestError`."""
        sample = _sample(path, headers, body)
        who = _who(tenants, sample, tenant)
        if who is None:
            return None
        to = self._destination(sample, who)
        return consider(sample, dialect_of(sample.api).decode, who, to), who.policy

    def of_sample(
        self, sample: Sample, who: Identified | None, running: Running | None = None
    ) -> Explanation:
        """The explanation of one request by one caller. Raises `RequestError`."""
        to = self._destination(sample, who)
        return explain(sample, dialect_of(sample.api).decode, who, to, running)

    def _destination(self, sample: Sample, who: Identified | None) -> Destination:
        if who is None:
            return Destination("", "")
        model = canonical.parse(sample.body).get("model")
        if self._routing is None:
            if type(model) is str:
                check_model(who.policy, model)
            return Destination("", "")
        route = route_of(sample.path)
        if type(model) is not str or route is None:
            raise RequestError(400, "'model' must be a non-empty string.", field="model")
        target = self._routing.choose(who.policy, route.family, model, None)
        credential = None
        if target.credential is not None:
            text = target.credential.decode("latin-1")
            credential = credential_scope(self._secret, "configured", text) + who.others
        name = target.config.name
        warmth = self.warmth(who.tenant, name, model) or ""
        doubt = self.doubt(name)
        return Destination(name, target.config.root, credential, target.config, warmth, doubt)


def _sample(path: str, headers: Mapping[str, str], body: bytes) -> Sample:
    envelope = compact({"path": path, "headers": dict(headers)})
    return read_sample(envelope[:-1] + b',"body":' + body + b"}")


def _who(tenants: TenantDirectory, sample: Sample, tenant: str | None) -> Identified | None:
    if tenant is None:
        return tenants.identify(sample.raw_headers)
    who = tenants.chosen(tenant)
    if who is None:
        raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
    return who
