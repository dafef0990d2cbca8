"""What the commands print: words out of a log or a request steer no terminal and forge no line."""

from __future__ import annotations

import json
from typing import Any, Final

_LAYOUT: Final = "\t\n"


def plain(text: str) -> str:
    """The text in one line, each character that a terminal does not show as `\\x1b`, `\\n`, ...

    Control and format characters (Unicode categories Cc and Cf), line and paragraph separators,
    lone surrogates. What is printable stays, a backslash too.
    """
    return text if text.isprintable() else "".join(map(_plain, text))


def plain_lines(text: str) -> str:
    """`plain`, but for tabs and line feeds: for a text that is laid out already."""
    return "".join(one if one in _LAYOUT else _plain(one) for one in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a text that is laid out, to standard output or standard error."""
    _print(plain_lines(text), err=err)


def say_json(value: Any) -> None:
    """Print JSON for scripts, in one line of ASCII without a control character."""
    _print(json.dumps(value).replace("\x7f", "\\u007f"))


def _plain(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode("ascii")


def _print(text: str, *, err: bool = False) -> None:
    import click

    click.echo(text, err=err)
