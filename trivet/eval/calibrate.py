"""Makes a calibration: the chain and its threshold (`pick`), and what they serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from trivet.eval import choose
from trivet.eval.bounds import upper_bound
from trivet.eval.choose import Certified, Shortfall
from trivet.eval.counted import counted
from trivet.eval.dropped import Dropped, dropped
from trivet.eval.fit import Missing
from trivet.eval.fit_chain import FittedChain, fitted_chain, too_few
from trivet.eval.pair_files import PairFile
from trivet.eval.pairs import LabelledPair
from trivet.eval.parts import Parts, Promise, parted
from trivet.eval.pick import Pick, pick
from trivet.eval.scoring import ScoredPair, refusal, rescored, score_pairs
from trivet.eval.split import components
from trivet.eval.sweep import Row, distinct_thresholds, sweep
from trivet.policies.calibration import Calibration, CurvePoint, Measured
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.economics import Economics, worth_it
from trivet.policies.intents import Intent
from trivet.progress import busy
from trivet.semantic.chain import Chain
from trivet.semantic.fitted import FittedVerifier
from trivet.semantic.language import language_of
from trivet.semantic.scripts import scripts_of

_AUTO: tuple[ChainName, ...] = ("verifier", "cross-encoder", "rules", "cosine")
"""First what is taken where there are too few pairs to pick by, the cheapest last."""
TOLD_PAIRS = 20
"""Pairs from which on a writing system or a language counts as measured."""
_CURVE = 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the engineer asks for. `target` and `confidence` are fractions."""

    target: float
    confidence: float
    embedder: str = "default"
    cross_encoder: str | None = None
    fit: Literal["no", "offer", "only"] = "no"
    """Whether a chain is fitted to the pairs: not, beside the others, or in place of them."""
    admit: tuple[Intent, ...] | None = None
    """Intents that the gate lets through; None: it filters nothing here."""
    holdout: float = 0.0
    """Share of the pairs that has no part in anything and is measured at the end."""
    hit_rate: float | None = None
    """Of all requests."""
    hit_rate_from_pairs: bool = False
    costs: Economics | None = None


