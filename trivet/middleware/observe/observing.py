"""One observer out of several, none of which can hurt a request."""

from __future__ import annotations

import traceback
from collections.abc import Collection

import structlog

from trivet.telemetry import Event, Observer, ignore

_log = structlog.get_logger("trivet")


def tell_all(*observers: Observer) -> Observer:
    """An observer that tells all `observers`, in order.

    One that has a set of event types as `hears` is told of no others. One that raises is left out
    of that event, and its first failure is logged; the others are told all the same. Nothing is
    raised.
    """
    told = tuple(_Guarded(observer) for observer in observers if observer is not ignore)
    if not told:
        return ignore
    if len(told) == 1:
        return told[0]

    hearing: dict[type[Event], tuple[_Guarded, ...]] = {}

    def tell(event: Event, /) -> None:
        kind = type(event)
        hear = hearing.get(kind)
        if hear is None:
            hear = hearing[kind] = tuple(one for one in told if one.wants(kind))
        for one in hear:
            try:
                one.observer(event)
            except Exception as error:
                one.failed(event, error)

    return tell


class _Guarded:
    """An observer that never raises, and says once why the one inside did."""

    __slots__ = ("_failed", "_hears", "observer")

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._hears: Collection[type[Event]] | None = getattr(observer, "hears", None)
        self._failed = False

    def wants(self, kind: type[Event]) -> bool:
        """Whether events of that type are any matter to the observer."""
        return self._hears is None or kind in self._hears

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
