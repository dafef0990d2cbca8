"""What the commands print, whatever is in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.terminal import plain, plain_lines, say, say_json

PACKAGE = Path(__file__).parent.parent / "trivet"
ANY = st.text(st.characters(codec=None))
"""Lone surrogates among them."""
ESCAPED = re.compile(r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


@given(ANY)
def test_nothing_but_printable_characters_is_left(text: str) -> None:
    assert plain(text).isprintable()


@given(ANY)
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    def kept(one: str) -> bool:
        return one.isprintable() and one != "\\"

    left = ESCAPED.sub("", plain(text.replace("\\", "")))
    assert left == "".join(filter(kept, text))


@given(ANY)
def test_a_layout_keeps_its_lines_and_nothing_else_that_steers(text: str) -> None:
    shown = plain_lines(text)
    assert shown.split("\n") == [plain_lines(line) for line in text.split("\n")]
    assert shown.replace("\n", "").replace("\t", "").isprintable()


@given(ANY)
def test_what_was_made_plain_stays_as_it_is(text: str) -> None:
    assert plain(plain(text)) == plain(text) == plain_lines(plain(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c"),
        ("a\nb\rc", r"a\nb\rc"),
        ("crème \U0001f600", "crème \U0001f600"),
    ],
)
def test_escapes_are_shown_as_python_writes_them(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_text_is_said_without_what_steers(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\n\x1b[2Jtwo")
    say("\x1b[31mred", err=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("one\n\\x1b[2Jtwo\n", "\\x1b[31mred\n")


def test_json_is_one_plain_line_that_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a\x1b": "\x7f\x9b\n\ud800é"}
    say_json(value)
    line = capsys.readouterr().out.removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value


def test_commands_print_by_no_other_way() -> None:
    texts = {file: file.read_text() for file in PACKAGE.rglob("*.py") if file.name != "terminal.py"}
    assert [file for file, text in texts.items() if re.search(r"\bclick\.s?echo\b", text)] == []
