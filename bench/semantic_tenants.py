"""What choosing a chain for each tenant gives: `python -m bench.semantic_tenants`.

The tables of nearest-neighbour replay in docs/semantic-numbers.md, and those of fitted chains in
docs/calibration.md. Chains are chosen on one part and measured on another, with the best threshold
in hindsight, which is the same for every row, and as the calibration chose it. Reads what
`bench.semantic_quality` reads.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench.semantic_quality import (
    AUTO,
    CHAINS,
    TARGETS,
    KeptEmbedder,
    calibrated,
    chain_of,
    loaded,
    percent,
)
from trivet.eval.calibrate import Wanted, calibrate
from trivet.eval.chains import open_eval_chains
from trivet.eval.fit import Missing
from trivet.eval.fit_chain import fitted_chain
from trivet.eval.pair_files import PairFile
from trivet.eval.pairs import LabelledPair
from trivet.eval.score import judge_pairs, totals
from trivet.eval.scoring import ScoredPair, rescored, score_pairs
from trivet.eval.split import set_aside
from trivet.eval.sweep import Row, ceiling
from trivet.semantic.chain import Chain

if TYPE_CHECKING:
    from trivet.semantic.types import Embedder

REPLAYED = ("clinc150", "banking77", "hwu64")
PAIRED = ("mqp", "qqp", "sick", "mrpc", "semantoneg", "fow")
SALTS = tuple("abcde")
HALVED = ("sick", "mqp", "semantoneg")
ASKED = ((0.02, 0.5), (0.05, 0.5), (0.05, 0.95))
"""Targets and confidences."""
FITTED = 0.2
"""Share of a set that a chain is fitted to, as of the pairs that `calibrate` is given; more of fow,
of which it would be too few."""
FITTED_OF_FOW = 0.5


Halves = Iterable[tuple[tuple[LabelledPair, ...], tuple[LabelledPair, ...]]]
"""Pairs to choose by, and pairs to measure."""


@dataclass
class Told:
    """What was measured of one way to choose, over all ways to part the data."""

    shares: list[float] = field(default_factory=list)
    hits: int = 0
    false_hits: int = 0

    def add(self, right: int, false_hits: int, of: int) -> None:
        """Of one part: hits that are right, those that are not, and what the share is of."""
        self.shares.append(right / of)
        self.hits += right + false_hits
        self.false_hits += false_hits

    @property
    def mean(self) -> str:
        """The mean share, in percent."""
        return percent(sum(self.shares) / len(self.shares))

    @property
    def rate(self) -> str:
        """False hits among hits of all parts together, in percent."""
        return percent(self.false_hits / self.hits if self.hits else None)


def neighbours(embedder: Embedder, name: str, salt: str) -> list[LabelledPair]:
    """Half of the set's questions stored, the other half asked: each with its nearest stored one.

    The intent of a question is the group of a pair of two alike.
    """
    intents: dict[str, str] = {}
    for pair in loaded(name):
        if pair.same:
            intents[pair.a] = intents[pair.b] = pair.group
    texts = sorted(intents)
    marks = set_aside([LabelledPair(text, text, True) for text in texts], 0.5, f"stored {salt}")
    stored = [text for text, mark in zip(texts, marks, strict=True) if mark]
    asked = [text for text, mark in zip(texts, marks, strict=True) if not mark]
    nearest = (embedder.embed(asked) @ embedder.embed(stored).T).argmax(axis=1)
    return [
        LabelledPair(stored[near], text, intents[stored[near]] == intents[text])
        for near, text in zip(nearest, asked, strict=True)
    ]


def parted(
    pairs: Sequence[LabelledPair], share: float, salt: str
) -> tuple[tuple[LabelledPair, ...], tuple[LabelledPair, ...]]:
    """The pairs to choose by, `share` of them, and the others."""
    marks = set_aside(pairs, share, salt)
    chosen = tuple(one for one, mark in zip(pairs, marks, strict=True) if mark)
    return chosen, tuple(one for one, mark in zip(pairs, marks, strict=True) if not mark)


def replay_table(chains: Sequence[Chain]) -> Iterator[str]:
    """Half of the queries choose, by `auto` and with the cosine alone; the others are measured."""
    yield (
        "| replay, ten halves | target | picked | in hindsight: cosine | picked | "
        "as chosen: cosine (false) | picked (false) |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in REPLAYED:
        if not loaded(name):
            continue
        halves = [
            half
            for salt in SALTS
            for half in _both_ways(neighbours(chains[0].embedder, name, salt), "replay")
        ]
        for target in TARGETS:
            yield _replay_row(chains, halves, name, target)


def _both_ways(
    pairs: Sequence[LabelledPair], salt: str
) -> Iterator[tuple[tuple[LabelledPair, ...], tuple[LabelledPair, ...]]]:
    one, other = parted(pairs, 0.5, salt)
    yield one, other
    yield other, one


def _replay_row(chains: Sequence[Chain], halves: Halves, name: str, target: float) -> str:
    cosine = [chain for chain in chains if chain.name == "cosine"]
    hindsight, chosen = (Told(), Told()), (Told(), Told())
    picked: Counter[str] = Counter()
    for ours, others in halves:
        for at, some in enumerate((cosine, chains)):
            calibration = calibrated(some, ours, target)
            chain = chain_of(calibration, some)
            best = ceiling(_rows(score_pairs(chain, others)), target)
            hindsight[at].add(*((best.hits, best.false_hits) if best else (0, 0)), len(others))
            served = totals(judge_pairs(calibration, chain, others, None), 0.5)
            chosen[at].add(served.served_same, served.false_hits, len(others))
        picked[chain.name] += 1
    told = ", ".join(f"{chain} {count}" for chain, count in picked.most_common())
    return (
        f"| {name} | {target:.0%} | {told} | {hindsight[0].mean} | {hindsight[1].mean} | "
        f"{chosen[0].mean} ({chosen[0].rate}) | {chosen[1].mean} ({chosen[1].rate}) |"
    )


def fitted_table(chains: Sequence[Chain]) -> Iterator[str]:
    """Same pairs served with the best threshold in hindsight, by chains that are fitted to a part
    of the set and by those that are not, on the rest."""
    names = [*CHAINS, "fitted"]
    yield "| set, five ways to part it | pairs fitted to | " + " | ".join(names) + " |"
    yield "|---|---|" + "---|" * len(names)
    for name in PAIRED:
        pairs = loaded(name)
        if not pairs:
            continue
        found: dict[tuple[str, float], Told] = {}
        share = FITTED_OF_FOW if name == "fow" else FITTED
        base = Chain("cosine", chains[0].embedder)
        first = score_pairs(base, pairs)
        plain = {chain.name: rescored(chain, first) for chain in chains}
        for salt in SALTS:
            marks = set_aside(pairs, share, salt)
            fitted = fitted_chain(base, first, [at for at, mark in enumerate(marks) if mark], None)
            if isinstance(fitted, Missing):
                continue
            for chain, scored in {**plain, "fitted": fitted.scored}.items():
                rest = [one for one, mark in zip(scored, marks, strict=True) if not mark]
                _count(found, chain, _rows(rest))
        cells = (" / ".join(found[chain, target].mean for target in TARGETS) for chain in names)
        yield f"| {name} | {int(share * len(pairs))} of {len(pairs)} | " + " | ".join(cells) + " |"


def _count(found: dict[tuple[str, float], Told], chain: str, rows: Sequence[Row]) -> None:
    same = sum(row.same for row in rows)
    for target in TARGETS:
        best = ceiling(rows, target)
        told = found.setdefault((chain, target), Told())
        told.add(*((best.hits, best.false_hits) if best else (0, 0)), same)


def chosen_table(chains: Sequence[Chain]) -> Iterator[str]:
    """Halves, each served by a calibration on the other: without a fitted chain, with it among the
    others, and with it alone."""
    yield (
        "| set, six halves | target, confidence | auto without fitted (false) | auto (false) | "
        "fitted alone (false) | auto picked |"
    )
    yield "|---|---|---|---|---|---|"
    for name in HALVED:
        pairs = loaded(name)
        halves = [half for salt in SALTS[:3] for half in _both_ways(pairs, salt)] if pairs else []
        for target, confidence in ASKED if pairs else ():
            yield _chosen_row(chains, halves, name, Wanted(target, confidence))


def _chosen_row(chains: Sequence[Chain], halves: Halves, name: str, wanted: Wanted) -> str:
    ways: tuple[Literal["no", "offer", "only"], ...] = ("no", "offer", "only")
    told = {way: Told() for way in ways}
    picked: Counter[str] = Counter()
    for ours, others in halves:
        for way in ways:
            how = replace(wanted, fit=way)
            found = calibrate(chains, PairFile(ours), how, datetime.now(UTC).date()).calibration
            served = totals(judge_pairs(found, chain_of(found, chains), others, None), 0.5)
            same = sum(one.same for one in others)
            told[way].add(served.served_same, served.false_hits, same)
            picked[found.fingerprint.chain] += way == "offer"
    cells = " | ".join(f"{one.mean} ({one.rate})" for one in told.values())
    names = ", ".join(f"{chain} {count}" for chain, count in picked.most_common() if count)
    asked = f"{wanted.target:.0%}, {wanted.confidence:.0%}"
    return f"| {name} | {asked} | {cells} | {names} |"


def _rows(scored: Sequence[ScoredPair]) -> list[Row]:
    return [Row(one.score, one.pair.same) for one in scored]


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, metavar="FOLDER")
    parser.add_argument("--only", choices=["replay", "fitted", "chosen"])
    flags = parser.parse_args()
    opened = open_eval_chains("default", AUTO, gate=True)
    embedder = KeptEmbedder(opened[0].embedder, flags.vectors)
    chains = [replace(chain, embedder=embedder) for chain in opened]
    tables = {"replay": replay_table, "fitted": fitted_table, "chosen": chosen_table}
    for name, table in tables.items():
        if flags.only in (None, name):
            for line in table(chains):
                print(line, flush=True)
            print(flush=True)
            embedder.keep()


if __name__ == "__main__":
    main()
