"""One observer out of several, none of which can hurt a request."""

from __future__ import annotations

import traceback

import structlog

from trivet.telemetry import Event, Observer, ignore

_log = structlog.get_logger("trivet")


def tell_all(*observers: Observer) -> Observer:
    """An observer that tells all `observers`, in order.

    One that raises is left out of that event, and its first failure is logged; the others are told
    all the same. Nothing is raised.
    """
    told = tuple(_Guarded(observer) for observer in observers if observer is not ignore)
    if not told:
        return ignore
    if len(told) == 1:
        return told[0]

    def tell(event: Event, /) -> None:
        for one in told:
            try:
                one.observer(event)
            except Exception as error:
                one.failed(event, error)

    return tell


class _Guarded:
    """An observer that never raises, and says once why the one inside did."""

    __slots__ = ("_failed", "observer")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._failed = False

    def __call__(self, event: Event, /) -> None:
        try:
            self.observer(event)
        except Exception as error:
            self.failed(event, error)

    def failed(self, event: Event, error: Exception) -> None:
        """Log the first failure. Observers run in the middle of a request, which must not fail
        because counting did."""
        if self._failed:
            return
        self._failed = True
        # The message is left out: it may quote what the observer was given.
        frames = traceback.extract_tb(error.__traceback__)
        _log.error(
            "observer-failed",
            observer=getattr(self.observer, "__qualname__", type(self.observer).__qualname__),
            told=type(event).__name__,
            error=type(error).__name__,
            at=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        )
