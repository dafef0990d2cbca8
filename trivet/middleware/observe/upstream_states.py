"""Whether an upstream answers, as the requests that went there tell: for the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from trivet.telemetry import RequestDone

CALM_S: Final = 5.0
"""An upstream that fails some requests and answers others is one state, not a change for each."""

_FAILURES: Final = frozenset(
    {"upstream-connect", "upstream-timeout", "upstream-refused", "upstream-garbage", "upstream-cut"}
)


class UpstreamChange(NamedTuple):
    """An upstream began to fail, or answers again after `failures` requests that it failed."""

    upstream: str
    up: bool
    reason: str
    failures: int


@dataclass(slots=True)
class _Failing:
    last: float
    failures: int
    reason: str


class UpstreamStates:
    """One change of state for each trouble, however many requests it meets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing: dict[str, _Failing] = {}

    def see(self, done: RequestDone) -> UpstreamChange | None:
        """What the end of a request changes, if anything. Hits tell nothing of an upstream."""
        if done.reason in _FAILURES:
            return self._failed(done.upstream, done.reason)
        known = self._failing.get(done.upstream)
        if known is None or done.tier is not None or not done.upstream_s:
            return None
        if done.status >= 500 or self._clock() - known.last < CALM_S:
            return None
        del self._failing[done.upstream]
        return UpstreamChange(done.upstream, True, known.reason, known.failures)

    def _failed(self, upstream: str, reason: str) -> UpstreamChange | None:
        known = self._failing.get(upstream)
        if known is None:
            self._failing[upstream] = _Failing(self._clock(), 1, reason)
            return UpstreamChange(upstream, False, reason, 1)
        known.last, known.reason = self._clock(), reason
        known.failures += 1
        return None
