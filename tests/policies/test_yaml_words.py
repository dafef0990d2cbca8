"""Files that are no YAML: where, and what was expected, in our words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.policies.nodes import read_yaml


def said(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read_yaml("a.yaml", text)
    (only,) = raised.value.problems
    return str(only).replace(" is not valid YAML:", "")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("exact:\n\tttl: 5\n", "2:1", "a tab stands here; indent with spaces."),
        ("tenant: @acme\n", "1:9", "text cannot begin with @; put it in quotes."),
        ("tenant: a: b\n", "1:10", "no colon was expected here; each field begins a line"),
        ("tenant: a\n  exact: 1\n", "2:8", "no colon was expected here; each field begins a line"),
        ("tenant: - a\n", "1:9", "a dash is not expected here; put each item on a line"),
        (
            "a: 1\nexact\nttl: 5\n",
            "3:1",
            "expected a colon after the name in line 2: `name: value`.",
        ),
        ("models: [a\nb: 1\n", "2:2", "expected a comma or ] in the list that [ opens in line 1."),
        ("exact: {ttl: 5\n", "2:1", "expected a comma or } in what { opens in line 1."),
        ("tenant: 'a\nb: 1\n", "3:1", "expected the quote that closes the one in line 1."),
        ('tenant: "a\\q"\n', "1:12", "the backslash means something of its own in double"),
        ("exact:\n  ttl: 5\n k: 2\n", "3:2", "expected another field or item in the column of"),
        ("tenant: |x\n  a\n", "1:10", "expected the end of the line after | or >."),
        ("tenant: a\n---\ntenant: b\n", "2:1", "expected the end of the file; one file is one"),
        ("tenant: &\n", "1:10", "anchors (&name) and aliases (*name) are not read here."),
        ("tenant: !<x y\n", "1:12", "tags (!name) are not read here"),
        ("[", "1:2", "expected a value."),
        ("a: 1\nb: \0\n", "2:4", "a control character stands here."),
    ],
)
def test_each_mistake_has_its_place_and_what_was_expected(
    text: str, place: str, words: str
) -> None:
    assert said(text).startswith(f"a.yaml:{place}: {words}")


@given(st.text("ab:-[]{}&*!|>'\"%@`,#? \n\t", max_size=24))
def test_no_text_is_told_in_the_words_of_the_library(text: str) -> None:
    try:
        read_yaml("a.yaml", text)
    except ConfigError as error:
        told = str(error)
        for word in ("token", "scanning", "parsing", "mapping", "scalar", "but found", "<", "flow"):
            assert word not in told or word in text
