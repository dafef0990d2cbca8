"""Canonical JSON: what is read, what is refused, and what counts as the same."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet import canonical
from trivet.canonical import MAX_DEPTH, digest, dump, envelope, join, mac, parse, sha256
from trivet.errors import RequestError


def nested(depth: int, kind: str = "[") -> bytes:
    if kind == "[":
        return b"[" * depth + b"]" * depth
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


def refused(raw: bytes) -> RequestError:
    with pytest.raises(RequestError) as raised:
        parse(raw)
    assert raised.value.status == 400
    return raised.value


def takes_the_fast_path(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    called: list[bytes] = []
    monkeypatch.setattr(canonical, "_parse_strict", lambda raw: called.append(raw))
    parse(raw)
    return not called


def test_a_compact_body_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert takes_the_fast_path(b'{"a":[1,2.5,null,true,"\xc3\xa9"]}', monkeypatch)


@pytest.mark.parametrize("raw", [b'{"a": 1}', b'{"a":1,"a":1}', b"[1e5]", b'"\\u00e9"', b"\n1"])
def test_anything_else_takes_the_strict_one(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not takes_the_fast_path(raw, monkeypatch)


@pytest.mark.parametrize("space", [b"", b" ", b"\n\t\r "])
def test_white_space_makes_no_difference(space: bytes) -> None:
    raw = space.join([b"{", b'"a"', b":", b"[", b"1", b",", b"2", b"]", b"}"])
    assert dump(parse(space + raw + space)) == b'{"a":[1,2]}'


def test_escape_styles_make_no_difference() -> None:
    spelled = [rb'"\u00e9/\n"', rb'"\u00E9\/\u000a"', '"\u00e9/\\n"'.encode()]
    assert {dump(parse(raw)) for raw in spelled} == {'"\u00e9/\\n"'.encode()}


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(rb'"\ud83d\ude00"') == parse('"\U0001f600"'.encode()) == "\U0001f600"


def test_unicode_forms_are_not_folded() -> None:
    assert dump(parse('"\u00e9"'.encode())) != dump(parse('"e\u0301"'.encode()))


def test_the_order_of_keys_is_kept() -> None:
    assert dump(parse(b'{"b": 1, "a": {"d": 1, "c": 2}}')) == b'{"b":1,"a":{"d":1,"c":2}}'


def test_an_envelope_sorts_its_own_level_only() -> None:
    assert dump(envelope(parse(b'{"b":{"d":1,"c":2},"a":1}'))) == b'{"a":1,"b":{"d":1,"c":2}}'


@pytest.mark.parametrize(
    "raw", [b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'[{"x":{"k":1,"\\u006b":2}}]', b'{"":0,"":0}']
)
def test_duplicate_keys_are_refused(raw: bytes) -> None:
    error = refused(raw)
    assert "twice" in error.message


def test_a_duplicate_key_is_named() -> None:
    error = refused(b'{"model":"a","model":"b"}')
    assert error.field == "model"
    assert error.message == "The JSON body names 'model' twice."


def test_the_name_of_a_duplicate_key_can_be_written_into_an_error() -> None:
    error = refused(b'{"\\ud800":1,"\\ud800":2}')
    assert error.field == "\\ud800"
    error.message.encode()
    long = refused(b'{"%b":1,"%b":2}' % (b"k" * 10_000, b"k" * 10_000))
    assert len(long.message) < 200
    assert len(long.field or "") == 80


@pytest.mark.parametrize("raw", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"nan", b"[+1]"])
def test_numbers_that_are_not_json_are_refused(raw: bytes) -> None:
    refused(raw)


@pytest.mark.parametrize("raw", [b"1e400", b"-1e309", b"[1.8e308]", b"1" + b"0" * 400 + b".0"])
def test_numbers_beyond_a_double_are_refused(raw: bytes) -> None:
    assert "too large for a double" in refused(raw).message


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"1", b"1.0"),
        (b"0", b"-0.0"),
        (b"0.0", b"-0.0"),
        (b"-0", b"0"),
        (b"[-0]", b"[0]"),
        (b"-0", b"0.0"),
        (b"1", b"true"),
        (b"0", b"false"),
        (b"null", b'"null"'),
        (b"1", b'"1"'),
        (b"18446744073709551616", b"1.8446744073709552e19"),
        (b"18446744073709551616", b"18446744073709551617"),
        (b"-9223372036854775809", b"-9223372036854775810"),
        (b"9007199254740993", b"9007199254740992"),
        (b"[[]]", b"[]"),
        (b"[[],[]]", b"[[[]]]"),
        (b'{"a":[]}', b'{"a":{}}'),
        (b'{"a":null}', b"{}"),
        (rb'"\ud83d"', rb'"\ud83c"'),
        (rb'"\ud83d"', rb'"\\ud83d"'),
        (rb'"\u0000"', rb'""'),
    ],
)
def test_different_values_have_different_forms(one: bytes, two: bytes) -> None:
    assert dump(parse(one)) != dump(parse(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [(b"1e2", b"100.0"), (b"1E2", b"1.0e+2"), (b"0.10", b"0.1"), (b"0e-400", b"0.0")],
)
def test_spellings_of_one_double_have_one_form(one: bytes, two: bytes) -> None:
    assert dump(parse(one)) == dump(parse(two))


def test_long_integers_are_kept_exactly() -> None:
    text = b"1" + b"0" * 3998 + b"7"
    assert dump(parse(text)) == b"\x00" + text
    assert dump(parse(b"[1" + text[1:] + b"]")) == b"\x00[" + text + b"]"


def test_an_absurd_integer_is_refused() -> None:
    assert refused(b"1" * 4001).message == "An integer of 4001 digits is too long."


def test_lone_surrogates_are_kept_in_ascii_behind_a_nul() -> None:
    value = parse(b'{"a":"\\ud800"}')
    assert value == {"a": "\ud800"}
    assert dump(value) == b'\x00{"a":"\\ud800"}'
    assert dump(parse(rb'{"\udfff":1}')) == b'\x00{"\\udfff":1}'


@pytest.mark.parametrize("kind", ["[", "{"])
@pytest.mark.parametrize("space", [b"", b" "])
def test_nesting_is_taken_up_to_the_limit_on_both_paths(kind: str, space: bytes) -> None:
    """Behind white space the strict parser decides, without it the fast one."""
    raw = space + nested(MAX_DEPTH, kind)
    assert dump(parse(raw)) == nested(MAX_DEPTH, kind)


@pytest.mark.parametrize("kind", ["[", "{"])
@pytest.mark.parametrize("space", [b"", b" "])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_nesting_beyond_the_limit_is_refused(kind: str, space: bytes, depth: int) -> None:
    assert "nested deeper than 254 levels" in refused(space + nested(depth, kind)).message


@pytest.mark.parametrize(
    "raw", [b"1e-400", b"-1e-400", b"[0.001e-330]", b"0." + b"0" * 400 + b"1", b"5E-325"]
)
def test_numbers_too_small_for_a_double_are_refused(raw: bytes) -> None:
    assert "too small for a double" in refused(raw).message


def test_the_smallest_double_is_taken() -> None:
    assert parse(b"[5e-324]") == [5e-324]


def test_unclosed_nesting_is_refused() -> None:
    refused(b"[" * 2_000_000)


@pytest.mark.parametrize("item", [b"{},", b"[],", b"0,", b"{}, "])
def test_a_body_of_millions_of_values_is_refused_before_it_is_read(
    item: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "_parse_strict", lambda raw: pytest.fail("it was read"))
    with pytest.raises(RequestError) as raised:
        parse(b"[" + item * 3_000_000 + b"0]")
    assert (raised.value.status, raised.value.message) == (
        413,
        "The JSON body has too many values.",
    )
    raw = b'{"a":"%b"}' % (b"x" * 3_000_001)
    assert len(parse(raw)["a"]) == 3_000_001


def test_a_hundred_levels_are_fine() -> None:
    assert dump(parse(b" " + nested(100))) == nested(100)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b"{}}",
        b"{} {}",
        b"{'a':1}",
        b'{"a":1,}',
        b"[1,]",
        b"{a:1}",
        b"/**/1",
        b"01",
        b"1.",
        b".5",
        b'"\t"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\u 123"',
        "\u0661".encode(),
        b"\x00",
        b"1\x00",
        "\u00a01".encode(),
        "1\u2028".encode(),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert refused(raw).message.startswith("The body is not valid JSON")


def test_the_place_of_a_mistake_is_told() -> None:
    assert refused(b'{"a": 1,\n "b" 2}').message == (
        "The body is not valid JSON: Expecting ':' delimiter at line 2 column 6."
    )


@pytest.mark.parametrize(
    "raw", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"']
)
def test_what_is_not_utf_8_is_refused(raw: bytes) -> None:
    assert refused(raw).message == "The body is not valid UTF-8 at byte 1."


def test_a_byte_order_mark_is_refused() -> None:
    """RFC 8259, section 8.1 lets a parser ignore one; upstreams differ, so we do not."""
    assert "BOM" in refused(b"\xef\xbb\xbf{}").message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused(encoding: str) -> None:
    refused('{"model":"m"}'.encode(encoding))


@pytest.mark.parametrize("compact", [True, False])
def test_twenty_megabytes_are_read_whole(compact: bool) -> None:
    body = {"messages": [{"role": "user", "content": "x\u00e9\n" * 1000}] * 5000}
    raw = json.dumps(body, ensure_ascii=not compact, separators=(",", ":") if compact else None)
    assert len(raw) >= 20_000_000
    assert (
        dump(parse(raw.encode()))
        == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    )


def test_many_long_integers_cost_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        raw = b"[" + b",".join([b"7" * 4000] * count) + b"]"
        began = time.perf_counter()
        dump(parse(raw))
        return time.perf_counter() - began

    few = min(seconds(100) for _ in range(3))
    assert seconds(1000) < 40 * few + 0.5


def test_dump_refuses_what_json_cannot_say() -> None:
    with pytest.raises((TypeError, ValueError)):
        dump({"\ud800": float("nan")})


def test_join_puts_each_part_behind_its_length() -> None:
    assert join() == b""
    assert join(b"ab", b"") == b"\0\0\0\0\0\0\0\x02ab" + bytes(8)


def test_digest_is_sha_256_of_the_joined_parts() -> None:
    assert digest(b"a", b"bc") == hashlib.sha256(join(b"a", b"bc")).digest()


def test_sha256_is_of_the_bytes_alone() -> None:
    assert sha256(b"abc") == hashlib.sha256(b"abc").digest()


def test_mac_is_hmac_sha_256_of_the_joined_parts() -> None:
    assert mac(b"k", b"a", b"bc") == hmac.new(b"k", join(b"a", b"bc"), "sha256").digest()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((b"ab", b"c"), (b"a", b"bc")),
        ((b"a",), (b"a", b"")),
        ((), (b"",)),
        ((b"a", b"b"), (b"b", b"a")),
        ((join(b"a"),), (b"a",)),
    ],
)
def test_bytes_do_not_move_between_parts(one: tuple[Any, ...], two: tuple[Any, ...]) -> None:
    assert join(*one) != join(*two)
    assert digest(*one) != digest(*two)
    assert mac(b"k", *one) != mac(b"k", *two)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_split_gives_back_what_join_put_together(parts: list[bytes]) -> None:
    assert canonical.split(canonical.join(*parts)) == parts


@pytest.mark.parametrize("cut", [1, 7, 9, 12])
def test_split_refuses_what_was_cut(cut: int) -> None:
    with pytest.raises(ValueError, match="not joined parts"):
        canonical.split(canonical.join(b"hello")[:cut])
