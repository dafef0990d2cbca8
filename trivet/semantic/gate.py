"""The gate: rules for what must never pass, and a small trained classifier for the rest.

Two experts see a text: one its vector (the default embedder's) and its flags, through one hidden
layer; the other its flags and hashed n-grams, linearly. Their log-probabilities are averaged (a
product of experts: Hinton, 2002) and scaled by a temperature (Guo et al., 2017, On calibration of
modern neural networks). Without vectors the second expert decides alone, by a bar of its own.
`training/gate.py` makes the weights and says what they were trained on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from trivet.canonical import digest
from trivet.errors import ConfigError, Problem
from trivet.policies.intents import Intent
from trivet.semantic import gate_clauses, gate_features, gate_forms, gate_reading, gate_rules
from trivet.semantic.types import Intention

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

WEIGHTS = Path(__file__).parent / "weights" / "gate.npz"
CLASSES = tuple(Intent)
"""The order of the classifier's outputs."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weights:
    """What `training/gate.py` writes: arrays by name, and where they come from."""

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Hex, of every array, and of what the metadata says about bars and temperatures."""
        parts = [
            part
            for name, array in sorted(self.arrays.items())
            for part in (name.encode(), str((array.dtype, array.shape)).encode(), array.tobytes())
        ]
        read = {name: self.metadata[name] for name in ("bars", "forms", "temperatures")}
        return digest(*parts, json.dumps(read, sort_keys=True).encode()).hex()


def load_weights(path: Path = WEIGHTS) -> Weights:
    """Read a weights file. Raises `ConfigError` where it cannot be used."""
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        metadata = json.loads(arrays.pop("metadata").tobytes())
        same = tuple(metadata["classes"]) == CLASSES
        same = same and metadata["features"] == gate_features.version()
        forms = set(gate_forms.Form)
        if not same or any(set(bars) != forms for bars in metadata["forms"].values()):
            raise ValueError("made for another version of the gate")
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ConfigError(Problem(str(path), 0, 0, "gate", f"unusable weights: {error}")) from None
    return Weights(arrays, metadata)


class TrainedGate:
    """Sorts texts into intents by rules and trained weights. Reads nothing but its arguments."""

    def __init__(self, weights: Weights) -> None:
        self.metadata = weights.metadata
        self.reads: str = weights.metadata["embedder"]
        self.fingerprint = digest(
            weights.fingerprint.encode(),
            gate_features.version().encode(),
            gate_reading.version().encode(),
            gate_clauses.version().encode(),
            gate_forms.version().encode(),
            gate_rules.version().encode(),
        ).hex()
        self._arrays = {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in weights.arrays.items()
        }
        self._known = frozenset(self._arrays["known"].tolist())

    def classify(self, texts: Sequence[str], vectors: Vectors | None) -> list[Intention]:
        """One intention for each text, in order. Raises nothing, whatever the texts are."""
        kind = "words" if vectors is None or not self._fits(texts, vectors) else "vectors"
        found: list[Intention] = []
        for at, text in enumerate(texts):
            vector = vectors[at] if kind == "vectors" and vectors is not None else None
            found.append(self._one(text, vector, kind))
        return found

    def probabilities(self, words: list[str], vector: Floats | None) -> Floats:
        """Of each of `CLASSES`, for one text's normalised words; shape (7,), sum 1."""
        flags = gate_features.dense(words)
        logs = self._by_words(words, flags)
        temperature = self.metadata["temperatures"]["words"]
        if vector is not None:
            logs = np.float32(0.5) * (logs + self._by_vector(vector, flags))
            temperature = self.metadata["temperatures"]["vectors"]
        return np.exp(_log_softmax(logs / np.float32(temperature)))

    def _fits(self, texts: Sequence[str], vectors: Vectors) -> bool:
        shape = (len(texts), self.metadata["dimension"])
        return vectors.shape == shape and bool(np.isfinite(vectors).all())

    def _one(self, text: str, vector: Floats | None, kind: str) -> Intention:
        words = gate_features.normalised(text[: 2 * gate_features.MAX_READ])
        trouble = gate_reading.unreadable(text, words, self._known)
        if trouble:
            return Intention(Intent.CONTEXT, False, f"unread-{trouble}", 0.0)
        rule = gate_clauses.gravest_rule(text, words)
        if rule is not None:
            return Intention(rule.intent, rule.name not in gate_rules.NEVER, f"rule-{rule.name}")
        odds = self.probabilities(words, vector)
        best = int(odds.argmax())
        intent, score = CLASSES[best], float(odds[best])
        if intent is Intent.INFORMATIONAL:
            admitted = score >= self._bar(text, kind)
            return Intention(intent, admitted, "" if admitted else "unsure", score)
        admitted = score >= self.metadata["bars"][kind][intent]
        return Intention(intent, admitted, f"{'intent' if admitted else 'unsure'}-{intent}", score)

    def _bar(self, text: str, kind: str) -> float:
        """How sure it has to be: of the forms of a text's sentences, the highest bar counts."""
        bars: dict[str, float] = self.metadata["forms"][kind]
        return max(bars[gate_forms.form(words)] for words in gate_clauses.asking(text))

    def _by_words(self, words: list[str], flags: Floats) -> Floats:
        arrays, columns = self._arrays, gate_features.columns(words)
        scale = np.float32(gate_features.GRAM_SCALE / max(1, len(columns)) ** 0.5)
        hashed = arrays["gram_weights"][columns].sum(axis=0) * scale
        return _log_softmax(hashed + flags @ arrays["flag_weights"] + arrays["word_bias"])

    def _by_vector(self, vector: Floats, flags: Floats) -> Floats:
        seen = np.concatenate((vector * np.float32(gate_features.VECTOR_SCALE), flags))
        total = np.zeros(len(CLASSES), dtype=np.float32)
        experts = int(self._arrays["hidden_weights"].shape[0])
        for number in range(experts):
            hidden = seen @ self._arrays["hidden_weights"][number]
            hidden = np.maximum(hidden + self._arrays["hidden_bias"][number], 0)
            out = hidden @ self._arrays["out_weights"][number] + self._arrays["out_bias"][number]
            total += _log_softmax(out)
        return _log_softmax(total * np.float32(1 / experts))


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores - scores.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()), dtype=np.float32)


@cache
def load_gate() -> TrainedGate:
    """The gate that ships. Raises `ConfigError` where its weights are missing or altered."""
    return TrainedGate(load_weights())
