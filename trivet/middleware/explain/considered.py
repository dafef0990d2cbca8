"""A request as the tiers see it: decoded, with the settings that hold and what decides about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from trivet.exact.key import KeyParts, key_headers
from trivet.messages import Api, Request, Scope
from trivet.middleware.dialects import embeddings
from trivet.middleware.dialects.base import Headers
from trivet.middleware.explain.sample import Sample
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.directives import Directives, read_directives
from trivet.policies.eligibility import Bypass, Eligible, eligibility, end_user
from trivet.policies.model import ExactSettings
from trivet.policies.settings import settings_for
from trivet.policies.tenants import Identified
from trivet.prefix.prompts.repairs import difference, repair

Decode = Callable[[bytes, Headers], Request]


@dataclass(frozen=True, slots=True)
class Destination:
    """The upstream that the request would go to."""

    name: str
    root: str
    """The URL that paths are appended to."""
    credential: bytes | None = None
    """Credential scope of the upstream's own credential; None sends the caller's."""
    upstream: UpstreamConfig | None = None
    """None where no upstreams are known."""
    warmth: str = ""
    """What became of the tenant's last prefix there, of those that may be kept warm: one of
    `warmth.WHY`; empty where that is not known."""
    doubt: str = ""
    """What speaks against the server's keeping tenants apart; empty for nothing."""


class Case(NamedTuple):
    """What is known of a request before a tier is asked."""

    sample: Sample
    """As it goes on: with the policy's repairs."""
    repairs: tuple[str, ...]
    decode: Decode
    request: Request
    settings: ExactSettings
    directives: Directives
    plan: Eligible | Bypass
    parts: KeyParts


def consider(sample: Sample, decode: Decode, who: Identified, to: Destination) -> Case:
    """Decode a caller's request and decide about it. Raises `RequestError` where the proxy would
    answer 400."""
    headers = sample.headers
    sample, repairs = _repaired(sample, who)
    if sample.api is Api.EMBEDDINGS:
        decode = _decode_embeddings
    request = decode(sample.body, headers)
    policy = who.policy
    place = (sample.path, headers.get("trivet-route", ""))
    settings = settings_for(policy, request.api, request.model, place)
    directives = read_directives(headers, request.directives)
    plan = eligibility(request, policy, settings, directives, end_user(settings, request, headers))
    parts = _parts(sample, request, who, to, (settings, directives, plan))
    return Case(sample, repairs, decode, request, settings, directives, plan, parts)


def _repaired(sample: Sample, who: Identified) -> tuple[Sample, tuple[str, ...]]:
    if sample.api is Api.EMBEDDINGS:
        return sample, ()
    body, changes = repair(sample.api, sample.body, who.policy.prefix.repair)
    told = (*changes, *difference(sample.body, body)) if changes else ()
    return replace(sample, body=body), told


def _decode_embeddings(raw: bytes, headers: Headers) -> Request:
    return embeddings.decode(raw, headers).request


def _parts(
    sample: Sample,
    request: Request,
    who: Identified,
    to: Destination,
    decided: tuple[ExactSettings, Directives, Eligible | Bypass],
) -> KeyParts:
    settings, directives, plan = decided
    return KeyParts(
        api=request.api,
        upstream=to.name,
        base_url=to.root + sample.path,
        credential=who.credential if to.credential is None else to.credential,
        headers=key_headers(sample.raw_headers, settings.key_headers, settings.ignore_headers),
        scope=Scope(who.tenant, plan.user if isinstance(plan, Eligible) else None),
        policy_versions=tuple(sorted(who.policy.versions.items())),
        request_versions=directives.versions,
        canonical=request.canonical,
        query=sample.query,
    )
