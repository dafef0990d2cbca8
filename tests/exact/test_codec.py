"""Entries as bytes."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest
from entries import entry, key
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import StoreError
from trivet.exact.codec import Rejected, _counts, decode, encode
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.messages import Api, ExactKey, Usage

SEAL = Seal(b"s" * 32)
SECRET_SEAL = Seal(b"s" * 32, encrypt=True)
SEALS = pytest.mark.parametrize("seal", [SEAL, SECRET_SEAL], ids=["sealed", "encrypted"])

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNT = st.integers(0, 10**9)
TIME = st.floats(0, 4e9)
ENTRIES = st.builds(
    Entry,
    key=st.binary(min_size=32, max_size=32).map(ExactKey),
    tenant=TEXT,
    api=st.sampled_from(Api),
    canonical=st.binary(max_size=3000),
    body=st.binary(max_size=3000),
    model=TEXT,
    usage=st.none() | st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT),
    ids=st.lists(TEXT, max_size=3).map(tuple),
    created=TIME,
    expires=TIME,
    stale_until=TIME,
    labels=st.frozensets(TEXT, max_size=3),
    headers=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)


@SEALS
@given(made=ENTRIES)
def test_an_entry_comes_back_whole(seal: Seal, made: Entry) -> None:
    assert decode(encode(made, seal), made.tenant, made.key, seal) == made


@pytest.mark.parametrize("change", [{"model": "\ud800"}, {"labels": frozenset({"\udfff"})}])
def test_names_that_are_no_text_cannot_be_stored(change: dict[str, Any]) -> None:
    with pytest.raises(StoreError) as caught:
        encode(entry(**change), SEAL)
    assert caught.value.reason == "unstorable"


@SEALS
def test_a_memo_is_not_stored(seal: Seal) -> None:
    made = entry()
    made.memo["stream"] = b"x"
    found = decode(encode(made, seal), "t1", made.key, seal)
    assert isinstance(found, Entry)
    assert found.memo == {}


@SEALS
def test_text_is_deflated_where_it_pays(seal: Seal) -> None:
    prose = b" ".join(b"sentence number %d of a long answer" % n for n in range(400))
    assert len(encode(entry(body=prose), seal)) < len(prose) / 2
    noise = bytes(b * b * 7919 % 251 for b in range(5000))
    assert len(encode(entry(body=noise[:1000]), seal)) > 1000


@SEALS
@given(place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_an_altered_entry_is_rejected(seal: Seal, place: int, flip: int) -> None:
    raw = bytearray(encode(entry(), seal))
    raw[place % len(raw)] ^= flip
    found = decode(bytes(raw), "t1", entry().key, seal)
    assert found == Rejected("format" if place % len(raw) == 0 else "mac")


@SEALS
def test_a_truncated_entry_is_rejected(seal: Seal) -> None:
    raw = encode(entry(), seal)
    for end in range(len(raw)):
        found = decode(raw[:end], "t1", entry().key, seal)
        assert found == Rejected("mac" if end else "format")


@SEALS
def test_an_entry_of_another_key_or_tenant_is_rejected(seal: Seal) -> None:
    raw = encode(entry("a"), seal)
    assert decode(raw, "t1", key("b"), seal) == Rejected("mac")
    assert decode(raw, "t2", key("a"), seal) == Rejected("mac")


def test_an_entry_of_another_format_is_rejected() -> None:
    made = entry()
    assert decode(encode(made, SEAL), "t1", made.key, SECRET_SEAL) == Rejected("format")
    assert decode(encode(made, SECRET_SEAL), "t1", made.key, SEAL) == Rejected("format")
    assert decode(b"\x09" + encode(made, SEAL)[1:], "t1", made.key, SEAL) == Rejected("format")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00\x00\x00\x09[]",
        b"\x00\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x00\x04null",
        b"\x01"
        + (lambda head: len(head).to_bytes(4, "big") + head)(
            orjson.dumps(["chat", "m", None, [], 0, 0, 0, [], [], 1])
        )
        + b"not deflated",
        b"\x00"
        + (lambda head: len(head).to_bytes(4, "big") + head)(
            orjson.dumps(["no-such-api", "m", None, [], 0, 0, 0, [], [], 0])
        ),
    ],
)
def test_bytes_that_were_sealed_but_are_no_entry_are_rejected(data: bytes) -> None:
    raw = b"\x01" + SEAL.seal("t1", b"\x01" + key("a"), data)
    assert decode(raw, "t1", key("a"), SEAL) == Rejected("corrupt")


def test_a_deflated_entry_that_was_cut_is_corrupt() -> None:
    head = orjson.dumps(["chat", "m", None, [], 0, 0, 0, [], [], 1])
    texts = zlib.compress(b"x" * 5000)[:-6]
    data = b"\x01" + len(head).to_bytes(4, "big") + head + texts
    raw = b"\x01" + SEAL.seal("t1", b"\x01" + key("a"), data)
    assert decode(raw, "t1", key("a"), SEAL) == Rejected("corrupt")


def test_an_entry_of_four_counts_is_read_and_one_without_long_writes_is_written_so() -> None:
    """While a fleet is updated, each version reads what the other stored."""
    short, long = Usage(100, 5, 40, 30), Usage(100, 5, 40, 30, 10)
    assert (_counts(short), _counts(long)) == ((100, 5, 40, 30), (100, 5, 40, 30, 10))
    assert Usage(*_counts(short)) == short
