"""The name of a drawn hit says by what its verdict counts, and nobody else makes one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.exact.seal import Seal
from trivet.semantic.draws import Draw, DrawNames, drawn

NAMES = DrawNames(Seal(b"s" * 32))
DRAW = Draw("ab" * 16, "book", "cal", "chat:m", "informational", "cd" * 16, 1000.5)


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_name_is_read_back_and_goes_into_any_file(encrypt: bool) -> None:
    names = DrawNames(Seal(b"s" * 32, encrypt=encrypt))
    name = names.name("acme", DRAW)
    assert re.fullmatch("[A-Za-z0-9_-]+", name)
    assert names.read("acme", name) == DRAW


@given(st.text(max_size=80), st.text(max_size=40), st.floats(0, 1e12))
def test_whatever_callers_call_their_model_is_read_back(
    model: str, tenant: str, now: float
) -> None:
    draw = drawn("book", "cal", (f"chat:{model}", "time"), "ab" * 16, now)
    assert NAMES.read(tenant, NAMES.name(tenant, draw)) == draw


def test_a_name_is_of_one_tenant_and_one_deployment() -> None:
    name = NAMES.name("acme", DRAW)
    assert NAMES.read("other", name) is None
    assert DrawNames(Seal(b"t" * 32)).read("acme", name) is None


@given(st.integers(0, 10_000), st.sampled_from("AZaz09-_"))
def test_a_name_that_was_altered_is_none(at: int, letter: str) -> None:
    name = NAMES.name("acme", DRAW)
    place = at % len(name)
    altered = name[:place] + letter + name[place + 1 :]
    # The last letter of base64 has bits that say nothing.
    assert NAMES.read("acme", altered) in (None, DRAW)
    assert altered[:-1] == name[:-1] or NAMES.read("acme", altered) is None


@given(st.text(max_size=200))
def test_any_text_is_read_or_none(name: str) -> None:
    assert NAMES.read("acme", name) is None


def test_two_draws_of_one_hit_differ() -> None:
    at = "chat:m", "informational"
    one, other = (drawn("book", "cal", at, "ab" * 16, 1.0) for _ in range(2))
    assert one.nonce != other.nonce
    assert one._replace(nonce="") == other._replace(nonce="")


def test_a_family_too_long_for_a_name_is_not_known() -> None:
    draw = drawn("book", "cal", ("chat:" + "m" * 5000, "time"), "ab" * 16, 1.0)
    assert draw.family == ""
    assert len(NAMES.name("acme", draw)) < 1000
