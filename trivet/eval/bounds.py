"""One-sided exact bounds on a false-hit rate, and how many hits a target takes."""

from __future__ import annotations

from trivet.errors import ConfigError, Problem


def upper_bound(false_hits: int, hits: int, confidence: float) -> float:
    """Upper bound on the rate behind `false_hits` among `hits`, exact at `confidence`.

    Clopper and Pearson, Biometrika 26 (1934), 404-413, one-sided: the rate at which so few false
    hits or fewer have probability 1 - confidence. 1 where there was no hit, or all were false.
    Raises `ValueError` for counts that cannot be, or a confidence outside (0, 1).
    """
    if not 0 <= false_hits <= hits:
        raise ValueError(f"{false_hits} false hits among {hits} hits cannot be")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is above 0 and below 1, not {confidence}")
    if false_hits == hits:
        return 1.0
    return float(_betaincinv(false_hits + 1, hits - false_hits, confidence))


def hits_needed(target: float, confidence: float, false_hits: int = 0) -> int:
    """The fewest hits that certify `target` with so many false ones among them.

    Raises `ValueError` for a target or a confidence outside (0, 1).
    """
    if not 0 < target < 1:
        raise ValueError(f"a target is above 0 and below 1, not {target}")
    enough = false_hits + 1
    while upper_bound(false_hits, enough, confidence) > target:
        enough *= 2
    short = max(enough // 2, false_hits)
    while enough - short > 1:
        middle = (short + enough) // 2
        if upper_bound(false_hits, middle, confidence) > target:
            short = middle
        else:
            enough = middle
    return enough


def _betaincinv(a: float, b: float, probability: float) -> float:
    try:
        from scipy.special import betaincinv
    except ImportError:
        raise ConfigError(
            Problem("scipy", 0, 0, "", "is not installed: pip install 'trivet[semantic]'")
        ) from None
    found: float = betaincinv(a, b, probability)
    return found
