"""What every embedder does to texts before its model, and to vectors after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.errors import EmbedderError

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

CHARS_PER_TOKEN = 32
"""Far above what a token of running text has: what is cut here, the model's own limit cuts too."""

_SHORTEST = 1e-150
"""Below it the squares of components lose their digits, and with them the direction."""
_LENGTH_ERROR = 1e-3


def clipped(text: str, max_tokens: int) -> str:
    """The part of a text that can reach a model of `max_tokens`, without lone surrogates.

    So a text of 100 kB costs no more than one of `max_tokens`. Two texts that differ only beyond
    the model's limit have one vector: who compares long texts has to look at the texts too.
    """
    return text[: CHARS_PER_TOKEN * max_tokens].encode("utf-8", "replace").decode()


def normalised(values: Any, count: int, dimension: int) -> Vectors:
    """`values` as vectors of shape (count, dimension), each of length 1.

    Raises `EmbedderError`: `shape` for another shape, `not-finite` for NaN, infinity, and for
    vectors without a direction.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise EmbedderError("shape", "The embedder gave something that is not a matrix.") from None
    if array.shape != (count, dimension):
        told = "The embedder gave vectors of shape {} in place of {}."
        raise EmbedderError("shape", told.format(array.shape, (count, dimension)))
    with np.errstate(over="ignore"):  # Its result, infinity, is looked for below.
        lengths = np.sqrt((array * array).sum(axis=1, keepdims=True))
    if not (np.isfinite(lengths).all() and (lengths > _SHORTEST).all()):
        raise EmbedderError("not-finite", "The embedder gave a vector that has no direction.")
    vectors: Vectors = (array / lengths).astype(np.float32)
    return vectors


def checked(values: object, count: int, dimension: int) -> Vectors:
    """What an embedder returned, if it keeps the contract: length 1, or the zero vector.

    Raises `EmbedderError` if not: `shape`, `not-finite`, `length`.
    """
    if not isinstance(values, np.ndarray) or values.shape != (count, dimension):
        shape = getattr(values, "shape", type(values).__name__)
        told = f"The embedder gave {shape} in place of {(count, dimension)}."
        raise EmbedderError("shape", told)
    if not np.isfinite(values).all():
        raise EmbedderError("not-finite", "The embedder gave a value that is not finite.")
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64))
    if not ((lengths == 0) | (np.abs(lengths - 1) < _LENGTH_ERROR)).all():
        told = "The embedder gave a vector whose length is not 1: cosines would be wrong."
        raise EmbedderError("length", told)
    vectors: Vectors = values.astype(np.float32, copy=False)
    return vectors
