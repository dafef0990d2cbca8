"""`explain` with the upstreams of a running proxy, or with none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.exact.key import credential_scope
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.registry import dialect_of, route_of
from trivet.middleware.explain import Destination, Explanation, explain
from trivet.middleware.routing import Routing, check_model
from trivet.middleware.sample import Sample, read_sample
from trivet.policies.tenants import Identified, TenantDirectory


class Explainer:
    """Explains requests as they would fare in front of `routing`'s upstreams."""

    def __init__(self, routing: Routing | None, secret: bytes) -> None:
        self._routing = routing
        self._secret = secret

    def explain(
        self, tenants: TenantDirectory, path: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        """The explanation of one request as plain JSON values. Raises `RequestError`."""
        envelope = compact({"path": path, "headers": dict(headers)})
        sample = read_sample(envelope[:-1] + b',"body":' + body + b"}")
        return self.of_sample(sample, tenants.identify(sample.raw_headers)).as_json()

    def of_sample(self, sample: Sample, who: Identified | None) -> Explanation:
        """The explanation of one request by one caller. Raises `RequestError`."""
        return explain(sample, dialect_of(sample.api).decode, who, self._destination(sample, who))

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
        return Destination(target.config.name, target.config.root, credential)
