"""What is wrong where a text is not YAML, in words for who wrote it, and where."""

from __future__ import annotations

import re
from collections.abc import Callable

import yaml

from trivet.errors import Problem

_Word = Callable[[yaml.MarkedYAMLError], str]


def syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    """The finding for an error of PyYAML's scanner or parser."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return Problem(file, line, column, "", f"is not valid YAML: {_said(error)}.")
    at = getattr(error, "position", None)
    before = text[:at] if isinstance(at, int) else ""
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Problem(file, line, column, "", "is not valid YAML: a control character stands here.")


def _said(error: yaml.MarkedYAMLError) -> str:
    where = f"{error.context or ''}: {error.problem or ''}"
    for pattern, word in _WORDS:
        if pattern.search(where):
            return word(error)
    return "this was not expected here"


def _opened(error: yaml.MarkedYAMLError) -> str:
    return f"in line {error.context_mark.line + 1}" if error.context_mark else "before"


def _character(error: yaml.MarkedYAMLError) -> str:
    found = re.search(r"found character '(.+?)' that cannot start", error.problem or "")
    shown = found[1] if found else ""
    if shown == "\\t":
        return "a tab stands here; indent with spaces"
    return f"text cannot begin with {shown}; put it in quotes"


def _plain(text: str) -> _Word:
    return lambda error: text


_WORDS: tuple[tuple[re.Pattern[str], _Word], ...] = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"cannot start any token", _character),
        (
            r"mapping values are not allowed",
            _plain(
                "no colon was expected here; each field begins a line, in the column of its "
                "neighbours, and text with a colon goes in quotes"
            ),
        ),
        (
            r"sequence entries are not allowed",
            _plain("a dash is not expected here; put each item on a line of its own"),
        ),
        (
            r"could not find expected ':'",
            lambda error: f"expected a colon after the name {_opened(error)}: `name: value`",
        ),
        (
            r"while parsing a flow sequence",
            lambda error: f"expected a comma or ] in the list that [ opens {_opened(error)}",
        ),
        (
            r"while parsing a flow mapping",
            lambda error: f"expected a comma or }} in what {{ opens {_opened(error)}",
        ),
        (
            r"while scanning a quoted scalar",
            lambda error: f"expected the quote that closes the one {_opened(error)}",
        ),
        (
            r"while scanning a double-quoted scalar",
            _plain(
                "the backslash means something of its own in double quotes; use single quotes, or "
                "write \\\\"
            ),
        ),
        (
            r"while parsing a block (mapping|collection)",
            lambda error: (
                "expected another field or item in the column of the one before "
                f"(the section begins {_opened(error)})"
            ),
        ),
        (r"while parsing a (flow|block) node", _plain("expected a value")),
        (
            r"while scanning a block scalar",
            _plain("expected the end of the line after | or >"),
        ),
        (
            r"single document|document start",
            _plain("expected the end of the file; one file is one document"),
        ),
        (r"anchor|alias", _plain("anchors (&name) and aliases (*name) are not read here")),
        (r"tag", _plain("tags (!name) are not read here; put text that begins with ! in quotes")),
        (r"directive", _plain("text cannot begin with %; put it in quotes")),
    )
)
