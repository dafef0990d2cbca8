"""What is shown on stderr of what takes long, and nothing of what does not.

Only where stderr is a terminal: what is piped stays data.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

T = TypeVar("T")
_PATIENCE_S = 2.0
_TICK_S: Final = 1.0
_CLEAR: Final = "\r\x1b[K"


def watched(items: Iterable[T], length: int, label: str) -> Iterator[T]:
    """The items as they are; a bar appears once two seconds have passed."""
    if not sys.stderr.isatty():
        yield from items
        return
    import click

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


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Say what is being done and for how long, from two seconds on: its end is not foreseen.

    The line is gone at the end, whatever that is. Nothing else may write to stderr meanwhile.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    telling = threading.Thread(target=_tell, args=(label, done), daemon=True)
    telling.start()
    try:
        yield
    finally:
        done.set()
        telling.join()


def _tell(label: str, done: threading.Event) -> None:
    began = time.monotonic()
    pause = _PATIENCE_S
    shown = False
    while not done.wait(pause):
        pause, shown = _TICK_S, True
        sys.stderr.write(f"{_CLEAR}{label} ... {time.monotonic() - began:.0f} s")
        sys.stderr.flush()
    if shown:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
