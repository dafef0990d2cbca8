"""Writing systems of texts."""

from __future__ import annotations

import pytest

from trivet.semantic.scripts import scripts_of


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("how do I reset it?", {"latin"}),
        ("où est l'hôtel", {"latin"}),
        ("как дела", {"cyrillic"}),
        ("你好", {"han"}),
        ("こんにちは、カナ", {"hiragana", "katakana"}),
        ("안녕하세요", {"hangul"}),
        ("مرحبا", {"arabic"}),
        ("שלום hi", {"hebrew", "latin"}),
        ("नमस्ते", {"devanagari"}),
        ("ｈｉ", {"latin"}),
        ("", set()),
        ("12 + 3 = 15 🙂", set()),
        ("10 µm", {"latin"}),
        ("𝑥", set()),
    ],
)
def test_the_letters_name_the_writing_system(text: str, scripts: set[str]) -> None:
    assert scripts_of(text) == scripts
