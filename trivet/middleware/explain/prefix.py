"""What the prefix tier would do to a request, for `trivet explain`."""

from __future__ import annotations

from typing import Final

from trivet.messages import Api, Request
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.explain.considered import Destination
from trivet.middleware.prefix_tier.asks import Asked, marks_for, outline_for, signed_by_aws
from trivet.middleware.prefix_tier.warmth import WHY, never_pinged
from trivet.policies.model import TenantPolicy
from trivet.prefix.backends.base import Ask, Isolation
from trivet.prefix.backends.registry import backend_of
from trivet.prefix.markers.rules import rules_for

_SHOWN: Final = "0" * 64
"""Stands for the salt, which is never shown."""
_APART: Final[dict[Isolation, str]] = {
    "salt": "tenants apart by salt",
    "key": "tenants apart by a key of their own",
    "account": "all callers of one account share; one account for each tenant keeps them apart",
    "slot": "tenants apart by slot",
    "tenant": "tenants apart by the signed tenant",
    "none": "",
}


def prefix_view(
    request: Request,
    policy: TenantPolicy,
    to: Destination,
    headers: RawHeaders,
) -> tuple[bool, str, tuple[str, ...]]:
    """Whether the tier takes part, the reason, and what it does in words, the cache first."""
    upstream = to.upstream
    if upstream is None:
        return (
            True,
            "",
            ("depends on the upstream, and none is declared here (see --config)",),
        )
    backend = backend_of(upstream.cache, upstream.base_url, upstream.engine_secret_env)
    if backend.isolates == "none":
        return (
            False,
            "no-backend",
            (
                "the request passes through as it came; what the upstream caches, it caches "
                "(upstreams.cache names whose cache it is)",
            ),
        )
    if request.api is Api.EMBEDDINGS and backend.isolates not in ("salt", "slot"):
        return False, "embeddings", ("embeddings have no prefix to share",)
    asked = Asked(
        *(request.api, request.model, policy.tenant, policy.prefix, upstream),
        *("", headers, request.forward),
    )
    outline = outline_for(asked, backend)
    marks = marks_for(asked, outline, backend.kind) if backend.takes_marks else ()
    ask = Ask(
        *(request.api, request.model, request.forward, outline, _SHOWN, 0, 0),
        common=upstream.credential_env is not None,
        bearer=not signed_by_aws("", headers),
        marks=marks,
    )
    prepared = backend.prepare(ask)
    doubt = f" ({to.doubt})" if to.doubt else ""
    said = [f"{backend.kind}: {_APART[backend.isolates]}{doubt}", *prepared.notes]
    dropped = sorted({name for name, _ in headers if name.lower() in prepared.dropped})
    said += [f"{name.decode('latin-1')} dropped: the header is not sent on" for name in dropped]
    if asked.policy.fan_out.wait and prepared.marks:
        said.append(f"siblings of a new prefix wait {asked.policy.fan_out.wait:g} s for it at most")
    if backend.takes_marks and not prepared.marks and not outline.marks:
        said.append(_why_unmarked(asked, outline.tokens, backend.kind))
    if backend.takes_marks:
        never = never_pinged(asked.api, backend.kind, prepared.marks, prepared.body)
        said.append(_pings(asked, never, to.warmth))
    if not prepared.apart:
        said.append("refused where several tenants use the upstream")
    return True, "", tuple(filter(None, said))


def _pings(asked: Asked, never: str | None, warmth: str) -> str:
    """Whether the prefix is kept warm, and why not."""
    budget = asked.policy.keep_warm.budget_usd
    if not budget:
        return "not kept warm: prefix.keep_warm.budget_usd is 0"
    if never is not None:
        return f"not kept warm: {WHY[never]} ({never})"
    last = f"; the last one here: {WHY[warmth]} ({warmth})" if warmth else ""
    return f"kept warm where the gaps pay for it, for {budget:g} USD a day at most{last}"


def _why_unmarked(asked: Asked, tokens: int, kind: str) -> str:
    rules, policy = rules_for(kind, asked.model), asked.policy
    if not policy.enabled or policy.mark == "never":
        return "no breakpoints: the policy sets none (prefix.enabled, prefix.mark)"
    if not rules.max_marks:
        return ""
    if tokens < rules.min_tokens:
        return (
            f"no breakpoints: about {tokens} tokens are below the minimum of {rules.min_tokens} "
            "(below-minimum)"
        )
    return f"no breakpoints: no stable part reaches the minimum of {rules.min_tokens} tokens"
