"""Picks the chain, and certifies a threshold for it.

How many pairs there are, and how they hang together, says which of four ways it goes; labels have
no part in that.

- A part of the pairs could be set aside (`parts`): it picks the chain, the others certify it. The
  fitted chain is picked, too, where it tells clearly more about those set aside
  (`logistic.gain`).
- None could, but there are enough pairs to test every chain on all of them: each is tested at its
  share of the error probability (Bonferroni), so that all that is certified holds together, and
  the one that serves most same pairs may be taken.
- Fewer: only thresholds that serve less than half of the pairs are tested, of the first chain and
  of the cheapest. The pairs that none of these serves take no part in any test, so their labels
  are free to pick one of the two.
- Fewer still: the first chain is tested alone, with the whole of it.

Where nothing is certified, nothing is promised, and any label may say which chain comes nearest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trivet.eval import choose
from trivet.eval.bounds import hits_needed
from trivet.eval.choose import Certified
from trivet.eval.logistic import gain
from trivet.eval.parts import AMPLE, ROOM, Parts, Promise
from trivet.eval.sweep import Row, roc_auc
from trivet.policies.calibration import Chain as ChainName

Scores = Mapping[ChainName, Sequence[Row]]
"""Rows of all pairs by each chain, the one that is taken unseen first, the cheapest last."""
_FITTED: ChainName = "fitted"
_COSTLIEST: ChainName = "cross-encoder"
"""It runs a transformer for each pair: it never wins a tie."""

_CLEAR = 2.0
"""Chance alone gets so far in about 2 of 100 draws: a costlier chain has to show more."""
_TESTED = 0.5
"""Share of the pairs that a tested threshold serves at most, where the others pick the chain."""
_BETTER = 0.05
"""By how much the AUC of a costlier chain has to be higher."""
_FEWEST = 5
"""Pairs of either kind, below which they pick nothing."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The chain, and its threshold where one was certified."""

    chain: ChainName
    certified: Certified | None
    prospects: Mapping[ChainName, float] = field(default_factory=dict)
    """`choose.promising` of each chain on the pairs set aside; empty where none were."""
    note: str = ""


def pick(scores: Scores, parts: Parts, promise: Promise) -> Pick:
    """Pick among the chains, of which there is one at least."""
    if parts.choosing:
        return _by_others(scores, parts, promise)
    if len(scores) == 1:
        return _alone(scores, parts, promise)
    each = Promise(promise.target, 1 - (1 - promise.confidence) / len(scores))
    if len(parts.certifying) >= AMPLE * hits_needed(*each):
        return _each(scores, parts, promise, each)
    if len(parts.certifying) >= ROOM * hits_needed(*promise):
        return _by_unserved(scores, parts, promise)
    note = f"too few pairs to pick a chain by: only {next(iter(scores))} was tested."
    return _alone(scores, parts, promise, note)


def rows_of(rows: Sequence[Row], which: Sequence[int]) -> list[Row]:
    """The rows at these places."""
    return [rows[at] for at in which]


def _by_others(scores: Scores, parts: Parts, promise: Promise) -> Pick:
    prospects = _prospects(scores, parts.choosing, promise)
    chain = _best(prospects)
    if _FITTED in scores and chain != _FITTED:
        told, base = (rows_of(scores[name], parts.choosing) for name in (_FITTED, chain))
        chain = _FITTED if gain(told, base) > _CLEAR else chain
    rows = rows_of(scores[chain], parts.certifying)
    if parts.learned:
        chosen_on = rows_of(scores[chain], parts.choosing)
        path = choose.learned_path(chosen_on, parts.scale, promise.target)
    else:
        path = choose.rank_path(rows, *promise)
    return Pick(chain, choose.certify(rows, path, *promise), prospects)


