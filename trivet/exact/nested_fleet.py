"""Collapse within the machine first, then across machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from trivet.exact.fleet import Claim, Fleet, Lead, Remote
from trivet.exact.flight import Flight


class NestedFleet:
    """A `Fleet` of two: one worker of a machine speaks for it in the outer fleet."""

    where: Literal["machine", "fleet"] = "fleet"

    def __init__(self, inner: Fleet, outer: Fleet) -> None:
        self._inner = inner
        self._outer = outer

    async def claim(self, flight: Flight) -> Claim:
        """See `Fleet.claim`. A flight fed from another machine still serves this one's workers."""
        inner = await self._inner.claim(flight)
        if isinstance(inner, Remote):
            return inner
        try:
            outer = await self._outer.claim(flight)
        except BaseException:
            inner.undo()
            raise
        undo = _both(inner.undo, outer.undo)
        if isinstance(outer, Remote):
            return Remote(outer.feed, undo)
        return Lead(undo)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def undo() -> None:
        first()
        second()

    return undo
