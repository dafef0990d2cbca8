"""A model of the BERT family with mean pooling, on onnxruntime: the default embedder.

Imports onnxruntime and tokenizers; torch runs once, in another process, to export the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from trivet.errors import EmbedderError
from trivet.semantic.model_files import Digests
from trivet.semantic.onnx_cache import Export, export_in_process, exported
from trivet.semantic.vectors import clipped, normalised

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_BATCH_TOKENS = 2048
"""Tokens, padding included, that go through the model at once: bounds its memory."""


class OnnxEmbedder:
    """An `Embedder` on one core. For one thread at a time.

    The vectors are those of sentence-transformers. A text's vector may differ in the last bits
    (1e-6) with what else is in its batch.
    """

    def __init__(
        self, folder: Path, cache: Path, name: str = "", export: Export = export_in_process
    ) -> None:
        """Raises `EmbedderError`: `missing`, `unsupported`, `export`, `install`."""
        self.name = name or folder.name
        self._folder, self._digests = folder, Digests(cache)
        self.fingerprint = self._digests.fingerprint(folder)
        self.max_tokens = _max_tokens(folder)
        self._tokenizer = _tokenizer(folder, self.max_tokens)
        self._session = _session(exported(folder, self.fingerprint, cache, export))
        self.dimension = int(self._run([self._tokens("dimension")]).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        tokens = [self._tokens(text) for text in texts]
        made = np.empty((len(texts), self.dimension), dtype=np.float32)
        for rows in _batches([len(ids) for ids in tokens]):
            made[rows] = self._run([tokens[row] for row in rows])
        return normalised(made, len(texts), self.dimension)

    def fingerprint_now(self) -> str:
        """The fingerprint of the files as they are now. Raises `EmbedderError("missing")`."""
        return self._digests.fingerprint(self._folder)

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(clipped(text, self.max_tokens)).ids
        return ids

    def _run(self, tokens: list[list[int]]) -> Vectors:
        ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, found in enumerate(tokens):
            ids[row, : len(found)] = found
            mask[row, : len(found)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            vectors: Vectors = self._session.run(None, feed)[0]
        except Exception as error:  # onnxruntime raises its own classes, without a common base.
            raise EmbedderError("crash", f"onnxruntime failed: {error}") from error
        return vectors


def _batches(lengths: list[int]) -> list[list[int]]:
    """Rows to run together: of like length, so that little is padding."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= _BATCH_TOKENS:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _max_tokens(folder: Path) -> int:
    """Tokens that the model reads, if the folder is of the one shape that is exported."""
    config = _json(folder / "config.json")
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in _json(folder / "modules.json")]
    pooling = _json(folder / "1_Pooling" / "config.json")
    mean = pooling.get("pooling_mode_mean_tokens") or pooling.get("pooling_mode") == "mean"
    others = ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    alone = not any(pooling.get(f"pooling_mode_{other}") for other in others)
    shape = ["Transformer", "Pooling", "Normalize"]
    if config.get("model_type") != "bert" or kinds != shape or not (mean and alone):
        what = "is not BERT with mean pooling and normalisation"
        raise EmbedderError("unsupported", f"{folder} {what}: open it with sentence-transformers.")
    limit = _json(folder / "sentence_bert_config.json").get("max_seq_length")
    return int(limit or config["max_position_embeddings"])


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise EmbedderError("missing", f"{file} cannot be read: {error}") from error


def _tokenizer(folder: Path, max_tokens: int) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # The Rust library raises plain `Exception`.
        raise EmbedderError("missing", f"{folder}/tokenizer.json: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def _session(file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own classes, without a common base.
        raise EmbedderError("missing", f"onnxruntime cannot load {file}: {error}") from error
