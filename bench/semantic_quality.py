"""How well the shipped chains tell same questions from others: `python -m bench.semantic_quality`.

Reads the labelled sets in ../shared/data, which are not part of the project; those that are not
there are left out. Prints the tables of docs/semantic-numbers.md. With `--vectors FOLDER`, vectors
are kept there, and a second run takes minutes instead of many.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from trivet.eval.calibrate import Wanted, auto, calibrate
from trivet.eval.chains import open_eval_chains
from trivet.eval.pair_files import PairFile, load_pairs
from trivet.eval.pairs import Contexts, LabelledPair
from trivet.eval.score import JudgedPair, judge_pairs, totals
from trivet.eval.scoring import rescored, score_pairs
from trivet.eval.split import set_aside
from trivet.eval.sweep import Row, ceiling, roc_auc
from trivet.policies.calibration import Calibration
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain
from trivet.semantic.verifiers import open_chain

if TYPE_CHECKING:
    from trivet.semantic.types import Embedder, Vectors

DATA = Path(__file__).parents[2] / "shared" / "data"
SETS = (
    "fow fow_conv qqp mqp stsqq sick semantoneg negation_misc mrpc bitext banking77 clinc150 hwu64"
)
TRAPS = ("negation", "entity_swap", "number_date", "scope")
TARGETS = (0.01, 0.02, 0.05)
AUTO = auto(Wanted(0.02, 0.5))
CHAINS = tuple(reversed(AUTO))
SALTS = tuple("abcde")
NOTHING = "nothing"


class KeptEmbedder:
    """An embedder whose vectors are kept in a folder between runs."""

    def __init__(self, embedder: Embedder, folder: Path | None) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self.fingerprint = embedder.fingerprint
        self._embedder, self._folder = embedder, folder
        self._known: dict[str, Vectors] = {}
        if folder is not None and (folder / "texts.json").exists():
            texts = json.loads((folder / "texts.json").read_text())
            self._known = dict(zip(texts, np.load(folder / "vectors.npy"), strict=True))

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])

    def keep(self) -> None:
        """Write what is known."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        np.save(self._folder / "vectors.npy", np.stack(list(self._known.values())))
        (self._folder / "texts.json").write_text(json.dumps(list(self._known)))


def loaded(name: str) -> tuple[LabelledPair, ...]:
    """The pairs of a set; empty where it is not there."""
    path = DATA / ("" if name == "seed24" else "pairs") / f"{name}.jsonl"
    return load_pairs(path).pairs if path.exists() else ()


def rows_by_chain(chains: Sequence[Chain], pairs: Sequence[LabelledPair]) -> dict[str, list[Row]]:
    """Rows by each chain; texts are embedded once."""
    first = score_pairs(Chain("cosine", chains[0].embedder), pairs)
    return {
        chain.name: [Row(one.score, one.pair.same) for one in rescored(chain, first)]
        for chain in chains
    }


def percent(value: float | None) -> str:
    """With one decimal; a dash for what is not there."""
    return "-" if value is None else f"{100 * value:.1f}"


def ceilings(rows: Sequence[Row]) -> str:
    """Coverage of same pairs at 1, 2 and 5 % false among hits, in hindsight."""
    found = [ceiling(rows, target) for target in TARGETS]
    return " / ".join(percent(0.0 if point is None else point.coverage) for point in found)


def sets_table(chains: Sequence[Chain]) -> Iterator[str]:
    """AUC and ceilings of every set."""
    heads = [f"{name}: AUC, h@1 / 2 / 5 %" for name in CHAINS]
    heads += ["auto, by the other half: same, false", "best alone, by the other half"]
    yield "| set | pairs | " + " | ".join(heads) + " |"
    yield "|---|---|" + "---|" * len(heads)
    for name in SETS.split():
        pairs = loaded(name)
        if not pairs:
            continue
        rows = rows_by_chain(chains, pairs)
        cells = []
        for chain in CHAINS:
            auc = roc_auc(rows[chain])
            served = sum((row.score or -1) >= 0.9 for row in rows[chain])
            told = f"{auc:.3f}, {ceilings(rows[chain])}" if auc is not None else f">= .9: {served}"
            cells.append(told)
        cells += beforehand(chains, pairs)
        yield f"| {name} | {len(pairs)} | " + " | ".join(cells) + " |"


def beforehand(chains: Sequence[Chain], pairs: Sequence[LabelledPair]) -> list[str]:
    """What is served by thresholds of the other half (2 %, confidence 0.5): by what `auto` picks,
    and by the chain that, calibrated alone, serves most."""
    ours = both_halves(chains, pairs)
    alone = [(chain.name, both_halves((chain,), pairs)) for chain in chains]
    name, best = max(alone, key=lambda one: totals(one[1][0], 0.5).served_same)
    picked = " and ".join(sorted(set(ours[1])))
    told = served(best[0])
    return [f"{picked}: {served(ours[0])}", told if told == NOTHING else f"{name}: {told}"]


def both_halves(
    chains: Sequence[Chain], pairs: Sequence[LabelledPair]
) -> tuple[list[JudgedPair], list[str]]:
    """Every pair, decided by a calibration on the half that it is not in; and the chains."""
    marks = set_aside(pairs, 0.5, SALTS[0])
    found: list[JudgedPair] = []
    picked: list[str] = []
    for side in (True, False):
        chosen = tuple(one for one, mark in zip(pairs, marks, strict=True) if mark is side)
        other = [one for one, mark in zip(pairs, marks, strict=True) if mark is not side]
        calibration = calibrated(chains, chosen, 0.02)
        found += judge_pairs(calibration, chain_of(calibration, chains), other, None)
        picked.append(calibration.fingerprint.chain)
    return found, picked