def auto(wanted: Wanted) -> tuple[ChainName, ...]:
    """The chains that `auto` picks from: a cross-encoder only where one is named."""
    return tuple(name for name in _AUTO if name != "cross-encoder" or wanted.cross_encoder)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The artefact, and how it came about."""

    calibration: Calibration
    chosen_on: int
    """Pairs that chose the chain and the start; 0: none were spared."""
    prospects: Mapping[ChainName, float]
    """By chain, same pairs served near the target of those that chose; empty where none did."""
    shortfall: Shortfall | None
    """What is missing, where no threshold was certified."""
    held_out: Measured | None
    notes: tuple[str, ...]
    dropped: Dropped | None = None
    """What the gate drops of all pairs; None where it filters none."""


def calibrate(chains: Sequence[Chain], file: PairFile, wanted: Wanted, made: date) -> Calibrated:
    """Calibrate the best of the chains, which share an embedder and a gate.

    The first of them is the one that is taken unseen. Raises `EmbedderError`, and `ConfigError`
    where only a fitted chain will do and there are too few pairs for it.
    """
    promise = Promise(wanted.target, wanted.confidence)
    several = len(chains) > 1 or wanted.fit != "no"
    parts = parted(file.pairs, promise, wanted.holdout, several=several)
    base = Chain("cosine", chains[0].embedder, gate=chains[0].gate)
    first = score_pairs(base, file.pairs, wanted.admit)
    with busy("choosing the chain and the threshold"):
        tried = _tried(chains, (base, first), (parts, promise), wanted)
        picked = pick({name: _rows(ones) for name, (_, ones) in tried.items()}, parts, promise)
        chain, scored = tried[picked.chain]
        return _calibrated(chain, scored, parts, _About(file, wanted, made, picked))


def _tried(
    chains: Sequence[Chain],
    by: tuple[Chain, Sequence[ScoredPair]],
    how: tuple[Parts, Promise],
    wanted: Wanted,
) -> _Tried:
    """What each chain makes of the pairs; `by` is the one that they were scored with first."""
    (base, first), (parts, promise) = by, how
    tried: _Tried = {}
    if wanted.fit != "only":
        tried = {one.name: (one, rescored(one, first, wanted.admit)) for one in chains}
    if wanted.fit != "no":
        found = fitted_chain(base, first, parts.choosing, wanted.admit)
        if not isinstance(found, Missing):
            tried = _beside(tried, found)
        elif wanted.fit == "only":
            raise too_few(found, parts, promise)
    return tried


_Tried = dict[ChainName, tuple[Chain, list[ScoredPair]]]


def _beside(tried: _Tried, fitted: FittedChain) -> _Tried:
    """The fitted chain is neither the one that is taken unseen nor the cheapest."""
    ones = list(tried.items())
    return dict([*ones[:-1], ("fitted", (fitted.chain, fitted.scored)), *ones[-1:]])


@dataclass(frozen=True, slots=True)
class _About:
    file: PairFile
    wanted: Wanted
    made: date
    picked: Pick


def _rows(scored: Sequence[ScoredPair], which: Sequence[int] | None = None) -> list[Row]:
    some = scored if which is None else [scored[at] for at in which]
    return [Row(_served(one.score), one.pair.same, one.pair.slice) for one in some]


def _served(score: float | None) -> float | None:
    """The score as a threshold can be: what is 0 or less is served by none, and rounding may have
    put a cosine above 1."""
    return None if score is None or score <= 0 else min(score, 1.0)


def _calibrated(
    chain: Chain, scored: Sequence[ScoredPair], parts: Parts, about: _About
) -> Calibrated:
    wanted, found = about.wanted, about.picked.certified
    rows = _rows(scored, parts.certifying)
    missing = None if found else choose.shortfall(rows, wanted.target, wanted.confidence)
    threshold = None if found is None else found.threshold
    measured = _measured(rows, threshold, wanted.confidence)
    hit_rate = _hit_rate(measured, threshold, wanted)
    calibration = Calibration(
        made=about.made,
        fingerprint=chain.fingerprint,
        embedder=wanted.embedder,
        cross_encoder=wanted.cross_encoder if chain.name == "cross-encoder" else None,
        fitted=chain.verifier.layer if isinstance(chain.verifier, FittedVerifier) else None,
        dataset=about.file.digest,
        target=wanted.target,
        confidence=wanted.confidence,
        gated=wanted.admit,
        threshold=threshold,
        needed=None if missing is None else missing.hits,
        measured=measured,
        slices=_slices(scored, parts, threshold, wanted),
        intents=_intents(scored, parts, found, wanted),
        scripts=_told(about.file.pairs, scripts_of),
        languages=_told(about.file.pairs, _language),
        hit_rate=hit_rate,
        economics=wanted.costs,
        worth_it=_worth(hit_rate, measured, threshold, wanted.costs),
        curve=_curve(scored),
    )
    return Calibrated(
        calibration,
        len(parts.choosing),
        about.picked.prospects,
        missing,
        _held_out(scored, parts, threshold, wanted),
        tuple(filter(None, (*about.file.notes, about.picked.note, *_notes(about.file.pairs)))),
        None if wanted.admit is None else dropped(scored, wanted.admit),
    )


def _measured(rows: Sequence[Row], threshold: float | None, confidence: float) -> Measured:
    served = [
        row
        for row in rows
        if threshold is not None and row.score is not None and row.score >= threshold
    ]
    false_hits = sum(not row.same for row in served)
    return Measured(
        pairs=len(rows),
        same=sum(row.same for row in rows),
        hits=len(served),
        false_hits=false_hits,
        upper_bound=upper_bound(false_hits, len(served), confidence),
    )


def _slices(
    scored: Sequence[ScoredPair], parts: Parts, threshold: float | None, wanted: Wanted
) -> dict[str, Measured]:
    """Told at the threshold, not certified: a bound is for one slice that was named beforehand."""
    rows = _rows(scored, parts.certifying)
    names = sorted({row.slice for row in rows if row.slice})
    found = {
        name: _measured([row for row in rows if row.slice == name], threshold, wanted.confidence)
        for name in names
    }
    admit = wanted.admit
    if admit is not None:
        left = [at for at in parts.certifying if not refusal(scored[at], admit)]
        found["gate"] = _measured(_rows(scored, left), threshold, wanted.confidence)
    return found


def _intents(
    scored: Sequence[ScoredPair], parts: Parts, found: Certified | None, wanted: Wanted
) -> dict[Intent, float]:
    """Where several intents are open: those that keep the target on their own pairs alone.

    Each holds with the confidence by itself; that k of them hold together, with 1 - k times the
    rest of it (Bonferroni).
    """
    if found is None or wanted.admit is None or len(wanted.admit) < 2:
        return {}
    own: dict[Intent, float] = {}
    for intent in wanted.admit:
        rows = _rows(scored, [at for at in parts.certifying if scored[at].intent is intent])
        path = choose.rank_path(rows, wanted.target, wanted.confidence)
        alone = choose.certify(rows, path, wanted.target, wanted.confidence)
        if alone is not None:
            own[intent] = alone.threshold
    return own


def _told(pairs: Sequence[LabelledPair], read: Callable[[str], frozenset[str]]) -> tuple[str, ...]:
    """What at least `TOLD_PAIRS` of the pairs show of themselves, sorted."""
    counts = Counter(name for pair in pairs for name in read(f"{pair.a} {pair.b}"))
    return tuple(sorted(name for name, count in counts.items() if count >= TOLD_PAIRS))


def _language(text: str) -> frozenset[str]:
    found = language_of(text)
    return frozenset({found} if found else ())


def _hit_rate(measured: Measured, threshold: float | None, wanted: Wanted) -> float | None:
    if not wanted.hit_rate_from_pairs:
        return wanted.hit_rate
    return None if threshold is None else measured.hits / measured.pairs


def _worth(
    hit_rate: float | None, measured: Measured, threshold: float | None, costs: Economics | None
) -> bool | None:
    if hit_rate is None or costs is None or threshold is None:
        return None
    return worth_it(hit_rate, measured.upper_bound, costs)


def _curve(scored: Sequence[ScoredPair]) -> tuple[CurvePoint, ...]:
    rows = [
        Row(
            None if one.score is None else max(-1.0, min(one.score, 1.0)),
            one.pair.same,
            one.pair.slice,
        )
        for one in scored
    ]
    return tuple(
        CurvePoint(
            threshold=point.threshold,
            hits=point.hits + point.false_hits,
            false_hits=point.false_hits,
        )
        for point in sweep(rows, distinct_thresholds(rows, _CURVE))
    )


def _held_out(
    scored: Sequence[ScoredPair], parts: Parts, threshold: float | None, wanted: Wanted
) -> Measured | None:
    if not parts.held_out:
        return None
    return _measured(_rows(scored, parts.held_out), threshold, wanted.confidence)


def _notes(pairs: Sequence[LabelledPair]) -> tuple[str, ...]:
    groups = len(set(components(pairs)))
    if groups * 2 >= len(pairs):
        return ()
    return (
        f"the {len(pairs)} pairs are {counted(groups, 'group')} that share questions: bounds take "
        "every pair for independent of the others.",
    )
