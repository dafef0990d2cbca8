"""Canonical JSON holds for every text: one value one form, and two values never one."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trivet import canonical
from trivet.canonical import dump, join, parse
from trivet.errors import RequestError

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
NEARLY_JSON = st.lists(
    st.sampled_from(
        [
            *'{}[]:,"\\',
            " ",
            "\n",
            '"a"',
            '"a":',
            "0",
            "-",
            "1.0",
            "1e5",
            "e",
            ".",
            "00",
            "null",
            "true",
            "NaN",
            "Infinity",
            "\\u0061",
            "\\ud800",
            "\u00e9",
            "\x00",
            "18446744073709551616",
        ]
    ),
    max_size=12,
).map("".join)


def same(one: Any, two: Any) -> bool:
    """Equal in value and kind: 1 is neither 1.0 nor true, 0.0 is not -0.0."""
    if type(one) is not type(two):
        return False
    if type(one) is dict:
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if type(one) is list:
        return len(one) == len(two) and all(map(same, one, two))
    return repr(one) == repr(two)


def spelled(value: Any, draw: random.Random) -> str:
    """The value as JSON in one of its many spellings."""
    space = draw.choice(["", " ", "\n\t"])
    if type(value) is dict:
        items = [f"{spelled(k, draw)}{space}:{spelled(v, draw)}" for k, v in value.items()]
        return "{" + space + f",{space}".join(items) + "}"
    if type(value) is list:
        return "[" + f"{space},".join(spelled(item, draw) for item in value) + space + "]"
    if type(value) is str and draw.random() < 0.5:
        units = value.encode("utf-16-be", "surrogatepass").hex()
        return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'
    return space + json.dumps(value) + space


def joins_surrogates(value: Any) -> bool:
    """A high surrogate before a low one: JSON text reads the two as one character."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") != text


@given(VALUES, st.randoms(use_true_random=False))
def test_every_spelling_of_a_value_has_its_form(value: Any, draw: random.Random) -> None:
    assume(not joins_surrogates(value))
    read = parse(spelled(value, draw).encode())
    assert same(read, value)
    assert dump(read) == dump(value)


@given(VALUES, VALUES)
def test_two_values_never_share_a_form(one: Any, two: Any) -> None:
    assert (dump(one) == dump(two)) == same(one, two)


@given(VALUES)
def test_a_form_leads_back_to_its_value(value: Any) -> None:
    assume(not joins_surrogates(value))
    assert same(parse(dump(value).removeprefix(b"\x00")), value)


@given(st.one_of(VALUES.map(dump), NEARLY_JSON.map(str.encode), st.binary(max_size=30)))
@example(b'{"a":1,"a":1}')
@example(b"1e400")
@example(b"[1,2]")
@example(b"-0")
@settings(max_examples=1000)
def test_the_fast_path_takes_nothing_that_the_strict_one_refuses(raw: bytes) -> None:
    try:
        fast = orjson.loads(raw)
        taken = orjson.dumps(fast) == raw
    except (orjson.JSONDecodeError, TypeError):
        taken = False
    if taken:
        assert same(canonical._parse_strict(raw), fast)


@given(st.one_of(NEARLY_JSON.map(str.encode), st.binary(max_size=60)))
@settings(max_examples=500)
def test_any_bytes_are_read_or_refused_as_a_bad_request(raw: bytes) -> None:
    try:
        value = parse(raw)
    except RequestError as error:
        status: int | None = error.status
    else:
        dump(value)
        status = None
    assert status in (None, 400)


@given(st.lists(st.binary(max_size=10), max_size=5), st.lists(st.binary(max_size=10), max_size=5))
def test_join_is_injective(one: list[bytes], two: list[bytes]) -> None:
    assert (join(*one) == join(*two)) == (one == two)


@pytest.mark.parametrize("depth", [250, 253, 254, 255, 256])
def test_both_paths_agree_about_depth(depth: int) -> None:
    def taken(raw: bytes) -> bool:
        try:
            parse(raw)
        except RequestError:
            return False
        return True

    for opening, closing in ((b"[", b"]"), (b'{"a":[', b"]}"), (b'[{"a":', b"}]")):
        size = depth if opening == b"[" else depth // 2
        raw = opening * size + (b"" if opening == b"[" else b"1") + closing * size
        assert taken(raw) == taken(b" " + raw)
