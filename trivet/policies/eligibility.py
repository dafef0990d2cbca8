"""May the exact tier answer this request, and may it keep the answer? A yes, or a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trivet.messages import Api, Request
from trivet.policies.directives import Directives
from trivet.policies.model import ExactSettings, TenantPolicy


class Eligible(NamedTuple):
    """The exact tier takes part. Times are seconds."""

    lookup: bool
    """Answer from the cache if it can; False where the caller asked for a new answer."""
    store: bool
    ttl: float
    """Lifetime of the new answer: the policy's, or less where the caller asked."""
    fresh_for: float
    """The policy's lifetime: an answer older than this is expired, though it was stored under
    a policy that allowed more."""
    max_age: float | None
    """The oldest answer that the caller takes, stale ones included."""
    min_fresh: float | None
    """How much of its lifetime an answer has to have left; a stale one has nothing left."""
    stale_if_error: float
    only_if_cached: bool
    """Answer 504 in place of asking the upstream."""
    pool: int | None
    """How many answers are collected and drawn from; None for one."""
    user: str | None
    """The end user that the answer is scoped to; None where the policy does not scope."""


class Bypass(NamedTuple):
    """The exact tier takes no part, and this is why: a metric label."""

    reason: str
    only_if_cached: bool = False
    """Answer 504 in place of asking the upstream."""


def eligibility(
    request: Request,
    policy: TenantPolicy,
    settings: ExactSettings,
    directives: Directives,
    user: str | None,
) -> Eligible | Bypass:
    """Decide for one request. `settings` are `policy`'s for it; `user` is what `end_user` found.

    The reasons: `policy`, the request's own (`hosted-tool`, `remote-image`, ...), `sampled`,
    `user-missing`, `no-store`.
    """
    reason = _bypass(request, settings, directives, user)
    if reason is not None:
        return Bypass(reason, directives.only_if_cached)
    ttl, stale = settings.ttl, settings.stale_if_error
    if directives.ttl is not None and directives.ttl < ttl:
        ttl, stale = directives.ttl, 0.0
    return Eligible(
        lookup=not directives.no_cache,
        # An answer of lifetime 0 is still worth keeping to stand in for an error.
        store=(ttl > 0 or stale > 0) and not _bounded_to_nothing(policy),
        ttl=ttl,
        fresh_for=settings.ttl,
        max_age=directives.max_age,
        min_fresh=directives.min_fresh,
        stale_if_error=stale,
        only_if_cached=directives.only_if_cached,
        pool=settings.k if settings.sampled == "pool" and _drawn(request) else None,
        # The source belongs to the scope: a caller must not pass in the body for whom a trusted
        # header names elsewhere.
        user=f"{settings.user_from}={user}" if settings.user_scope else None,
    )


def end_user(settings: ExactSettings, request: Request, headers: Mapping[str, str]) -> str | None:
    """The end user's id from where the policy says; None if there is none. Names in lower case."""
    return named_user(settings, request, headers) if settings.user_scope else None


def named_user(settings: ExactSettings, request: Request, headers: Mapping[str, str]) -> str | None:
    """The end user that the request names, whether or not answers are scoped by it."""
    if settings.user_from == "body":
        return request.user or None
    return headers.get(settings.user_from.removeprefix("header:").lower(), "").strip() or None


def _bypass(
    request: Request, settings: ExactSettings, directives: Directives, user: str | None
) -> str | None:
    if not settings.enabled:
        return "policy"
    uncacheable = request.uncacheable
    if uncacheable and not (uncacheable == "remote-image" and settings.remote_images):
        return uncacheable
    if settings.sampled == "bypass" and _drawn(request):
        return "sampled"
    if settings.user_scope and not user:
        return "user-missing"
    if directives.no_store:
        return "no-store"
    return None


def _drawn(request: Request) -> bool:
    return request.sampled and request.api is not Api.EMBEDDINGS


def _bounded_to_nothing(policy: TenantPolicy) -> bool:
    return policy.limits.entries == 0 or policy.limits.bytes == 0
