"""The clock of a simulator. Tests move it, so that none has to wait for an hour."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trivet.errors import RequestError

_ITEM = re.compile(r"\s*(at|advance|first-byte)=([^;,]*)")
_BETWEEN = re.compile(r"[;,]")


class Moment(NamedTuple):
    """When a request starts, and when its answer begins after that. In seconds."""

    at: float
    first_byte_s: float


class Clock:
    """Seconds since the simulator started; from the first `at=` on, only what commands say."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._start = now()
        self._moved = 0.0
        self._stopped: float | None = None

    def now(self) -> float:
        """Seconds."""
        running = self._now() - self._start if self._stopped is None else self._stopped
        return running + self._moved

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._moved += seconds

    def stop_at(self, seconds: float) -> None:
        """Stand still there. Raises `RequestError` 400 for a time that is past."""
        if self._stopped is not None and seconds < self.now():
            raise RequestError(400, f"x-mock: at={seconds:g} is past: it is {self.now():g}.")
        self._stopped, self._moved = seconds, 0.0

    def take(self, words: Mapping[str, float], delay_s: float) -> Moment:
        """Obey `at` and `advance`: the moment of a request whose answer begins after `delay_s`, or
        after `first-byte`. Raises `RequestError` as `stop_at` does."""
        if "at" in words:
            self.stop_at(words["at"])
        self.advance(words.get("advance", 0.0))
        return Moment(self.now(), words.get("first-byte", delay_s))


def split(headers: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """The clock's words in an `x-mock` header, in seconds, and the headers without them.

    Raises `RequestError` 400 for what is no time.
    """
    found, left = {}, []
    for item in _BETWEEN.split(headers.get("x-mock", "")):
        match = _ITEM.fullmatch(item)
        if match is None:
            left.append(item)
        else:
            found[match[1]] = _seconds(match[1], match[2])
    return found, {**headers, "x-mock": ";".join(left)} if found else dict(headers)


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise RequestError(400, f"x-mock: {name}={value} is no time.", field="x-mock")
    return seconds
