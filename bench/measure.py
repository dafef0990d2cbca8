"""Rounds of several servers in turn, and ratios between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.load import Job, Sample, run
from bench.processes import Process

NewJob = Callable[[], Job]
"""Makes the job of one round: its requests are used up by it."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long everything is measured."""

    rounds: int
    seconds: float
    quick: bool


FULL = Effort(rounds=7, seconds=2.0, quick=False)
QUICK = Effort(rounds=3, seconds=0.7, quick=True)


@dataclass(frozen=True, slots=True)
class Subject:
    """One server that takes part in a comparison."""

    process: Process
    job: NewJob


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one server."""

    rps: float
    p50: float
    """Milliseconds, as all times here."""
    p99: float
    first_byte: float
    """Median, to the first byte of the body."""
    cpu: float
    """Microseconds of the server's CPU for one request."""
    waited: float
    """Microseconds for one request in which others had its core: 0 on a quiet machine."""


Figure = Literal["rps", "p50", "p99", "first_byte", "cpu", "waited"]


def figures(sample: Sample, cpu_s: float, waited_s: float) -> Figures:
    """What a round comes down to."""
    return Figures(
        rps=sample.count / sample.seconds,
        p50=percentile(sample.latencies, 50) * 1e3,
        p99=percentile(sample.latencies, 99) * 1e3,
        first_byte=percentile(sample.first_bytes, 50) * 1e3,
        cpu=cpu_s / sample.count * 1e6,
        waited=waited_s / sample.count * 1e6,
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Comparison:
    """The same rounds of several servers, one after the other, so that they share the weather."""

    def __init__(self, rounds: Mapping[str, Sequence[Figures]]) -> None:
        self._rounds = rounds

    def value(self, name: str, figure: Figure) -> float:
        """Median over the rounds."""
        return median(self._each(name, figure))

    def ratio(self, name: str, base: str, figure: Figure) -> float:
        """Median of the rounds' ratios of `name` to `base`."""
        pairs = zip(self._each(name, figure), self._each(base, figure), strict=True)
        return median(one / other for one, other in pairs)

    def added(self, name: str, base: str, figure: Figure) -> float:
        """Median of the rounds' differences."""
        pairs = zip(self._each(name, figure), self._each(base, figure), strict=True)
        return median(one - other for one, other in pairs)

    def _each(self, name: str, figure: Figure) -> list[float]:
        return [float(getattr(one, figure)) for one in self._rounds[name]]

    def say(self, name: str) -> str:
        """The absolute figures of one server, for the table's last column."""
        rps, p50 = self.value(name, "rps"), self.value(name, "p50")
        p99, cpu = self.value(name, "p99"), self.value(name, "cpu")
        waited = self.value(name, "waited")
        return (
            f"{name} {rps:,.0f} rps, p50 {p50:.2f} p99 {p99:.2f} ms, {cpu:.0f} us CPU"
            f" (+{waited:.0f} waiting)"
        )


async def compare(subjects: Mapping[str, Subject], effort: Effort) -> Comparison:
    """Measure every subject in every round, in turn; the order turns around each time."""
    rounds: dict[str, list[Figures]] = {name: [] for name in subjects}
    for subject in subjects.values():
        await run(subject.job(), seconds=effort.seconds / 4)
    for turn in range(effort.rounds):
        order = list(subjects.items())
        for name, subject in order if turn % 2 == 0 else reversed(order):
            process = subject.process
            cpu, waited = process.cpu_s(), process.waited_s()
            sample = await run(subject.job(), seconds=effort.seconds)
            rounds[name].append(figures(sample, process.cpu_s() - cpu, process.waited_s() - waited))
    return Comparison(rounds)


async def warm(url: str, requests: Iterator[bytes], count: int) -> None:
    """Send each of `count` requests once."""
    await run(Job(url, requests), count=count)
