"""Whether a replica is asked: ejected after failures, readmitted slowly. Pure: `now` is given.

Passive ejection and slow start as Envoy documents them (outlier detection; slow start mode):
consecutive failures eject for a time that doubles, and who comes back takes its share of the load
little by little, since its cache is cold.
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 3
"""Consecutive failures of requests that eject. In slow start, or of a health check, one does."""
FIRST_S, LONGEST_S = 2.0, 60.0
SLOW_START_S: Final = 30.0
LEAST_WEIGHT: Final = 0.1


class ReplicaHealth:
    """The health of one replica. New ones are up, at their full weight."""

    def __init__(self) -> None:
        self._failures = 0
        self._ejected_until = 0.0
        self._since: float | None = None
        """When it began to be asked again after an ejection."""
        self._pause = FIRST_S
        self.reason = ""
        """Why it was ejected last."""

    def up(self, now: float) -> bool:
        """Whether it is to be asked."""
        return now >= self._ejected_until

    def weight(self, now: float) -> float:
        """Share of its full load, 0.1 to 1."""
        if self._since is None:
            return 1.0
        share = (now - max(self._since, self._ejected_until)) / SLOW_START_S
        if share >= 1:
            self._since, self._pause = None, FIRST_S
            return 1.0
        return max(LEAST_WEIGHT, share)

    def answered(self) -> None:
        """A request was answered, or a health check was passed."""
        self._failures = 0

    def failed(self, now: float, reason: str, *, checked: bool = False) -> bool:
        """A request, or with `checked` a health check, got no answer. True if this ejects it."""
        self._failures += 1
        comes_back = self._since is not None
        if not checked and not comes_back and self._failures < FAILURES:
            return False
        was_up = self.up(now)
        self._ejected_until = self._since = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_S)
        self._failures, self.reason = 0, reason
        return was_up
