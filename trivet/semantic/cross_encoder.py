"""A cross-encoder of sentence-transformers as verifier: slower, by name or folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from trivet.canonical import digest, sha256
from trivet.errors import ConfigError, EmbedderError, Problem
from trivet.semantic.model_files import model_files
from trivet.semantic.sentence_embedder import model_folder
from trivet.semantic.types import TextPair, Verdict

_WEIGHTS = frozenset({".safetensors", ".bin"})


class CrossEncoderVerifier:
    """Scores both texts together, from 0 to 1: the sigmoid of the one label, or the last one's
    share (softmax) where there are several.

    On all of torch's threads (OMP_NUM_THREADS bounds them).
    """

    def __init__(self, name: str, batch: int = 32) -> None:
        """`name` is a folder, or a hub name (`ORG/MODEL` or `ORG/MODEL@REVISION`).

        Raises `ConfigError` if it cannot be loaded.
        """
        self.name = name
        self._batch = batch
        try:
            folder = model_folder(name)
            self._model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
            self.fingerprint = _identity(folder, self._model)
        except EmbedderError as error:
            raise _refused(str(error)) from None
        except Exception as error:  # The library raises whatever its parts raise on a bad folder.
            raise _refused(f"{name} cannot be loaded: {error}") from error

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """One score for each pair."""
        if not pairs:
            return []
        several = self._model.num_labels > 1
        scores = np.asarray(
            self._model.predict(
                [(pair.stored, pair.asked) for pair in pairs],
                batch_size=self._batch,
                show_progress_bar=False,
                activation_fn=torch.nn.Identity() if several else torch.nn.Sigmoid(),
                apply_softmax=several,
            ),
            dtype=np.float64,
        )
        if scores.ndim == 2:
            scores = scores[:, -1]
        return [Verdict(float(score)) for score in scores]


def _identity(folder: Path, model: CrossEncoder) -> str:
    """Of the settings and tokenizer in the folder, and of the parameters as they were loaded: a
    head that the folder lacks is drawn at random, so each process scores in another way."""
    parts = [b"trivet-cross-encoder/1"]
    for path in model_files(folder):
        if path.suffix not in _WEIGHTS:
            parts += path.relative_to(folder).as_posix().encode(), sha256(path.read_bytes())
    for name, tensor in sorted(model.state_dict().items()):
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        parts += name.encode(), str(tensor.dtype).encode(), sha256(raw.numpy().tobytes())
    return digest(*parts).hex()


def _refused(told: str) -> ConfigError:
    return ConfigError(Problem("", 0, 0, "cross_encoder", told))