def _by_unserved(scores: Scores, parts: Parts, promise: Promise) -> Pick:
    first, *_, cheapest = scores
    rows = {name: rows_of(scores[name], parts.certifying) for name in (first, cheapest)}
    deepest = int(_TESTED * len(parts.certifying))
    paths = {name: choose.rank_path(ones, *promise, deepest=deepest) for name, ones in rows.items()}
    unserved = [
        at
        for at in range(len(parts.certifying))
        if not any(_serves(paths[name], ones[at].score) for name, ones in rows.items())
    ]
    free = {name: rows_of(ones, unserved) for name, ones in rows.items()}
    chain = _ranks_better(free) or first
    note = (
        f"too few pairs to set some aside: the {len(unserved)} that no tested threshold serves "
        f"picked between {first} and {cheapest}."
    )
    found = choose.certify(rows[chain], paths[chain], *promise)
    return Pick(chain, found, note=note) if found else _nearest_of_two(scores, parts, note)


def _serves(path: Sequence[float], score: float | None) -> bool:
    return bool(path) and score is not None and score >= path[-1]


def _ranks_better(rows: Mapping[ChainName, Sequence[Row]]) -> ChainName | None:
    """The first of two chains where it ranks clearly better, else the other; None where there are
    too few pairs to tell. Pairs to which neither gives a score say nothing."""
    (first, ones), (other, others) = rows.items()
    told = [
        at for at in range(len(ones)) if ones[at].score is not None or others[at].score is not None
    ]
    same = sum(ones[at].same for at in told)
    if min(same, len(told) - same) < _FEWEST:
        return None
    mine, theirs = (roc_auc(rows_of(some, told)) or 0.0 for some in (ones, others))
    return first if mine > theirs + _BETTER else other


def _nearest_of_two(scores: Scores, parts: Parts, note: str) -> Pick:
    first, *_, cheapest = scores
    rows = {name: rows_of(scores[name], parts.certifying) for name in (first, cheapest)}
    return Pick(_ranks_better(rows) or cheapest, None, note=note)


def _alone(scores: Scores, parts: Parts, promise: Promise, note: str = "") -> Pick:
    chain = next(iter(scores))
    found = _by_ranks(rows_of(scores[chain], parts.certifying), promise)
    if found:
        return Pick(chain, found, note=note)
    if len(scores) == 1:
        return _nearest(scores, parts, promise, note)
    nearest = _nearest_of_two(scores, parts, note)
    if nearest.chain == chain:
        return nearest
    return replace(nearest, note=f"{note} It missed the target; {nearest.chain} comes nearest.")


def _each(scores: Scores, parts: Parts, promise: Promise, each: Promise) -> Pick:
    note = (
        "the pairs could not be parted to pick a chain by: every chain was tested, each at "
        f"{each.confidence:.2%} confidence."
    )
    found = {
        name: certified
        for name, rows in scores.items()
        if (certified := _by_ranks(rows_of(rows, parts.certifying), each)) is not None
    }
    if not found:
        return _nearest(scores, parts, promise, note)
    chain = max(
        reversed(found),
        key=lambda name: (found[name].hits - found[name].false_hits, name != _COSTLIEST),
    )
    return Pick(chain, found[chain], note=note)


def _nearest(scores: Scores, parts: Parts, promise: Promise, note: str) -> Pick:
    return Pick(_best(_prospects(scores, parts.certifying, promise)), None, note=note)


def _by_ranks(rows: Sequence[Row], promise: Promise) -> Certified | None:
    return choose.certify(rows, choose.rank_path(rows, *promise), *promise)


def _prospects(scores: Scores, which: Sequence[int], promise: Promise) -> dict[ChainName, float]:
    return {
        name: choose.promising(rows_of(rows, which), promise.target)
        for name, rows in scores.items()
    }


def _best(prospects: Mapping[ChainName, float]) -> ChainName:
    """The most promising chain; the cheapest where the difference may be chance.

    That is where it is within `_CLEAR` standard deviations of a difference of counts (Poisson).
    The costliest has to be that much better than what would be taken without it.
    """
    cheaper = list(prospects)[-1]
    best = max(prospects, key=lambda name: prospects[name])
    if best == _COSTLIEST and len(prospects) > 1:
        cheaper = _best({name: of for name, of in prospects.items() if name != best})
    base, most = prospects[cheaper], prospects[best]
    return best if most > base + _CLEAR * math.sqrt(most + base) else cheaper
