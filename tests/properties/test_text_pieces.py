"""The pieces of a replayed text are the text, and never cut through what is drawn as one."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.dialects.pieces import text_pieces, token_pieces

ATOMS = st.sampled_from(
    [
        "word ",
        "a",
        "\r\n",
        " ",
        "\n",
        "é",
        "e\u0301",
        " \u0301",
        "👩‍👩‍👧‍👦",
        "🏽",
        "🇨🇭",
        "漢字",
        "か\u3099",
        "각",
        "नि",
        "\u200da",
    ]
)
TEXTS = st.lists(ATOMS | st.characters(codec="utf-8"), max_size=400).map("".join)


def cuts(text: str) -> list[tuple[str, str]]:
    """The characters on both sides of each cut."""
    pieces = text_pieces(text)
    assert "".join(pieces) == text
    assert all(pieces)
    return [(left[-1], right[0]) for left, right in pairwise(pieces)]


@given(TEXTS)
def test_no_cut_falls_inside_a_grapheme_cluster(text: str) -> None:
    for left, right in cuts(text):
        assert not unicodedata.combining(right)
        assert unicodedata.category(right)[0] in "LNPS"
        assert left != "\u200d"
        assert (left, right) != ("\r", "\n")
        assert ord(right) < 0x1F000


@given(
    st.lists(st.sampled_from(["word", "and", "so", "on"]), min_size=20, max_size=40),
    st.integers(3, 500),
)
def test_a_text_with_words_is_cut_between_them(words: list[str], times: int) -> None:
    text = " ".join(words * times)
    found = cuts(text)
    assert {left for left, _ in found} == {" "}
    assert 1 <= len(found) <= 140


@given(TEXTS, st.data())
def test_tokens_that_spell_a_text_give_it_back_with_every_token_once(
    text: str, data: st.DataObject
) -> None:
    raw, tokens, start = text.encode(), [], 0
    while start < len(raw):
        end = start + data.draw(st.integers(1, 4))
        tokens.append({"token": "?", "bytes": list(raw[start:end])})
        start = end
    pieces = token_pieces(text, tokens)
    assert pieces is not None
    assert "".join(piece for piece, _ in pieces) == text
    assert [token for _, group in pieces for token in group] == tokens
