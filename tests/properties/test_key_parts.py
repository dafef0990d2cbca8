"""No two sets of key parts share a stored text, wherever their bytes lie."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.exact.key import KeyParts, canonical_request, exact_key, key_headers
from trivet.messages import Api, Scope

# Few letters, and the separators that people use: collisions would be found here first.
TEXT = st.text(st.sampled_from("a:=,\x00\n\u00e9\ud800"), max_size=4)
BYTES = st.binary(max_size=4) | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass"))
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple)
PARTS = st.builds(
    KeyParts,
    api=st.sampled_from(Api),
    upstream=TEXT,
    base_url=TEXT,
    credential=BYTES,
    headers=PAIRS,
    scope=st.builds(Scope, TEXT, st.none() | TEXT),
    policy_versions=PAIRS,
    request_versions=PAIRS,
    canonical=BYTES,
    query=TEXT,
)
TEXTS = ("upstream", "base_url", "query")
LISTS = ("headers", "policy_versions", "request_versions")


def apart(one: KeyParts, two: KeyParts) -> None:
    equal = one == two
    assert (canonical_request(one) == canonical_request(two)) == equal
    assert (exact_key(one) == exact_key(two)) == equal


@given(PARTS, PARTS)
@settings(max_examples=300)
def test_the_encoding_is_injective(one: KeyParts, two: KeyParts) -> None:
    apart(one, two)


@given(PARTS, st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.integers(0, 4))
@settings(max_examples=300)
def test_bytes_do_not_move_between_texts(
    parts: KeyParts, source: str, target: str, cut: int
) -> None:
    text = getattr(parts, source)
    moved: dict[str, Any] = {source: text[:cut]}
    if target != source:
        moved[target] = text[cut:] + getattr(parts, target)
    apart(parts, parts._replace(**moved))


@given(PARTS, st.sampled_from(LISTS), st.sampled_from(LISTS))
@settings(max_examples=300)
def test_pairs_do_not_move_between_lists(parts: KeyParts, source: str, target: str) -> None:
    pairs = getattr(parts, source)
    moved: dict[str, Any] = {source: pairs[:-1], target: (*pairs[-1:], *getattr(parts, target))}
    apart(parts, parts._replace(**moved))


@given(PARTS, st.sampled_from(LISTS))
def test_text_does_not_move_within_a_pair(parts: KeyParts, name: str) -> None:
    pairs = getattr(parts, name)
    moved: dict[str, Any] = {name: tuple((key + value[:1], value[1:]) for key, value in pairs)}
    apart(parts, parts._replace(**moved))


@given(PARTS)
def test_text_does_not_move_between_tenant_and_user(parts: KeyParts) -> None:
    tenant, user = parts.scope.tenant, parts.scope.user or ""
    for scope in (
        Scope(tenant + user),
        Scope(tenant + user, ""),
        Scope(tenant + user[:1], user[1:]),
        Scope("", tenant + user),
        Scope(user, tenant),
    ):
        apart(parts, parts._replace(scope=scope))


@given(PARTS)
def test_text_does_not_move_between_versions_and_the_body(parts: KeyParts) -> None:
    text = canonical_request(parts._replace(canonical=b""))
    apart(parts, parts._replace(canonical=text + parts.canonical))
    apart(parts, parts._replace(credential=b"", canonical=parts.credential + parts.canonical))


SHAPING = [b"openai-a", b"anthropic-version", b"x-flag", b"x-tenant-id", b"x-other"]
NAMES = st.sampled_from([*SHAPING, b"accept"])
VALUES = st.text(st.sampled_from("ab, \xff"), max_size=4).map(lambda text: text.encode("latin-1"))
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)


def told(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """What a receiver reads (RFC 9110, section 5.3), transport headers left out."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        if name != b"accept":
            found.setdefault(name, []).append(value.strip(b" \t"))
    return {name: b", ".join(values) for name, values in found.items()}


@given(HEADERS, HEADERS)
@settings(max_examples=300)
def test_headers_share_a_key_only_if_a_receiver_reads_the_same(
    one: list[tuple[bytes, bytes]], two: list[tuple[bytes, bytes]]
) -> None:
    keyed = [key_headers(raw, ("X-Flag",)) for raw in (one, two)]
    assert (keyed[0] == keyed[1]) == (told(one) == told(two))
