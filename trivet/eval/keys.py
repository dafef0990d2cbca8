"""Single keys from a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_MOST = 1024


@contextmanager
def keyboard() -> Iterator[Callable[[], str]]:
    """A function that waits for one key; empty for Ctrl-C and for the end of the input.

    The terminal is without echo from first to last, so that keys typed ahead are neither lost nor
    shown. Raises `click.UsageError` where there is no terminal.
    """
    if not sys.stdin.isatty():
        yield _elsewhere
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd, termios.TCSADRAIN)
    try:
        yield _Typed(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Typed:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ahead: list[str] = []

    def __call__(self) -> str:
        if not self._ahead:
            try:
                read = os.read(self._fd, _MOST).decode("utf-8", "replace")
            except (KeyboardInterrupt, OSError):
                return ""
            # An arrow key is several bytes, of which one may be the letter of an answer.
            self._ahead = [read] if read.startswith("\x1b") else list(read)
        return self._ahead.pop(0) if self._ahead else ""


def _elsewhere() -> str:
    try:
        return click.getchar()
    except (KeyboardInterrupt, EOFError):
        return ""
    except OSError:
        raise click.UsageError("There is no terminal to ask in: use --file.") from None
