"""Train the gate: `python -m training.gate [--shared ../shared]` writes weights/gate.npz.

Learns from our own templates and from the clinc150 and hwu64 rows of `intents/gating.jsonl` (CC
BY) whose intent is not held out; nothing else is read but to leave its sentences out. Bars and
temperatures come from cross-validation in which a template or an intent is never on both sides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from training.gate_split import fold, is_held, sentences, shared_rows
from training.gate_texts import Example, own_examples
from trivet.policies.intents import Intent
from trivet.semantic import gate, gate_features, gate_forms, gate_rules
from trivet.semantic.embedders import open_embedder
from trivet.semantic.gate_forms import Form
from trivet.semantic.gate_reading import word_code

Floats = NDArray[np.float32]
LICENSED = {"clinc150": "CC BY 3.0", "hwu64": "CC BY 4.0"}
INTENTS = {"info": "informational", "action": "action", "account": "personal", "time": "time"}
FOLDS, EXPERTS, HIDDEN = 5, 3, 64
INFO = gate.CLASSES.index(Intent.INFORMATIONAL)
MAY_PASS: dict[tuple[str, ...], float] = {
    ("action",): 0.0025,
    ("personal", "permission"): 0.003,
    ("time",): 0.015,
    ("creative", "context"): 0.02,
}
"""Shares of classes that may pass in cross-validation: the margin to the targets."""
BY_WORDS = 0.7
"""The part of these shares that the gate may spend without vectors, as it then knows less of words
that it never saw. Its bars are then no lower than those with vectors."""
SURE = 0.95
"""Share of a class's admitted texts that have to be of it."""
LEAST = dict.fromkeys(Form, 0.75) | {Form.WORLD: 0.95, Form.OTHER: 0.925}
"""No bar for informational texts is lower, however well cross-validation goes: our own texts are
few of the kinds of question about the world, and of what does not open as a question."""
LEAST_BY_WORDS = LEAST | {Form.OTHER: 0.95}
STEP = 0.0125
"""How finely the bars of forms are chosen."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the two experts see of some texts."""

    vectors: Floats
    grams: Any
    known: set[int]

    def take(self, rows: NDArray[np.int64]) -> Inputs:
        return Inputs(self.vectors[rows], self.grams[rows], set())


def examples(shared: Path) -> list[Example]:
    """What is learnt: our own texts, and licensed rows of intents that are not held out."""
    rows = [row for row in shared_rows(shared) if row["source"] in LICENSED and not is_held(row)]
    taken = [
        Example(row["text"], INTENTS[row["label"]], row["intent"], row["source"]) for row in rows
    ]
    return own_examples(avoid=sentences(shared)) + taken


def inputs(texts: list[str]) -> Inputs:
    """Features of texts, as `TrainedGate` sees them."""
    words = [gate_features.normalised(text) for text in texts]
    flags = np.array([gate_features.dense(line) for line in words])
    columns = [gate_features.columns(line) for line in words]
    values = [np.full(len(c), gate_features.GRAM_SCALE / max(1, len(c)) ** 0.5) for c in columns]
    starts = np.cumsum([0, *map(len, columns)])
    grams = sparse.csr_matrix(
        (np.concatenate(values), np.concatenate(columns), starts),
        shape=(len(texts), gate_features.BUCKETS),
    )
    embedder = open_embedder("default")
    found = np.concatenate([embedder.embed(texts[n : n + 64]) for n in range(0, len(texts), 64)])
    return Inputs(
        np.hstack((found * gate_features.VECTOR_SCALE, flags)).astype(np.float32),
        sparse.hstack((grams, sparse.csr_matrix(flags))).tocsr(),
        {word_code(word) for line in words for word in line},
    )


def fit(seen: Inputs, intents: NDArray[np.str_]) -> dict[str, NDArray[Any]]:
    """Train both experts; arrays by the names that `TrainedGate` reads, float16."""
    linear = LogisticRegression(C=1.0, max_iter=300).fit(seen.grams, intents)
    nets = [
        MLPClassifier(
            (HIDDEN,), alpha=0.3, max_iter=20, batch_size=64, learning_rate_init=2e-3,
            tol=0, n_iter_no_change=1000, random_state=number,
        ).fit(seen.vectors, intents)
        for number in range(EXPERTS)
    ]  # fmt: skip
    order = [list(linear.classes_).index(name) for name in gate.CLASSES]
    made = {
        "gram_weights": linear.coef_[order, : gate_features.BUCKETS].T,
        "flag_weights": linear.coef_[order, gate_features.BUCKETS :].T,
        "word_bias": linear.intercept_[order],
        "hidden_weights": np.stack([net.coefs_[0] for net in nets]),
        "hidden_bias": np.stack([net.intercepts_[0] for net in nets]),
        "out_weights": np.stack([net.coefs_[1][:, order] for net in nets]),
        "out_bias": np.stack([net.intercepts_[1][order] for net in nets]),
    }
    return {name: array.astype(np.float16) for name, array in made.items()}


