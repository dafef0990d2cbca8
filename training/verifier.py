"""Trains `trivet/semantic/weights/verifier.npz` on our own pairs, and measures it.

    python -m training.verifier            train, write the weights, print the report
    python -m training.verifier --report   print the report of the weights that are there
    ... --sentences                        and the stress pairs' sentences: not for this repository

No row of a shared data set is trained on: all of them are held out, so that each may calibrate.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.exported import exported
from training.vectors import Vectors
from training.verifier_blocks import Row, blocks
from training.verifier_pairs import pairs
from trivet.semantic.features import analyse, features
from trivet.semantic.trees import Trees
from trivet.semantic.types import TextPair, Verdict
from trivet.semantic.verify import WEIGHTS, RuleVerifier, TrainedVerifier, blend

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
SETS = ("fow", "qqp", "mqp", "sick", "semantoneg", "mrpc", "stsqq", "bitext", "negation_misc",
        "banking77", "clinc150", "hwu64")  # fmt: skip
FOLDS = 5
BAGS = 6
BAGS_OF_FOLD = 2
"""Enough to scale by."""
SETTINGS = {"max_iter": 220, "learning_rate": 0.07, "max_leaf_nodes": 10, "max_depth": 6,
            "l2_regularization": 2.0, "min_samples_leaf": 30}  # fmt: skip


def training_rows(vectors: Vectors) -> list[Row]:
    """Our own pairs, and for each question the two nearest of other blocks."""
    rows = pairs()
    texts, groups = [], []
    for at, (same, traps) in enumerate(blocks()):
        for text in (*same, *(line for _, lines in traps for line in lines)):
            texts.append(text)
            groups.append(at)
    vectors.need([t for row in rows for t in (row.a, row.b)] + texts, "verifier-own")
    matrix, of = vectors.rows(texts), np.array(groups)
    rng = random.Random("trivet-2")
    for at, text in enumerate(texts):
        near = matrix @ matrix[at]
        near[of == of[at]] = -1.0
        group = f"block-{groups[at]}"
        rows += [Row(text, texts[j], False, "other", group) for j in np.argsort(-near)[:2]]
        other = rng.randrange(len(texts))
        if groups[other] != groups[at] and rng.random() < 0.5:
            rows.append(Row(text, texts[other], False, "random", group))
    return rows


def fit(
    table: NDArray[np.float32], same: NDArray[np.bool_], groups: Sequence[str], bags: int = BAGS
) -> Trees:
    """Trees of several trainings, each on groups drawn with replacement; their log odds' mean."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    monotone = [1] + [0] * (table.shape[1] - 1)
    names, of = np.unique(np.array(groups), return_inverse=True)
    models = []
    for bag in range(bags):
        drawn = np.random.default_rng(bag).integers(0, len(names), len(names))
        times = np.bincount(drawn, minlength=len(names))[of]
        used = times > 0
        model = HistGradientBoostingClassifier(monotonic_cst=monotone, random_state=bag, **SETTINGS)
        models.append(model.fit(table[used], same[used], sample_weight=times[used]))
    return exported(models)


def fold_of(group: str) -> int:
    return int(hashlib.sha256(f"trivet-1{group}".encode()).hexdigest(), 16) % FOLDS


def train() -> None:
    """Fit on everything; scale by what folds that did not see a row make of it."""
    from sklearn.linear_model import LogisticRegression

    vectors = Vectors()
    rows = training_rows(vectors)
    read = [analyse(TextPair(r.a, r.b, vectors.cosine(r.a, r.b))) for r in rows]
    table = np.stack([features(pair) for pair in read])
    same = np.array([row.same for row in rows])
    folds = np.array([fold_of(row.group) for row in rows])
    margins = np.zeros(len(rows))
    groups = [row.group for row in rows]
    for fold in range(FOLDS):
        seen = folds != fold
        chosen = [group for group, taken in zip(groups, seen, strict=True) if taken]
        trees = fit(table[seen], same[seen], chosen, BAGS_OF_FOLD)
        margins[~seen] = trees.margin(table[~seen])
    blended = np.array([blend(p, m) for p, m in zip(read, margins, strict=True)])
    scaling = LogisticRegression().fit(blended[:, None], same)
    print(f"own pairs: {len(rows)}, {int(same.sum())} same; AUC of unseen folds"
          f" {area(same, blended):.3f}")  # fmt: skip
    trees = fit(table, same, groups)
    WEIGHTS.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        WEIGHTS,
        **trees.arrays(),
        scaling=np.array([scaling.coef_[0, 0], scaling.intercept_[0]]),
    )


def area(same: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(same, scores))


def load(name: str) -> list[dict[str, Any]]:
    """Rows of a set; those marked ambiguous count as different."""
    path = SHARED / (f"{name}.jsonl" if name == "seed24" else f"pairs/{name}.jsonl")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["same"] = row["same"] and not row.get("ambiguous")
    return rows


