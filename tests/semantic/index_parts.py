"""Records with vectors for the index tests, and the search that all others are held against."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.policies.intents import Intent
from trivet.semantic.types import Partition, Record

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

NOW = 1_800_000_000.0
DIMENSION = 8


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def vectors(count: int, dimension: int = DIMENSION, seed: int = 0) -> Vectors:
    """Random vectors of length 1, of shape (count, dimension)."""
    made = np.random.default_rng(seed).standard_normal((count, dimension), np.float32)
    found: Vectors = made / np.linalg.norm(made, axis=1, keepdims=True)
    return found


def vector(seed: int, dimension: int = DIMENSION) -> Vectors:
    """One of them, of shape (dimension,)."""
    found: Vectors = vectors(1, dimension, seed)[0]
    return found


def partition(name: str = "p") -> Partition:
    """A partition of its own for each name."""
    return Partition(hashlib.sha256(name.encode()).digest())


def entry(name: str = "a", tenant: str = "t1", **given: Any) -> Record:
    """A record that is live for an hour; its vector follows from its name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    values: dict[str, Any] = {
        "id": hashlib.sha256(f"{tenant}/{name}".encode()).hexdigest()[:32],
        "tenant": tenant,
        "partition": partition(f"{tenant} p"),
        "key": b"k" * 32,
        "text": f"question {name}",
        "vector": vector(seed).tobytes(),
        "intent": Intent.INFORMATIONAL,
        "created": NOW - 10,
        "expires": NOW + 3600,
    }
    return Record(**{**values, **given})


def brute_force(records: Iterable[Record], asked: Vectors, k: int, now: float) -> list[str]:
    """Ids of the k nearest live records."""
    live = [record for record in records if record.expires > now]
    cosines = {one.id: float(np.frombuffer(one.vector, "<f4") @ asked) for one in live}
    return sorted(cosines, key=lambda name: -cosines[name])[:k]
