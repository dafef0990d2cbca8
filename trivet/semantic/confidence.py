"""Bounds on a rate that hold at every moment of watching it, however often they are looked at.

For a rate p that is too high, the likelihood ratio of the outcomes under a mixture of lower rates
against p is a non-negative supermartingale that starts at 1, so it ever reaches 1/alpha with
probability at most alpha (Ville). The rates for which it has not are the confidence sequence:
Robbins, Ann. Math. Statist. 41 (1970), 1397-1409; Howard, Ramdas, McAuliffe and Sekhon, Ann.
Statist. 49 (2021), 1055-1080; as bets, Waudby-Smith and Ramdas, JRSS B 86 (2024), 1-27. A beta
distribution as the mixture has a closed form.

Each outcome has to be false with probability p given those before it. The mixtures are for small
rates; any rate is covered.
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma, log, log1p

_Beta = tuple[float, float]
_LOW: _Beta = (0.5, 50.0)
"""Mixture of the upper bound. Mean 0.01: what is expected of a tier that does well."""
_HIGH: _Beta = (0.5, 5.0)
"""Mixture of the lower bound. Wider, since a tier that does badly may do so by any measure."""
_STEPS = 50
"""Halvings of an interval: beyond them a double has no more digits that matter."""


def upper(n: int, k: int, alpha: float) -> float:
    """Upper bound on the rate after `k` of `n` were false; 1 where nothing is known.

    With probability 1 - alpha or more the rate is never above it, over all n. Raises `ValueError`
    for counts that cannot be, or an alpha outside (0, 1).
    """
    _check(n, k, alpha)
    if k == n:
        return 1.0
    mixed, enough = _mixed(n, k, _LOW), -log(alpha)
    below, above = k / n, 1.0
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if middle < 1 and mixed - _log_likelihood(middle, n, k) < enough:
            below = middle
        else:
            above = middle
    return above


def lower(n: int, k: int, alpha: float) -> float:
    """Lower bound on the rate after `k` of `n` were false; 0 where nothing is known.

    With probability 1 - alpha or more the rate is never below it, over all n. Raises `ValueError`
    as `upper` does.
    """
    _check(n, k, alpha)
    if k == 0:
        return 0.0
    mixed, enough = _mixed(n, k, _HIGH), -log(alpha)
    below, above = 0.0, k / n
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if mixed - _log_likelihood(middle, n, k) < enough:
            above = middle
        else:
            below = middle
    return below


@lru_cache(maxsize=256)
def audits_to_open(target: float, alpha: float) -> int:
    """The fewest audits without a false hit that bring `upper` to the target or under it.

    Raises `ValueError` for a target or an alpha outside (0, 1).
    """
    if not 0 < target < 1:
        raise ValueError(f"a target is above 0 and below 1, not {target}")
    enough = 1
    while upper(enough, 0, alpha) > target:
        enough *= 2
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        if upper(middle, 0, alpha) > target:
            short = middle
        else:
            enough = middle
    return enough


def _mixed(n: int, k: int, mixture: _Beta) -> float:
    """Logarithm of the likelihood under the mixture."""
    a, b = mixture
    return _log_beta(a + k, b + n - k) - _log_beta(a, b)


def _log_likelihood(p: float, n: int, k: int) -> float:
    """Of the rate `p`, 0 < p < 1. Concave with its peak at k/n: the rates that stand are an
    interval around it."""
    return k * log(p) + (n - k) * log1p(-p)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _check(n: int, k: int, alpha: float) -> None:
    if not 0 <= k <= n:
        raise ValueError(f"{k} false ones among {n} cannot be")
    if not 0 < alpha < 1:
        raise ValueError(f"an alpha is above 0 and below 1, not {alpha}")