def served(found: Sequence[JudgedPair]) -> str:
    """Same pairs served, and the false ones among hits."""
    counted = totals(found, 0.5)
    if not counted.hits:
        return NOTHING
    return f"{percent(counted.coverage)} %, {counted.false_hits} of {counted.hits}"


def calibrated(
    chains: Sequence[Chain], pairs: tuple[LabelledPair, ...], target: float
) -> Calibration:
    """At a confidence of 0.5. Of several chains as `auto` does it, with one that is fitted."""
    wanted = Wanted(target, 0.5, fit="offer" if len(chains) > 1 else "no")
    return calibrate(chains, PairFile(pairs), wanted, datetime.now(UTC).date()).calibration


def chain_of(calibration: Calibration, chains: Sequence[Chain]) -> Chain:
    """The chain that was calibrated."""
    name, first = calibration.fingerprint.chain, chains[0]
    if name == "fitted":
        return open_chain(name, first.embedder, first.gate, fitted=calibration.fitted)
    (chain,) = (one for one in chains if one.name == name)
    return chain


def fow_table(chains: Sequence[Chain]) -> Iterator[str]:
    """A threshold chosen beforehand on one half of fow, measured on the other; ten halves."""
    pairs = loaded("fow")
    if not pairs:
        return
    found: list[list[JudgedPair]] = []
    for salt in SALTS:
        marks = set_aside(pairs, 0.5, salt)
        for side in (True, False):
            chosen = tuple(one for one, mark in zip(pairs, marks, strict=True) if mark is side)
            other = [one for one, mark in zip(pairs, marks, strict=True) if mark is not side]
            found.append(judged(chains, chosen, other))
    counted = [totals(one, 0.5) for one in found]
    together = totals([one for half in found for one in half], 0.5)
    yield "| fow, threshold of the other half (2 %, confidence 0.5) | same | false among hits |"
    yield "|---|---|---|"
    for at, one in enumerate(counted):
        half = f"half {at + 1}"
        yield f"| {half} | {percent(one.coverage)} % | {one.false_hits} of {one.hits} |"
    middle = median(one.coverage or 0 for one in counted)
    rate = percent(together.false_hit_rate)
    yield f"| median, and all together | {percent(middle)} % | {rate} % |"
    yield from traps_table(chains, [one for half in found for one in half])


def judged(
    chains: Sequence[Chain], chosen: tuple[LabelledPair, ...], other: Sequence[LabelledPair]
) -> list[JudgedPair]:
    """What a calibration on the chosen pairs does with the others."""
    calibration = calibrated(chains, chosen, 0.02)
    return judge_pairs(calibration, chain_of(calibration, chains), other, None)


def traps_table(chains: Sequence[Chain], judged: Sequence[JudgedPair]) -> Iterator[str]:
    """Shares of each kind of trap that are served, beside the cosine at 0.9."""
    rows = score_pairs(Chain("cosine", chains[0].embedder), loaded("fow"))
    yield ""
    yield "| traps of fow served | cosine at 0.9 | calibrated |"
    yield "|---|---|---|"
    for kind in TRAPS:
        bare = [one for one in rows if one.pair.slice == kind and not one.pair.same]
        ours = [one for one in judged if one.pair.slice == kind and not one.pair.same]
        share = sum((one.score or 0) >= 0.9 for one in bare) / len(bare)
        served = sum(one.served for one in ours) / len(ours)
        yield f"| {kind} | {percent(share)} % | {percent(served)} % |"


def stress_table(chains: Sequence[Chain]) -> Iterator[str]:
    """The design's 24 pairs, with the calibration of fow, the gate and the users given."""
    pairs = [
        replace(one, context=Contexts("user 1", "user 2")) if one.slice == "identity" else one
        for one in loaded("seed24")
    ]
    fow = loaded("fow")
    if not pairs or not fow:
        return
    calibration = calibrated(chains, fow, 0.02)
    chain = chain_of(calibration, chains)
    yield "| 24 stress pairs, calibrated on fow | same served of 12 | false | refused by the gate |"
    yield "|---|---|---|---|"
    gates: dict[str, tuple[Intent, ...] | None] = {
        "no gate": None,
        "gate: informational": (Intent.INFORMATIONAL,),
        "gate: informational, personal": (Intent.INFORMATIONAL, Intent.PERSONAL),
    }
    for title, admit in gates.items():
        found = judge_pairs(calibration, chain, pairs, admit)
        counted = totals(found, 0.5)
        refused = sum(one.score is None and one.reason != "context" for one in found)
        yield f"| {title} | {counted.served_same} | {counted.false_hits} | {refused} |"


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, metavar="FOLDER")
    parser.add_argument("--only", choices=["sets", "fow", "stress"])
    flags = parser.parse_args()
    opened = open_eval_chains("default", AUTO, gate=True)
    embedder = KeptEmbedder(opened[0].embedder, flags.vectors)
    chains = [replace(chain, embedder=embedder) for chain in opened]
    tables = {
        "fow": fow_table,
        "stress": stress_table,
        "sets": sets_table,
    }
    for name, table in tables.items():
        if flags.only in (None, name):
            for line in table(chains):
                print(line, flush=True)
            print(flush=True)
            embedder.keep()


if __name__ == "__main__":
    main()
