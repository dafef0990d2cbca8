"""Embedders that do as they are told."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors


def vector_of(text: str, dimension: int = 4) -> Vectors:
    """A vector of length 1 that only this text has."""
    seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:4], "big")
    values = np.random.default_rng(seed).normal(size=dimension)
    vector: Vectors = (values / np.linalg.norm(values)).astype(np.float32)
    return vector


class ToldEmbedder:
    """Embeds by `vector_of`, notes each batch, and lets `before` have its way with it first."""

    name = "told"
    dimension = 4

    def __init__(self, before: Callable[[list[str]], object] = lambda texts: None) -> None:
        self.fingerprint = "opened"
        self.now = "opened"
        self.before = before
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.closed = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        made = self.before(list(texts))
        if made is not None:
            return made  # type: ignore[return-value]
        return np.stack([vector_of(text) for text in texts])

    def fingerprint_now(self) -> str:
        return self.now

    def close(self) -> None:
        self.closed = True
