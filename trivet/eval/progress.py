"""A progress bar on stderr for what takes long, and none for what does not."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import click

T = TypeVar("T")
_PATIENCE_S = 2.0


def watched(items: Iterable[T], length: int, label: str) -> Iterator[T]:
    """The items as they are; a bar appears once two seconds have passed.

    It goes to stderr, and only where that is a terminal: what is piped stays data.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    began = time.monotonic()
    with ExitStack() as stack:
        bar = None
        for done, item in enumerate(items):
            yield item
            if bar is not None:
                bar.update(1)
            elif time.monotonic() - began > _PATIENCE_S:
                bar = stack.enter_context(
                    click.progressbar(length=length, label=label, file=sys.stderr)
                )
                bar.update(done + 1)
