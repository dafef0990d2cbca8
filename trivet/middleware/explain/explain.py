"""What would happen to a request, and why: worked out without asking a store or an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trivet import canonical
from trivet.exact.key import KeyParts, exact_key
from trivet.messages import Api
from trivet.middleware.dialects import embeddings
from trivet.middleware.explain.considered import Decode, Destination, consider
from trivet.middleware.explain.omitted import Omitted, omitted
from trivet.middleware.explain.prefix import prefix_view
from trivet.middleware.explain.sample import Sample
from trivet.middleware.explain.semantic import semantic_view
from trivet.middleware.semantic_tier.effective import Effective, Running, effective
from trivet.policies.directives import entry_labels
from trivet.policies.eligibility import Bypass, Eligible
from trivet.policies.header_names import API_KEY_HEADERS, is_identity
from trivet.policies.model import ExactSettings
from trivet.policies.settings import matching_rules
from trivet.policies.tenants import Identified, is_own_key


@dataclass(frozen=True, slots=True)
class TierView:
    """Whether a tier takes part, and the reasons in words."""

    tier: str
    open: bool
    reason: str
    """A metric label; empty where the tier takes part without conditions."""
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of `trivet explain`. `as_json` has the same fields."""

    tenant: str | None
    """None: the caller would get 401, and nothing else is decided."""
    identified_by: str
    api: str
    api_guessed: bool
    path: str
    route: str
    model: str
    stream: bool
    upstream: str
    user: str | None
    keys: tuple[str, ...]
    """Exact keys in hex: one, or one for each item of an embeddings request."""
    key_fields: tuple[tuple[str, str], ...]
    """What the key is made of: name, and the value or its size."""
    left_out: tuple[Omitted, ...]
    headers_left_out: tuple[str, ...]
    """Those that the policy leaves out are not among them."""
    headers_ignored: tuple[str, ...]
    """Left out because the policy says so (`exact.ignore_headers`)."""
    tiers: tuple[TierView, ...]
    policy_versions: dict[str, str]
    request_versions: dict[str, str]
    labels: tuple[str, ...]
    ttl: float | None
    """Seconds that the answer would be kept; None if it would not be."""
    settings: dict[str, Any]
    """The policy's settings for this request."""
    rules: tuple[int, ...]
    """Positions of the policy's rules that match, from 0; earlier ones win."""
    semantic: Effective | None = None
    """The tenant's mode in the semantic tier, whatever becomes of this request."""
    prefix: tuple[str, ...] = ()
    """What is sent to the upstream's prefix cache: whose it is, and each thing that is done."""
    repairs: tuple[str, ...] = ()
    """What the policy changes in the body before all else, and the lines of a diff."""

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def explain(
    sample: Sample,
    decode: Decode,
    who: Identified | None,
    to: Destination,
    running: Running | None = None,
) -> Explanation:
    """Decide everything that can be decided from the request and the policies.

    `decode` is the dialect's; for embeddings it is not used. `running` is what the semantic tier
    knows of the tenant, where one runs. Raises `RequestError` where the proxy would answer 400.
    """
    if who is None:
        return _turned_away(sample)
    case = consider(sample, decode, who, to)
    sample, decode, request, parts = case.sample, case.decode, case.request, case.parts
    settings, directives, plan = case.settings, case.directives, case.plan
    headers, policy = sample.headers, who.policy
    route = headers.get("trivet-route") or sample.path
    named = _identity_headers(sample, who, to)
    others = _other_headers(sample, parts, named)
    keeps = isinstance(plan, Eligible) and plan.store
    headers_sent = list(sample.raw_headers)
    taken, why, cached = prefix_view(request, policy, to, headers_sent)
    return Explanation(
        tenant=who.tenant,
        identified_by=who.how,
        api=request.api.value,
        api_guessed=sample.guessed,
        path=sample.path,
        route=route,
        model=request.model,
        stream=request.stream,
        upstream=to.name,
        user=parts.scope.user,
        keys=_keys(sample, parts),
        key_fields=_key_fields(parts, named),
        left_out=omitted(sample.body, lambda body: decode(body, headers).canonical),
        headers_left_out=tuple(name for name in others if name not in settings.ignore_headers),
        headers_ignored=tuple(name for name in others if name in settings.ignore_headers),
        tiers=(
            _exact_view(plan, settings),
            TierView("semantic", *semantic_view(request, policy.semantic, plan, running)),
            TierView("prefix", taken, why, "; ".join(cached)),
        ),
        policy_versions=dict(parts.policy_versions),
        request_versions=dict(parts.request_versions),
        labels=tuple(sorted(entry_labels(policy, directives))),
        ttl=plan.ttl if isinstance(plan, Eligible) and keeps else None,
        settings={name: getattr(settings, name) for name in ExactSettings.model_fields},
        rules=matching_rules(policy, request.api, request.model, route),
        semantic=effective(policy.semantic, running),
        prefix=cached if to.upstream is not None else (),
        repairs=case.repairs,
    )