def coverage(same: NDArray[np.bool_], scores: NDArray[np.float64]) -> list[float]:
    """Percent of same pairs served with at most 1, 2 and 5 % false among hits, at best."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(same[order])
    false = np.arange(1, len(order) + 1) - hits
    whole = np.append(np.diff(scores[order]) != 0, True) & (scores[order] > -1)
    found = []
    for limit in (0.01, 0.02, 0.05):
        fits = whole & (false <= limit * (hits + false))
        found.append(100 * float(hits[fits].max(initial=0)) / max(1, int(same.sum())))
    return found


def plain(verdicts: Iterable[Verdict]) -> NDArray[np.float64]:
    """Scores; -1 for what is vetoed."""
    return np.array([-1.0 if v.veto else v.score for v in verdicts])


def scored(rows: Sequence[dict[str, Any]], vectors: Vectors) -> dict[str, NDArray[np.float64]]:
    of = [TextPair(r["a"], r["b"], vectors.cosine(r["a"], r["b"])) for r in rows]
    return {
        "cosine": np.array([pair.cosine for pair in of]),
        "rules": plain(RuleVerifier().verify(of)),
        "verifier": plain(TrainedVerifier().verify(of)),
    }


def report(sentences: bool = False) -> None:
    """AUC and coverage of each set, then the traps of fow and the stress pairs."""
    sets = {name: load(name) for name in (*SETS, "seed24")}
    vectors = Vectors()
    vectors.need([t for rows in sets.values() for r in rows for t in (r["a"], r["b"])], "pairs")
    print("| set | pairs | chain | AUC | h@1 | h@2 | h@5 % |\n|---|---|---|---|---|---|---|")
    kept = {}
    for name, rows in sets.items():
        same = np.array([row["same"] for row in rows])
        kept[name] = scored(rows, vectors)
        for chain, scores in kept[name].items():
            if same.any() and not same.all():
                three = " | ".join(f"{x:.1f}" for x in coverage(same, scores))
                print(f"| {name} | {len(rows)} | {chain} | {area(same, scores):.3f} | {three} |")
    traps(sets["fow"], kept["fow"])
    share = {chain: (s >= cut).mean() for chain, s in kept["negation_misc"].items()
             for cut in [0.9 if chain != "verifier" else 0.8]}  # fmt: skip
    print("\nnegation_misc (all different), share at or above 0.9 (verifier 0.8):", {
        chain: round(float(x), 3) for chain, x in share.items()})  # fmt: skip
    print("\n| stress pair | kind | score |\n|---|---|---|")
    for at, (row, score) in enumerate(zip(sets["seed24"], kept["seed24"]["verifier"], strict=True)):
        said = f" {row['a']} / {row['b']} |" if sentences else ""
        shown = "vetoed" if score < 0 else f"{score:.3f}"
        print(
            f"| {row.get('id', at)} | {'same' if row['same'] else row['slice']} | {shown} |{said}"
        )


def threshold_at(same: NDArray[np.bool_], scores: NDArray[np.float64], target: float) -> float:
    """The lowest score above which a one-sided exact bound at 50 % confidence keeps the target."""
    from scipy.stats import beta

    best = 2.0
    for cut in np.unique(scores)[::-1]:
        hits = scores >= cut
        n, k = int(hits.sum()), int((hits & ~same).sum())
        if k < n and beta.ppf(0.5, k + 1, n - k) <= target:
            best = float(cut)
    return best


def traps(rows: Sequence[dict[str, Any]], scores: dict[str, NDArray[np.float64]]) -> None:
    """What is served at a threshold that the other half of the groups chose, in 20 halvings."""
    same = np.array([row["same"] for row in rows])
    slices = np.array([row["slice"] for row in rows])
    print("\n| fow, threshold of the other half (2 %, confidence 0.5) | same served |"
          " false among hits | " + " | ".join(sorted(set(slices[~same]))) + " |")  # fmt: skip
    print("|---|---|---|" + "---|" * len(set(slices[~same])))
    for chain, values in scores.items():
        total: dict[str, list[int]] = {}
        for seed in range(20):
            half = np.array([_half(str(row["group"]), seed) for row in rows])
            served = (values >= threshold_at(same[~half], values[~half], 0.02)) & half
            for name, of in (("same", same), ("false", ~same), *(
                    (s, ~same & (slices == s)) for s in sorted(set(slices[~same])))):  # fmt: skip
                found = total.setdefault(name, [0, 0])
                found[0] += int((served & of).sum())
                found[1] += int((half & of).sum())
        hits = total["same"][0] + total["false"][0]
        shares = " | ".join(f"{100 * a / b:.1f} %" for n, (a, b) in total.items()
                            if n not in ("same", "false"))  # fmt: skip
        print(f"| {chain} | {100 * total['same'][0] / total['same'][1]:.1f} % |"
              f" {100 * total['false'][0] / max(1, hits):.1f} % | {shares} |")  # fmt: skip


def _half(group: str, seed: int) -> bool:
    return hashlib.sha256(f"{seed}{group}".encode()).digest()[0] < 128


if __name__ == "__main__":
    if "--report" not in sys.argv[1:]:
        train()
    report("--sentences" in sys.argv[1:])
