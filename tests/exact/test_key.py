"""The exact key: what two requests must share, and what may differ."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from trivet.exact.key import (
    KeyParts,
    canonical_request,
    credential_scope,
    exact_key,
    key_headers,
    keyed,
    pool_key,
)
from trivet.messages import Api, ExactKey, Scope

PARTS = KeyParts(
    api=Api.CHAT,
    upstream="main",
    base_url="https://api.example.com",
    credential=b"c" * 32,
    headers=(("openai-project", "p1"),),
    scope=Scope("acme"),
    policy_versions=(("prompt", "7"),),
    request_versions=(("docs", "3"),),
    canonical=b'{"model":"m"}',
    query="api-version=1",
)


def test_the_key_is_sha_256_of_the_stored_text() -> None:
    text = canonical_request(PARTS)
    assert exact_key(PARTS) == hashlib.sha256(text).digest()
    assert keyed(PARTS) == (exact_key(PARTS), text)


def test_the_key_of_a_request_never_moves_between_releases() -> None:
    assert exact_key(PARTS).hex() == (
        "5f8f09e93069006e93e826d951f8020fbd8812458fcb9d8489b33aa70560fedf"
    )


OTHERS: dict[str, Any] = {
    "api": Api.COMPLETIONS,
    "upstream": "other",
    "base_url": "https://api.example.org",
    "credential": b"d" * 32,
    "headers": (("openai-project", "p2"),),
    "scope": Scope("acme2"),
    "policy_versions": (("prompt", "8"),),
    "request_versions": (("docs", "4"),),
    "canonical": b'{"model":"n"}',
    "query": "api-version=2",
}


def test_every_part_is_tried() -> None:
    assert set(KeyParts._fields) == OTHERS.keys()


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_each_part_is_in_the_key(name: str) -> None:
    changed = PARTS._replace(**{name: OTHERS[name]})
    assert exact_key(changed) != exact_key(PARTS)
    assert canonical_request(changed) != canonical_request(PARTS)


def test_tenants_have_different_keys_for_one_request() -> None:
    """F1: the key names no answer of another tenant, so it is no probing oracle."""
    assert exact_key(PARTS) != exact_key(PARTS._replace(scope=Scope("other")))


def test_no_user_is_not_the_empty_user() -> None:
    users = (None, "", "=", "u")
    assert len({exact_key(PARTS._replace(scope=Scope("acme", user))) for user in users}) == 4


def test_a_user_is_not_part_of_the_tenants_name() -> None:
    one = PARTS._replace(scope=Scope("acme", "1"))
    two = PARTS._replace(scope=Scope("acme1", None))
    assert exact_key(one) != exact_key(two)


def test_a_caller_cannot_pass_for_a_policy_version() -> None:
    policy = PARTS._replace(policy_versions=(("prompt", "8"),), request_versions=())
    caller = PARTS._replace(policy_versions=(), request_versions=(("prompt", "8"),))
    assert exact_key(policy) != exact_key(caller)


def test_the_stored_text_holds_no_query() -> None:
    asked = PARTS._replace(query="key=SECRET")
    assert b"SECRET" not in canonical_request(asked)


def test_lone_surrogates_in_names_have_a_key_of_their_own() -> None:
    one = PARTS._replace(scope=Scope("acme", "\ud800"))
    two = PARTS._replace(scope=Scope("acme", "?"))
    assert exact_key(one) != exact_key(two)


def test_pool_slots_have_keys_of_their_own() -> None:
    key = exact_key(PARTS)
    other = ExactKey(bytes(32))
    slots = {pool_key(base, slot) for base in (key, other) for slot in range(64)}
    assert len(slots) == 128
    assert key not in slots
    assert all(len(slot) == 32 for slot in slots)


def test_credential_scopes_are_opaque_and_injective() -> None:
    scopes = {
        credential_scope(b"s", "authorization", "Bearer a"),
        credential_scope(b"s", "authorization", "Bearer b"),
        credential_scope(b"s", "authorizationBearer a"),
        credential_scope(b"t", "authorization", "Bearer a"),
        credential_scope(b"s"),
    }
    assert len(scopes) == 5
    assert credential_scope(b"s", "a") == credential_scope(b"s", "a")


def test_headers_that_shape_answers_are_kept_sorted() -> None:
    raw = (
        (b"user-agent", b"x"),
        (b"openai-project", b"p"),
        (b"openai-organization", b"o"),
        (b"anthropic-version", b" 2023-06-01 "),
        (b"x-goog-user-project", b"g"),
        (b"x-stainless-retry-count", b"1"),
        (b"authorization", b"Bearer secret"),
    )
    assert key_headers(raw) == (
        ("anthropic-version", "2023-06-01"),
        ("openai-organization", "o"),
        ("openai-project", "p"),
        ("x-goog-user-project", "g"),
    )


def test_a_header_that_nobody_knows_is_keyed_by_its_digest() -> None:
    ((name, value),) = key_headers(((b"x-tenant-id", b" alice "),))
    assert (name, value) == ("x-tenant-id", "sha256:" + hashlib.sha256(b"alice").hexdigest())


def test_wishes_to_caches_and_hops_are_not_keyed() -> None:
    names = (b"cache-control", b"pragma", b"connection", b"trivet-version", b"transfer-encoding")
    assert key_headers([(name, b"1") for name in names]) == ()


def test_unknown_headers_of_the_apis_are_keyed() -> None:
    assert key_headers(((b"anthropic-new-thing", b"1"),)) == (("anthropic-new-thing", "1"),)


@pytest.mark.parametrize(
    "name",
    [
        b"x-goog-api-key",
        b"x-goog-api-client",
        b"anthropic-dangerous-direct-browser-access",
        b"x-api-key",
        b"accept",
        b"traceparent",
    ],
)
def test_transport_headers_are_not_keyed(name: bytes) -> None:
    assert key_headers(((name, b"1"),)) == ()


@pytest.mark.parametrize("name", [b"anthropic-beta", b"openai-beta"])
def test_beta_headers_are_sets(name: bytes) -> None:
    one = key_headers(((name, b"b, a,"), (name, b"a")))
    assert one == key_headers(((name, b"a,b"),)) == ((name.decode(), "a,b"),)


def test_repeated_headers_are_one_list_in_order() -> None:
    raw = ((b"openai-x", b"b"), (b"openai-x", b"a"))
    assert key_headers(raw) == (("openai-x", "b, a"),)


def test_the_policys_headers_join_in_any_spelling() -> None:
    raw = ((b"user-agent", b"on"), (b"accept", b"1"))
    assert key_headers(raw, ("User-Agent",)) == (("user-agent", "on"),)


def test_an_absent_header_is_not_an_empty_one() -> None:
    assert key_headers((), ("X-Flag",)) != key_headers(((b"x-flag", b""),), ("X-Flag",))


def test_a_session_that_goes_upstream_is_keyed() -> None:
    one, two = (key_headers(((b"cookie", value),)) for value in (b"a", b"b"))
    assert one != two


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-portkey-virtual-key", "x-api-key"])
def test_secrets_are_keyed_by_their_digest(name: str) -> None:
    ((_, value),) = key_headers(((name.encode(), b"SECRET"),), (name,))
    assert value == "sha256:" + hashlib.sha256(b"SECRET").hexdigest()


def test_header_bytes_beyond_ascii_are_kept_apart() -> None:
    one = key_headers(((b"openai-x", b"\xff"),))
    two = key_headers(((b"openai-x", b"\xfe"),))
    assert one != two
    assert canonical_request(PARTS._replace(headers=one)) != canonical_request(
        PARTS._replace(headers=two)
    )


def test_a_header_that_the_policy_ignores_is_left_out_in_any_spelling() -> None:
    raw = ((b"x-nonce", b"1"), (b"x-flag", b"on"))
    assert key_headers(raw, (), ("X-Nonce",)) == key_headers(((b"x-flag", b"on"),))


def test_a_header_that_the_policy_wants_in_the_key_is_not_ignored() -> None:
    raw = ((b"x-flag", b"on"),)
    assert key_headers(raw, ("X-Flag",), ("x-flag",)) == (("x-flag", "on"),)


@pytest.mark.parametrize("name", ["anthropic-version", "anthropic-beta", "openai-project"])
def test_a_header_that_is_known_to_shape_answers_cannot_be_ignored(name: str) -> None:
    assert key_headers(((name.encode(), b"1"),), (), (name,)) == ((name, "1"),)


def test_a_mock_command_is_in_the_key_like_any_header() -> None:
    assert key_headers(((b"x-mock", b"status=503"),)) != ()


def test_what_is_remembered_of_other_heads_changes_no_key() -> None:
    heads = [PARTS._replace(upstream=f"up{number}") for number in range(300)]
    first = [canonical_request(head) for head in heads]
    assert len(set(first)) == len(heads)
    assert [canonical_request(head) for head in heads] == first


def test_a_head_too_long_to_be_remembered_has_a_key_of_its_own() -> None:
    long = PARTS._replace(headers=(("x-long", "a" * 5000),))
    other = long._replace(headers=(("x-long", "a" * 4999 + "b"),))
    assert exact_key(long) == exact_key(long) != exact_key(other)
