"""What is remembered of a request's head, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.routing import Target
from trivet.middleware.arrival.terms import Terms, TermsMemo, place_of
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.directives import NONE
from trivet.policies.model import ExactSettings, TenantPolicy
from trivet.policies.tenants import Identified

PATH = "/v1/chat/completions"
HEAD: RawHeaders = [(b"authorization", b"Bearer a"), (b"openai-beta", b"x")]


def caller(tenant: str = "acme") -> Identified:
    return Identified(TenantPolicy(tenant=tenant), tenant, "key", b"who")


def terms(who: Identified, **fields: Any) -> Terms:
    target = Target(UpstreamConfig(name="main", base_url="http://u"), None)
    return Terms(who, target, ExactSettings(**fields), NONE, (), b"", frozenset(), "", ())


def test_a_head_that_came_before_has_the_same_terms_whatever_transport_it_carries() -> None:
    who, memo = caller(), TermsMemo()
    made = terms(who)
    memo.keep(place_of(who, PATH, "m", [*HEAD, (b"content-length", b"7")]), made)
    again = place_of(who, PATH, "m", [*HEAD, (b"traceparent", b"00-1"), (b"content-length", b"9")])
    assert memo.find(again, who) is made


def test_another_caller_target_model_or_header_has_terms_of_its_own() -> None:
    who, memo = caller(), TermsMemo()
    memo.keep(place_of(who, PATH, "m", HEAD), terms(who))
    other = replace(who)
    assert memo.find(place_of(other, PATH, "m", HEAD), other) is None
    assert memo.find(place_of(who, PATH + "?a=b", "m", HEAD), who) is None
    assert memo.find(place_of(who, PATH, "n", HEAD), who) is None
    assert (
        memo.find(place_of(who, PATH, "m", [*HEAD, (b"cache-control", b"no-store")]), who) is None
    )


def test_terms_are_not_given_to_a_caller_with_the_identity_of_an_earlier_one() -> None:
    who, memo = caller(), TermsMemo()
    place = place_of(who, PATH, "m", HEAD)
    memo.keep(place, terms(who))
    assert memo.find(place, caller()) is None


def test_a_policy_that_keys_a_transport_header_has_its_terms_made_anew() -> None:
    who, memo = caller(), TermsMemo()
    place = place_of(who, PATH, "m", HEAD)
    memo.keep(place, terms(who, key_headers=("User-Agent",)))
    assert memo.find(place, who) is None


def test_long_heads_are_not_remembered() -> None:
    who, memo = caller(), TermsMemo()
    many = [(b"x-a", b"")] * 60
    for place in (place_of(who, PATH, "m" * 9000, HEAD), place_of(who, PATH, "m", many)):
        memo.keep(place, terms(who))
        assert memo.find(place, who) is None


def test_the_oldest_terms_go_when_there_are_too_many() -> None:
    who, memo = caller(), TermsMemo()
    places = [place_of(who, PATH, f"m{number}", HEAD) for number in range(513)]
    for place in places:
        memo.keep(place, terms(who))
    assert memo.find(places[0], who) is None
    assert memo.find(places[1], who) is not None
