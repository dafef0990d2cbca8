import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.status import CacheStatus, cache_status, parse, quote, token_or_string

STRING = re.compile(r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"')
"""sf-string of RFC 9651, section 3.3.3."""
TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*")
"""sf-token of RFC 9651, section 3.3.4."""


def test_a_hit_names_its_freshness_and_key() -> None:
    status = CacheStatus("exact", hit=True, ttl=3599, key="9f2c")
    assert cache_status(status) == 'trivet-exact; hit; ttl=3599; key="9f2c"'


def test_a_stored_miss_says_both() -> None:
    assert (
        cache_status(CacheStatus("exact", fwd="miss", stored=True))
        == "trivet-exact; fwd=miss; stored"
    )


def test_a_bypass_names_its_reason() -> None:
    status = CacheStatus("exact", fwd="bypass", detail="sampled")
    assert cache_status(status) == "trivet-exact; fwd=bypass; detail=sampled"


def test_each_consulted_tier_is_a_member_in_order() -> None:
    value = cache_status(
        CacheStatus("exact", fwd="miss"),
        CacheStatus("semantic", fwd="bypass", detail="no-calibration"),
    )
    assert value == "trivet-exact; fwd=miss, trivet-semantic; fwd=bypass; detail=no-calibration"


def test_a_collapsed_request_says_so() -> None:
    assert (
        cache_status(CacheStatus("exact", fwd="miss", collapsed=True))
        == "trivet-exact; fwd=miss; collapsed"
    )


def test_a_stale_answer_shows_a_negative_ttl_and_the_upstreams_status() -> None:
    stale = CacheStatus("exact", hit=True, ttl=-30, detail="stale-if-error")
    assert cache_status(stale) == "trivet-exact; hit; ttl=-30; detail=stale-if-error"
    forwarded = CacheStatus("exact", fwd="stale", fwd_status=503)
    assert cache_status(forwarded) == "trivet-exact; fwd=stale; fwd-status=503"


def test_a_detail_that_is_no_token_becomes_a_string() -> None:
    status = CacheStatus("exact", fwd="bypass", detail='said "no"')
    assert cache_status(status) == 'trivet-exact; fwd=bypass; detail="said \\"no\\""'


def test_an_integer_beyond_fifteen_digits_is_clamped() -> None:
    assert cache_status(CacheStatus("exact", hit=True, ttl=10**18)).endswith("ttl=999999999999999")


@given(st.text())
def test_any_text_becomes_a_valid_string(text: str) -> None:
    assert STRING.fullmatch(quote(text))


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_a_printable_ascii_string_reads_back_as_itself(text: str) -> None:
    assert parse(f"trivet-exact; key={quote(text)}") == {"trivet-exact": {"key": text}}


@given(st.text())
def test_a_detail_is_a_valid_token_or_string(text: str) -> None:
    made = token_or_string(text)
    assert TOKEN.fullmatch(made) or STRING.fullmatch(made)
    assert "\r" not in made
    assert "\n" not in made


@given(
    st.sampled_from(["exact", "semantic", "prefix"]),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(-(10**6), 10**6),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)),
)
def test_what_is_written_reads_back(
    tier: str, hit: bool, stored: bool, ttl: int | None, text: str
) -> None:
    status = CacheStatus(
        tier,  # type: ignore[arg-type]
        hit=hit,
        fwd=None if hit else "miss",
        stored=stored,
        ttl=ttl,
        key=text,
        detail=text,
    )
    expected: dict[str, object] = {"key": text, "detail": text}
    expected.update({"hit": True} if hit else {"fwd": "miss"})
    if stored:
        expected["stored"] = True
    if ttl is not None:
        expected["ttl"] = ttl
    value = cache_status(status, CacheStatus("exact" if tier != "exact" else "prefix", hit=True))
    assert parse(value)[f"trivet-{tier}"] == expected


@pytest.mark.parametrize("value", ["", "  ", "a b", "a; =1", 'a; k="x', "a,,b", "a,"])
def test_what_is_no_list_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse(value)
