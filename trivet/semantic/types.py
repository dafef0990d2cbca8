"""What the parts of the semantic tier are to each other.

Texts are the last user message, as `asked` reads it. Vectors are float32, L2-normalised, of shape
(n, dimension). Nothing here imports numpy at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType, Protocol

from trivet.policies.intents import Intent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

Partition = NewType("Partition", bytes)
"""SHA-256 of everything but the compared text: tenant, user, system, history, tools, format,
sampling, versions, and the embedder's fingerprint. 32 bytes."""


class Embedder(Protocol):
    """Turns texts into vectors. Blocking: it runs in a thread."""

    name: str
    fingerprint: str
    """Hex, of weights, tokenizer, pooling, normalisation and revision, from the files."""
    dimension: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of shape (len(texts), dimension), each of length 1.

        Raises `EmbedderError`; never returns another shape or a value that is not finite.
        """
        ...


@dataclass(frozen=True, slots=True)
class TextPair:
    """A stored text and a new one, and the cosine of their vectors."""

    stored: str
    asked: str
    cosine: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure a scorer is that two texts want the same answer."""

    score: float
    """Higher is surer. Comparable only under one fingerprint."""
    veto: str | None = None
    """What speaks against it, whatever the score: `negation`, `number`, `entity`, ..."""


class Verifier(Protocol):
    """Scores pairs of texts. Blocking, about a tenth of a millisecond a pair (but for the
    cross-encoder)."""

    name: str
    fingerprint: str
    """Hex, of rules and weights."""

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """One verdict for each pair, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Intention:
    """What the gate makes of one text."""

    intent: Intent
    admitted: bool
    """Whether it is surely enough of its class: a policy may open the class, never this."""
    reason: str = ""
    """`intent-action`, `unsure`, `rule-negated-...`: a metric label."""
    score: float = 1.0
    """How sure the classifier is of `intent`, from 0 to 1."""


class IntentClassifier(Protocol):
    """Sorts texts into intents. Blocking, under a millisecond a text beyond the embedding."""

    fingerprint: str
    reads: str
    """Fingerprint of the embedder whose vectors it was trained on; it takes no other's."""

    def classify(self, texts: Sequence[str], vectors: Vectors | None) -> list[Intention]:
        """One intention for each text; `vectors` are those of the embedder it `reads`, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """One stored question: where its answer is, and who may get it. Times are Unix seconds."""

    id: str
    """Hex, 16 bytes at random: what feedback names."""
    tenant: str
    partition: Partition
    key: bytes
    """`ExactKey` of the answer in the exact store, which is the authority: no answer, no hit."""
    text: str
    vector: bytes
    """float32, little-endian."""
    intent: Intent
    created: float
    expires: float
    labels: frozenset[str] = frozenset()
    """What a purge can name, as in the exact tier."""
    author: str = ""
    """Opaque name of the principal that caused it: provenance."""
    confirmed: bool = True
    """False while it is in quarantine: found, but served to nobody."""
    seen: tuple[str, ...] = field(default=())
    """Opaque names of distinct users who asked the same while it was in quarantine."""
    answers: int = 1
    """Distinct model calls whose answers agreed."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored question near the new one."""

    record: Record
    cosine: float


class VectorIndex(Protocol):
    """The vectors of one partition. For one thread at a time."""

    def add(self, record: Record) -> None:
        """Add, or replace what has the same id."""
        ...

    def remove(self, record_id: str) -> bool:
        """Take out; False if it was not there."""
        ...

    def nearest(self, vector: Vectors, k: int, now: float) -> list[Neighbour]:
        """The k nearest that are live at `now`, nearest first. Expired ones never win."""
        ...

    def __len__(self) -> int: ...