def log_odds(arrays: dict[str, NDArray[Any]], seen: Inputs) -> dict[str, Floats]:
    """Log-probabilities before the temperature, by kind; shape (n, 7)."""
    full = {name: array.astype(np.float32) for name, array in arrays.items()}
    weights = np.vstack((full["gram_weights"], full["flag_weights"]))
    words = _log_softmax(seen.grams @ weights + full["word_bias"])
    total = np.zeros_like(words)
    for number in range(len(full["hidden_weights"])):
        hidden = seen.vectors @ full["hidden_weights"][number] + full["hidden_bias"][number]
        out = np.maximum(hidden, 0) @ full["out_weights"][number] + full["out_bias"][number]
        total += _log_softmax(out)
    vector = _log_softmax(total * np.float32(1 / len(full["hidden_weights"])))
    return {"words": words, "vectors": np.float32(0.5) * (words + vector)}


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def temperature(logs: Floats, truth: NDArray[np.int64]) -> float:
    """The one from a grid under which the truth is likeliest."""

    def loss(candidate: float) -> float:
        return -float(_log_softmax(logs / candidate)[np.arange(len(truth)), truth].mean())

    return min((round(0.3 + 0.05 * step, 2) for step in range(60)), key=loss)


def bars(odds: Floats, intents: NDArray[np.str_], ruled: NDArray[np.bool_]) -> dict[str, float]:
    """From which probability on a text is surely of its class; not of informational ones."""
    found = {}
    for number, intent in enumerate(gate.CLASSES):
        if number != INFO:
            mine = (odds.argmax(axis=1) == number) & ~ruled
            found[str(intent)] = _surely(odds[mine, number], intents[mine] == intent)
    return found


Choices = dict[tuple[int, ...], tuple[int, tuple[float, ...]]]
"""Texts of each class of `MAY_PASS` that pass -> informational ones that do, and the bars."""


def form_bars(
    info: Floats,
    intents: NDArray[np.str_],
    forms: NDArray[np.str_],
    least: Mapping[Form, float],
    part: float = 1.0,
) -> dict[str, float]:
    """From which probability on a text of a form is surely informational.

    Of all choices of bars under which all forms together keep to a part of `MAY_PASS`, the one
    that lets the most informational texts through, and none lower than `least`. `info` has
    that probability, and 0 where a text is refused whatever the bar.
    """
    classes = [np.isin(intents, names) for names in ((Intent.INFORMATIONAL,), *MAY_PASS)]
    most = [
        int(share * part * one.sum())
        for share, one in zip(MAY_PASS.values(), classes[1:], strict=True)
    ]
    best: Choices = {(0,) * len(most): (0, ())}
    for form in Form:
        mine = [info[one & (forms == form)] for one in classes]
        steps = range(round((1.0 - least[form]) / STEP) + 1)
        tried = [round(1.0 - STEP * step, 4) for step in steps]
        offers = [(bar, [int((scores >= bar).sum()) for scores in mine]) for bar in tried]
        best = _extended(best, offers, most)
    _, found = max(best.values())
    return dict(zip(map(str, Form), found, strict=True))


def _extended(best: Choices, offers: list[tuple[float, list[int]]], most: list[int]) -> Choices:
    """Choices with one more bar each: for every cost the one that gains most."""
    found: Choices = {}
    for spent, (gained, chosen_bars) in best.items():
        for bar, (more, *costs) in offers:
            total = tuple(map(sum, zip(spent, costs, strict=True)))
            if all(one <= limit for one, limit in zip(total, most, strict=True)):
                option = (gained + more, (*chosen_bars, bar))
                found[total] = max(found.get(total, option), option)
    return found


