"""A cross-encoder of sentence-transformers as verifier: slower, by name or folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import CrossEncoder

from trivet.errors import ConfigError, Problem
from trivet.semantic.types import TextPair, Verdict

_SUFFIXES = (".safetensors", ".bin", ".json", ".txt", ".model", ".onnx")


class CrossEncoderVerifier:
    """Scores both texts together. The score is what the model gives, mapped to 0..1 by its own
    activation; of several labels, the last one's share."""

    def __init__(self, name: str, batch: int = 32) -> None:
        """`name` is a hub name or a folder. Raises `ConfigError` if it cannot be loaded."""
        self.name = name
        self._batch = batch
        try:
            self._model = CrossEncoder(name, device="cpu")
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise ConfigError(
                Problem(name, 0, 0, "cross_encoder", f"cannot be loaded: {error}")
            ) from None
        self.fingerprint = self._identify()

    def _identify(self) -> str:
        """Of the model's files, or of its parameters where the name is no folder."""
        folder = Path(self.name)
        if folder.is_dir():
            return _of_files(folder)
        digest = hashlib.sha256(repr(self._model.config).encode())
        for key, tensor in sorted(self._model.model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        """One score for each pair."""
        if not pairs:
            return []
        texts = [(pair.stored, pair.asked) for pair in pairs]
        scores = np.asarray(
            self._model.predict(texts, batch_size=self._batch, show_progress_bar=False),
            dtype=np.float64,
        )
        if scores.ndim == 2:
            scores = scores[:, -1]
        return [Verdict(float(score)) for score in scores]


def _of_files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in _SUFFIXES:
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
