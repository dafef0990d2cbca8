"""Whether two kinds of request take different times, told on a machine that is never quiet.

Each pair is measured back to back, in random order, so that load meets both alike; what is compared
is their ratio. Signed ranks (Wilcoxon 1945) ask nothing of its distribution but that it is
symmetric where there is no difference. Pairs are added until the confidence interval of the median
ratio is narrow enough to see 5 %, whatever it says.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, wilcoxon

SEEN = 0.05
"""The relative difference that has to show."""

CONFIDENCE = 0.99
STEP, MOST = 40, 800
"""Pairs between two looks, and at most."""


@dataclass(frozen=True)
class Difference:
    """By how much the first kind takes longer than the second, as a share of it."""

    estimate: float
    low: float
    high: float
    p: float
    pairs: int

    @property
    def is_seen(self) -> bool:
        """Beyond chance, and more than 5 % either way."""
        return self.p < 1e-3 and not -SEEN < self.low <= self.high < SEEN

    @property
    def is_excluded(self) -> bool:
        """The interval lies within 5 % either way, and chance explains the rest."""
        return -SEEN < self.low <= self.high < SEEN and self.p >= 1e-3

    @property
    def is_narrow(self) -> bool:
        """Half of 5 % on either side of the estimate."""
        return self.high - self.low <= SEEN


def difference(pairs: Sequence[tuple[float, float]]) -> Difference:
    """Of times in pairs: the Hodges-Lehmann estimate and its interval from signed ranks."""
    first, second = np.array(pairs).T
    ratios = np.log(first / second)
    n = len(ratios)
    rows, columns = np.triu_indices(n)
    means = np.sort((ratios[rows] + ratios[columns]) / 2)
    spread = np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    cut = max(0, int(n * (n + 1) / 4 - norm.ppf((1 + CONFIDENCE) / 2) * spread))
    ends = np.median(means), means[cut], means[len(means) - 1 - cut]
    estimate, low, high = (float(np.expm1(end)) for end in ends)
    return Difference(estimate, low, high, float(wilcoxon(ratios).pvalue), n)


Probe = Callable[[], Awaitable[float]]


def shortened(times: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same pairs, the first of each 5 % shorter: what has to be told apart."""
    return [(first * (1 - SEEN), second) for first, second in times]


async def measured(
    pair: Callable[[], Awaitable[tuple[Probe, Probe]]], seed: int = 1
) -> tuple[Difference, list[tuple[float, float]]]:
    """Pairs of probes, made anew each time, until their difference is known well enough."""
    chance = random.Random(seed)
    times: list[tuple[float, float]] = []
    while True:
        for _ in range(STEP):
            first, second = await pair()
            if chance.random() < 0.5:
                taken = await first()
                times.append((taken, await second()))
            else:
                other = await second()
                times.append((await first(), other))
        found, planted = difference(times), difference(shortened(times))
        if (found.is_narrow and planted.p < 1e-4) or len(times) >= MOST:
            return found, times