def explanation_of(told: dict[str, Any]) -> Explanation:
    """Read `Explanation.as_json` back, as the admin API sends it."""
    lists = ("keys", "headers_left_out", "headers_ignored", "labels", "rules", "repairs", "prefix")
    read = {**told, **{name: tuple(told[name]) for name in lists}}
    read["key_fields"] = tuple((name, value) for name, value in told["key_fields"])
    read["left_out"] = tuple(Omitted(**item) for item in told["left_out"])
    read["tiers"] = tuple(TierView(**item) for item in told["tiers"])
    read["semantic"] = None if told["semantic"] is None else Effective(**told["semantic"])
    return Explanation(**read)


def _turned_away(sample: Sample) -> Explanation:
    return Explanation(
        tenant=None,
        identified_by="",
        api=sample.api.value,
        api_guessed=sample.guessed,
        path=sample.path,
        route=sample.headers.get("trivet-route") or sample.path,
        model="",
        stream=False,
        upstream="",
        user=None,
        keys=(),
        key_fields=(),
        left_out=(),
        headers_left_out=(),
        headers_ignored=(),
        tiers=(),
        policy_versions={},
        request_versions={},
        labels=(),
        ttl=None,
        settings={},
        rules=(),
    )


def _keys(sample: Sample, parts: KeyParts) -> tuple[str, ...]:
    forms: Sequence[bytes] = (parts.canonical,)
    if parts.api is Api.EMBEDDINGS:
        forms = embeddings.decode(sample.body, sample.headers).canonicals
    return tuple(exact_key(parts._replace(canonical=form)).hex() for form in forms)


def _identity_headers(sample: Sample, who: Identified, to: Destination) -> tuple[str, ...]:
    """The headers that are in the credential scope."""
    own_scope = to.credential is None
    sent = () if who.how == "chosen" else sample.raw_headers
    return tuple(
        name.decode("latin-1")
        for name, value in sent
        if is_identity(name)
        and not is_own_key(name, value)
        and (own_scope or name not in API_KEY_HEADERS)
    )


def _key_fields(parts: KeyParts, named: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    scope = canonical.sha256(parts.credential).hex()[:12]
    fields = [
        ("api", parts.api.value),
        ("upstream", f"{parts.upstream} {parts.base_url}".strip()),
        ("query", "(its digest)" if parts.query else ""),
        ("credential scope", f"{scope} ({', '.join(named)})" if named else scope),
        ("tenant", parts.scope.tenant),
        ("user", parts.scope.user or ""),
        *((f"header {name}", _short(value)) for name, value in parts.headers),
        *((f"policy version {name}", value) for name, value in parts.policy_versions),
        *((f"request version {name}", value) for name, value in parts.request_versions),
    ]
    shown = [(name, value) for name, value in fields if value]
    return (*shown, *_body_fields(parts.canonical))


def _body_fields(form: bytes) -> list[tuple[str, str]]:
    body = canonical.parse(form.removeprefix(b"\x00"))
    return [(f"body {name}", _shown(value)) for name, value in sorted(body.items())]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        items = "1 item" if len(value) == 1 else f"{len(value)} items"
        return f"{items}, {len(canonical.dump(value))} bytes"
    text = canonical.dump(value).removeprefix(b"\x00")
    if isinstance(value, dict) or len(text) > 60:
        return f"{len(text)} bytes"
    return text.decode()


def _short(value: str) -> str:
    return value if len(value) <= 60 else value[:57] + "..."


def _other_headers(sample: Sample, parts: KeyParts, named: tuple[str, ...]) -> tuple[str, ...]:
    keyed = {name for name, _ in parts.headers}.union(named)
    return tuple(sorted(name for name in sample.headers if name not in keyed))


_WHY = {
    "policy": "the policy switches the exact tier off for this request (exact.enabled)",
    "sampled": "the answer is drawn at random: temperature is not 0 and no seed is given "
    "(exact.sampled: cache or pool changes this)",
    "user-missing": "the policy shares answers within one end user, and the request names none "
    "(exact.user_scope, exact.user_from)",
    "no-messages": "the request asks nothing (messages: [])",
    "no-store": "the caller asked to take no part (Cache-Control: no-store, or cache.no-store)",
    "remote-image": "an image is given by URL, and what is behind it can change "
    "(exact.remote_images: true changes this)",
}


def _exact_view(plan: Eligible | Bypass, settings: ExactSettings) -> TierView:
    if isinstance(plan, Bypass):
        why = _WHY.get(plan.reason, "the request has effects or inputs beyond its own text")
        end = "; only-if-cached: answered 504" if plan.only_if_cached else ""
        return TierView("exact", False, plan.reason, why + end)
    said = [
        "looks up" if plan.lookup else "does not look up (no-cache)",
        f"keeps a complete answer for {plan.ttl:g} s" if plan.store else "keeps nothing",
    ]
    if plan.pool:
        said.append(f"draws among {plan.pool} answers once it has them")
    if plan.max_age is not None:
        said.append(f"takes answers of at most {plan.max_age:g} s")
    if plan.min_fresh is not None:
        said.append(f"takes answers that stay fresh for {plan.min_fresh:g} s")
    if plan.stale_if_error:
        said.append(f"stands in for errors {plan.stale_if_error:g} s longer")
    if plan.only_if_cached:
        said.append("a miss is answered 504 (only-if-cached)")
    if settings.tool_calls == "never":
        said.append("does not keep tool calls")
    return TierView("exact", True, "", "; ".join(said))
