"""What callers may ask of the cache, and that it is never more than the policy gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError
from trivet.policies.directives import (
    NONE,
    Directives,
    entry_labels,
    read_directives,
    read_purpose,
    tags_of,
)
from trivet.policies.model import TenantPolicy


def control(text: str) -> Directives:
    return read_directives({"cache-control": text}, {})


def body(**fields: Any) -> Directives:
    return read_directives({}, {name.replace("_", "-"): value for name, value in fields.items()})


def versions(text: str) -> Mapping[str, str]:
    return dict(read_directives({"trivet-version": text}, {}).versions)


def tags(text: str) -> tuple[str, ...]:
    return read_directives({"trivet-tag": text}, {}).tags


def test_nothing_asked_is_nothing_wished() -> None:
    assert read_directives({"accept": "*/*"}, {}) is NONE
    assert Directives() == NONE


@pytest.mark.parametrize(
    ("text", "wished"),
    [
        ("no-cache", Directives(no_cache=True)),
        ("No-Cache", Directives(no_cache=True)),
        ('no-cache="set-cookie"', Directives(no_cache=True)),
        ("no-store", Directives(no_store=True)),
        ("only-if-cached", Directives(only_if_cached=True)),
        ("max-age=60", Directives(max_age=60.0)),
        ('max-age="60"', Directives(max_age=60.0)),
        ("max-age = 60", Directives(max_age=60.0)),
        ("max-age=0", Directives(max_age=0.0)),
        ("max-age=60, max-age=5", Directives(max_age=5.0)),
        ("max-age=x, max-age=5", Directives(max_age=5.0)),
        ("min-fresh=60", Directives(min_fresh=60.0)),
        ("min-fresh=0", Directives(min_fresh=0.0)),
        ("min-fresh=60, min-fresh=5", Directives(min_fresh=60.0)),
        ("min-fresh=5, min-fresh=x", Directives(min_fresh=5.0)),
        ("min-fresh=5, max-age=60", Directives(min_fresh=5.0, max_age=60.0)),
        ("max-age=5, no-cache,no-store", Directives(max_age=5.0, no_cache=True, no_store=True)),
    ],
)
def test_cache_control_has_its_rfc_9111_meaning(text: str, wished: Directives) -> None:
    assert control(text) == wished


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",,,",
        "max-age",
        "max-age=",
        "max-age=-1",
        "max-age=1.5",
        "max-age=1e3",
        "max-age=\u0663",
        "max-stale=60",
        "min-fresh",
        "min-fresh=x",
        "min-fresh=-1",
        "stale-if-error=600",
        "public, immutable",
        "x-no-store",
        'private="no-store, no-cache"',
    ],
)
def test_unknown_directives_and_garbage_are_ignored(text: str) -> None:
    assert control(text) == NONE


@pytest.mark.parametrize(
    ("text", "wished"),
    [
        ("no-cache", Directives(no_cache=True)),
        ("No-Cache", Directives(no_cache=True)),
        ("x, no-cache", Directives(no_cache=True)),
        ("no-store, max-age=5, min-fresh=5, only-if-cached", NONE),
        ("", NONE),
    ],
)
def test_pragma_can_say_no_cache_and_nothing_else(text: str, wished: Directives) -> None:
    assert read_directives({"pragma": text}, {}) == wished


@pytest.mark.parametrize("control", ["", "max-age=5"])
def test_pragma_counts_only_where_cache_control_is_absent(control: str) -> None:
    headers = {"pragma": "no-cache", "cache-control": control}
    assert read_directives(headers, {}) == read_directives({"cache-control": control}, {})


def test_pragma_counts_beside_a_body_that_speaks_to_the_cache() -> None:
    wished = read_directives({"pragma": "no-cache"}, {"ttl": 5})
    assert (wished.no_cache, wished.ttl) == (True, 5.0)


@pytest.mark.parametrize("text", ["2147483649", "9" * 400])
def test_an_overflowing_max_age_is_the_largest(text: str) -> None:
    assert control(f"max-age={text}").max_age == 2147483648.0


@given(st.text(max_size=200))
def test_cache_control_never_raises(text: str) -> None:
    control(text)


def test_litellms_body_is_understood() -> None:
    assert body(no_cache=True).no_cache
    assert body(no_store=True).no_store
    assert body(ttl=60).ttl == 60.0
    assert body(ttl="60").ttl == 60.0
    assert body(ttl=0.5).ttl == 0.5
    assert body(s_maxage=5).max_age == 5.0
    assert body(s_max_age=5).max_age == 5.0


def test_use_cache_can_only_switch_off() -> None:
    assert body(use_cache=False).no_store
    assert body(use_cache=True) == NONE


def test_a_namespace_and_other_fields_are_not_read() -> None:
    assert body(namespace="other-tenant", similarity_threshold=0.1, supported=[]) == NONE


def test_nulls_and_falses_are_no_wish() -> None:
    assert body(no_cache=None, no_store=False, ttl=None, s_maxage=None) == NONE


def test_the_stricter_of_header_and_body_wins() -> None:
    headers = {"cache-control": "max-age=10"}
    assert read_directives(headers, {"s-maxage": 5}).max_age == 5.0
    assert read_directives(headers, {"s-maxage": 50}).max_age == 10.0


@pytest.mark.parametrize("value", [-1, True, "soon", "-5", [], {}, "1.5"])
@pytest.mark.parametrize("name", ["ttl", "s-maxage"])
def test_a_lifetime_of_the_wrong_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as raised:
        read_directives({}, {name: value})
    assert (raised.value.status, raised.value.field) == (400, f"cache.{name}")


@pytest.mark.parametrize("name", ["no-cache", "no-store", "use-cache"])
def test_a_switch_of_the_wrong_type_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as raised:
        read_directives({}, {name: "yes"})
    assert (raised.value.status, raised.value.field) == (400, f"cache.{name}")


def test_huge_lifetimes_are_cut() -> None:
    assert body(ttl=10**30).ttl == 2147483648.0


def test_versions_are_read_and_sorted() -> None:
    found = read_directives({"trivet-version": "prompt = 7 , docs=2026-11-30 a,"}, {})
    # The comma parts members, so a value ends before it.
    assert found.versions == (("docs", "2026-11-30 a"), ("prompt", "7"))


def test_a_version_may_hold_an_equals_sign() -> None:
    assert versions("etag=W/a=b") == {"etag": "W/a=b"}


def test_an_empty_version_header_names_none() -> None:
    assert versions("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "prompt",
        "=7",
        "prompt=",
        "pro mpt=7",
        "prompt=7,prompt=8",
        "a=" + "x" * 129,
        "n" * 65 + "=1",
        "a=\x01",
        "a=\u00e9",
        ",".join(f"v{number}=1" for number in range(17)),
    ],
)
def test_a_malformed_version_header_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as raised:
        versions(text)
    assert (raised.value.status, raised.value.field) == (400, "Trivet-Version")


def test_versions_at_their_bounds_are_taken() -> None:
    assert versions("a=" + "x" * 128) == {"a": "x" * 128}
    assert len(versions(",".join(f"v{number}=1" for number in range(16)))) == 16


def test_tags_are_read_once_each_in_order() -> None:
    assert tags("doc-1, doc 2 ,doc-1,,https://x/y?z=1") == ("doc-1", "doc 2", "https://x/y?z=1")


@pytest.mark.parametrize("text", ["x" * 129, "\x7f", "caf\u00e9", ",".join(map(str, range(33)))])
def test_a_malformed_tag_header_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as raised:
        tags(text)
    assert (raised.value.status, raised.value.field) == (400, "Trivet-Tag")


def test_labels_name_tags_and_both_kinds_of_versions() -> None:
    policy = TenantPolicy(tenant="acme", versions={"prompt": "7"})
    asked = Directives(tags=("doc-1",), versions=(("docs", "3"),))
    assert entry_labels(policy, asked) == {"tag:doc-1", "version:prompt=7", "version:docs=3"}


def test_the_tags_of_an_answer_are_its_labels_without_the_versions() -> None:
    labels = frozenset({"tag:b", "version:prompt=7", "tag:a"})
    assert tags_of(labels) == ["tag:a", "tag:b"]


def test_an_answer_without_tags_and_versions_has_no_labels() -> None:
    assert entry_labels(TenantPolicy(tenant="acme"), NONE) == frozenset()


@pytest.mark.parametrize(
    ("headers", "purpose"), [({}, "request"), ({"trivet-purpose": "warm"}, "warm")]
)
def test_a_request_that_warms_says_so(headers: Mapping[str, str], purpose: str) -> None:
    assert read_purpose(headers) == purpose


@pytest.mark.parametrize("word", ["", "Warm", "audit", "warm, warm"])
def test_another_purpose_is_refused_by_name(word: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_purpose({"trivet-purpose": word})
    assert (caught.value.status, caught.value.field) == (400, "Trivet-Purpose")
