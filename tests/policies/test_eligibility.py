"""Each request gets a yes with its bounds, or one reason."""

from __future__ import annotations

from typing import Any

from trivet.messages import Api, Request
from trivet.policies.directives import Directives
from trivet.policies.eligibility import Bypass, Eligible, eligibility, end_user
from trivet.policies.model import ExactSettings, TenantPolicy

NONE = Directives()


def request(**fields: Any) -> Request:
    made: dict[str, Any] = {
        "api": Api.CHAT,
        "model": "m",
        "stream": False,
        "forward": b"{}",
        "canonical": b"{}",
    }
    return Request(**{**made, **fields})


def decide(
    asked: Request | None = None,
    directives: Directives = NONE,
    user: str | None = None,
    limits: dict[str, Any] | None = None,
    **settings: Any,
) -> Eligible | Bypass:
    policy = TenantPolicy.model_validate({"tenant": "acme", "limits": limits or {}})
    return eligibility(
        asked or request(), policy, ExactSettings.model_validate(settings), directives, user
    )


def eligible(*args: Any, **fields: Any) -> Eligible:
    found = decide(*args, **fields)
    assert isinstance(found, Eligible)
    return found


def test_a_plain_request_is_looked_up_and_stored() -> None:
    assert decide() == Eligible(
        lookup=True,
        store=True,
        ttl=86400.0,
        fresh_for=86400.0,
        max_age=None,
        min_fresh=None,
        stale_if_error=0.0,
        only_if_cached=False,
        pool=None,
        user=None,
    )


def test_a_policy_that_switches_the_tier_off_is_the_first_reason() -> None:
    assert decide(request(uncacheable="hosted-tool"), enabled=False) == Bypass("policy")


def test_the_requests_own_reason_is_kept() -> None:
    assert decide(request(uncacheable="hosted-tool", sampled=True)) == Bypass("hosted-tool")


def test_remote_images_bypass_unless_the_policy_lifts_it() -> None:
    asked = request(uncacheable="remote-image")
    assert decide(asked) == Bypass("remote-image")
    assert isinstance(decide(asked, remote_images=True), Eligible)


def test_lifting_remote_images_lifts_nothing_else() -> None:
    assert decide(request(uncacheable="file-id"), remote_images=True) == Bypass("file-id")


def test_sampled_requests_bypass_by_default() -> None:
    assert decide(request(sampled=True)) == Bypass("sampled")


def test_sampled_requests_are_cached_where_the_policy_says_so() -> None:
    assert eligible(request(sampled=True), sampled="cache").pool is None


def test_a_pool_holds_k_answers_of_sampled_requests_only() -> None:
    assert eligible(request(sampled=True), sampled="pool", k=7).pool == 7
    assert eligible(request(), sampled="pool", k=7).pool is None


def test_embeddings_are_never_sampled() -> None:
    asked = request(api=Api.EMBEDDINGS, sampled=True)
    assert eligible(asked).pool is None
    assert eligible(asked, sampled="pool").pool is None


def test_a_user_scope_without_a_user_bypasses() -> None:
    assert decide(user_scope=True) == Bypass("user-missing")
    assert decide(user="", user_scope=True) == Bypass("user-missing")


def test_the_user_is_in_the_scope_only_where_the_policy_says_so() -> None:
    assert eligible(user="u", user_scope=True).user == "body=u"
    assert eligible(user="u").user is None


def test_no_store_takes_no_part() -> None:
    assert decide(directives=Directives(no_store=True)) == Bypass("no-store")


def test_no_cache_stores_but_does_not_look_up() -> None:
    found = eligible(directives=Directives(no_cache=True))
    assert (found.lookup, found.store) == (False, True)


def test_only_if_cached_is_told_with_a_bypass_too() -> None:
    asked = Directives(only_if_cached=True)
    assert eligible(directives=asked).only_if_cached
    assert decide(request(sampled=True), asked) == Bypass("sampled", only_if_cached=True)


def test_max_age_is_passed_on() -> None:
    assert eligible(directives=Directives(max_age=5.0)).max_age == 5.0


def test_min_fresh_is_passed_on() -> None:
    assert eligible(directives=Directives(min_fresh=5.0)).min_fresh == 5.0


def test_a_caller_can_shorten_the_ttl() -> None:
    found = eligible(directives=Directives(ttl=10.0), ttl=60, stale_if_error=600)
    assert (found.ttl, found.fresh_for, found.stale_if_error) == (10.0, 60.0, 0.0)


def test_a_caller_cannot_lengthen_the_ttl() -> None:
    found = eligible(directives=Directives(ttl=9999.0), ttl=60, stale_if_error=600)
    assert (found.ttl, found.stale_if_error) == (60.0, 600.0)


def test_a_ttl_of_zero_stores_nothing() -> None:
    assert not eligible(ttl=0).store
    assert not eligible(directives=Directives(ttl=0.0), stale_if_error=60).store


def test_a_ttl_of_zero_can_still_stand_in_for_errors() -> None:
    assert eligible(ttl=0, stale_if_error=60).store


def test_a_tenant_bounded_to_nothing_stores_nothing() -> None:
    assert not eligible(limits={"entries": 0}).store
    assert not eligible(limits={"bytes": 0}).store


def test_the_end_user_is_read_only_where_the_policy_scopes_by_it() -> None:
    asked = request(user="body-user")
    assert end_user(ExactSettings(), asked, {}) is None
    assert end_user(ExactSettings(user_scope=True), asked, {}) == "body-user"
    assert end_user(ExactSettings(user_scope=True), request(user=""), {}) is None


def test_the_end_user_can_come_from_a_header() -> None:
    settings = ExactSettings(user_scope=True, user_from="header:X-End-User")
    asked = request(user="body-user")
    assert end_user(settings, asked, {"x-end-user": " u1 "}) == "u1"
    assert end_user(settings, asked, {"x-end-user": " "}) is None
    assert end_user(settings, asked, {}) is None
