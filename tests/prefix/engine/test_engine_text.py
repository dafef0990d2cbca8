from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trivet.prefix.engine.text import Detokenizer, StopStrings


@cache
def byte_level() -> Any:
    """A tokenizer of single bytes, with a few longer tokens that cut characters in two."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = {bytes_of(letter): letter for letter in letters}
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    merges = []
    for pair in (b"he", b"\xe2\x82", b"\x9f\x98", b"\xf0\x9f"):
        first, second = spelled[pair[:1]], spelled[pair[1:]]
        merges.append((first, second))
        vocabulary[first + second] = len(vocabulary)
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


@cache
def alphabet() -> dict[str, int]:
    """Which byte each letter of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {
        **{chr(byte): byte for byte in plain},
        **{chr(256 + at): byte for at, byte in enumerate(rest)},
    }


def bytes_of(letter: str) -> bytes:
    return bytes([alphabet()[letter]])


def decode(tokens: Sequence[int]) -> str:
    text: str = byte_level().decode(list(tokens))
    return text


def pieces_of(tokens: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(decode)
    return [*map(detokenizer.push, tokens), detokenizer.flush()]


def test_a_character_of_several_tokens_comes_whole() -> None:
    tokens = byte_level().encode("a€b").ids
    assert len(tokens) == 4
    assert pieces_of(tokens) == ["a", "", "€", "b", ""]


def test_a_character_that_never_ends_is_told_at_the_end() -> None:
    tokens = byte_level().encode("ok€").ids[:-1]
    assert pieces_of(tokens) == ["o", "k", "", "\ufffd"]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("he a€😀é\ufffd\n"), max_size=30))
def test_the_pieces_are_the_text_and_none_has_half_a_character(text: str) -> None:
    pieces = pieces_of(byte_level().encode(text).ids)
    assert "".join(pieces) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 259), max_size=80))
def test_the_pieces_of_any_tokens_are_what_they_read_as_together(tokens: list[int]) -> None:
    assert "".join(pieces_of(tokens)) == decode(tokens)


def test_what_came_out_is_never_taken_back() -> None:
    tokens = byte_level().encode("né 😀 €€ he").ids
    detokenizer = Detokenizer(decode)
    out = ""
    for token in tokens:
        out += detokenizer.push(token)
        assert "né 😀 €€ he".startswith(out)


def test_each_token_is_decoded_a_bounded_number_of_times() -> None:
    decoded = 0

    def counting(tokens: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return decode(tokens)

    detokenizer = Detokenizer(counting)
    for token in byte_level().encode("he a€😀" * 500).ids:
        detokenizer.push(token)
    assert decoded < 5 * 500 * len(byte_level().encode("he a€😀").ids)


def test_broken_bytes_without_end_cost_a_bounded_window() -> None:
    (half,) = byte_level().encode("\x80").ids[:1] or [0]
    longest = 0

    def counting(tokens: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return decode(tokens)

    detokenizer = Detokenizer(counting)
    for _ in range(2000):
        detokenizer.push(half)
    assert longest < 200


def passed(stops: Sequence[str], pieces: Sequence[str]) -> tuple[str, str | None]:
    filtered = StopStrings(stops)
    out = "".join(map(filtered.push, pieces))
    return (out if filtered.met else out + filtered.flush()), filtered.met


@pytest.mark.parametrize(
    ("stops", "text", "expected", "met"),
    [
        (("END",), "so END it", "so ", "END"),
        (("END",), "so EN it", "so EN it", None),
        (("b", "abc"), "abc", "a", "b"),
        (("bc", "abc"), "abc", "", "abc"),
        (("aab",), "aaab", "a", "aab"),
        ((), "anything", "anything", None),
        (("", "x"), "axb", "a", "x"),
    ],
)
def test_text_ends_before_the_stop_string_that_is_complete_first(
    stops: tuple[str, ...], text: str, expected: str, met: str | None
) -> None:
    assert passed(stops, [text]) == (expected, met)
    assert passed(stops, list(text)) == (expected, met)


@settings(max_examples=300, deadline=None)
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    pieces=st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_how_the_text_is_cut_changes_nothing(stops: list[str], pieces: list[str]) -> None:
    assert passed(stops, pieces) == passed(stops, list("".join(pieces)))


def test_what_may_begin_a_stop_string_is_held_back() -> None:
    filtered = StopStrings(["<end>"])
    assert [filtered.push(piece) for piece in ("a<", "en", "x<end", ">b", "c")] == [
        "a", "", "<enx", "", "",
    ]  # fmt: skip
    assert filtered.met == "<end>"