def _surely(scores: Floats, right: NDArray[np.bool_]) -> float:
    for step in range(50, 100):
        above = scores >= step / 100
        if above.any() and right[above].mean() >= SURE:
            return step / 100
    return 1.0


def cross_validate(
    rows: list[Example], seen: Inputs, intents: NDArray[np.str_], tell: Callable[[str], None]
) -> dict[str, Floats]:
    """Log-probabilities of each row by weights that saw neither its template nor its intent."""
    groups = np.array([fold(row.group, FOLDS) for row in rows])
    logs = {kind: np.zeros((len(rows), len(gate.CLASSES)), np.float32) for kind in _KINDS}
    for number in range(FOLDS):
        tell(f"fold {number + 1} of {FOLDS}")
        inside, outside = np.flatnonzero(groups != number), np.flatnonzero(groups == number)
        arrays = fit(seen.take(inside), intents[inside])
        for kind, found in log_odds(arrays, seen.take(outside)).items():
            logs[kind][outside] = found
    return logs


_KINDS = ("vectors", "words")
"""In the order in which their bars are chosen: those by words rest on those with vectors."""


def train(shared: Path, out: Path, tell: Callable[[str], None]) -> None:
    """Cross-validate, fit on everything, write the weights."""
    rows = examples(shared)
    texts, intents = [row.text for row in rows], np.array([row.intent for row in rows])
    seen = inputs(texts)
    logs = cross_validate(rows, seen, intents, tell)
    write(out, fit(seen, intents), seen.known, _metadata(rows, chosen(texts, intents, logs, tell)))


def chosen(
    texts: list[str],
    intents: NDArray[np.str_],
    logs: dict[str, Floats],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Temperatures, bars and bars by form, from the log-probabilities of cross-validation."""
    words = [gate_features.normalised(text) for text in texts]
    ruled = np.array([bool(gate_rules.find_rule(line)) for line in words])
    forms = np.array([str(gate_forms.form(line)) for line in words])
    truth = np.array([gate.CLASSES.index(Intent(name)) for name in intents])
    found: dict[str, Any] = {"temperatures": {}, "bars": {}, "forms": {}}
    least, part = LEAST, 1.0
    for kind in _KINDS:
        heat = temperature(logs[kind][~ruled], truth[~ruled])
        odds = np.exp(_log_softmax(logs[kind] / heat))
        best = odds.argmax(axis=1)
        info = np.where(ruled | (best != INFO), 0.0, odds[:, INFO])
        of_forms = form_bars(info, intents, forms, least, part)
        least = {form: max(LEAST_BY_WORDS[form], of_forms[form]) for form in Form}
        part = BY_WORDS
        bar = np.array([of_forms[form] for form in forms])
        passed = info >= bar
        shares = {n: round(float(passed[intents == n].mean()), 4) for n in gate.CLASSES}
        tell(f"{kind}: temperature {heat}, right {(best == truth)[~ruled].mean():.3f}, {of_forms}")
        tell(f"{kind}: passes as informational in cross-validation: {shares}")
        found["temperatures"][kind] = heat
        found["bars"][kind] = bars(odds, intents, ruled)
        found["forms"][kind] = of_forms
    return found


def _metadata(rows: list[Example], found: dict[str, Any]) -> dict[str, Any]:
    counts = {name: sum(row.source == name for row in rows) for name in ("own", *LICENSED)}
    return {
        "trained": datetime.now(UTC).date().isoformat(),
        "trained_on": counts,
        "licences": {"own": "Apache-2.0", **LICENSED},
        "notice": "Trained in part on CLINC150 and HWU64; see NOTICE.",
        "classes": list(gate.CLASSES),
        "features": gate_features.version(),
        "dimension": 384,
        "embedder": open_embedder("default").fingerprint,
        **found,
    }


def write(
    out: Path, arrays: dict[str, NDArray[Any]], known: set[int], metadata: dict[str, Any]
) -> None:
    """Write one .npz; the metadata is JSON in an array of bytes."""
    text = np.frombuffer(json.dumps(metadata, sort_keys=True).encode(), dtype=np.uint8)
    out.parent.mkdir(exist_ok=True)
    codes = np.array(sorted(known), dtype=np.uint32)
    np.savez_compressed(out, allow_pickle=False, metadata=text, known=codes, **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--out", type=Path, default=gate.WEIGHTS)
    wanted = parser.parse_args()
    train(wanted.shared, wanted.out, print)
