"""An OpenAI-compatible embeddings endpoint (https://platform.openai.com/docs/api-reference/
embeddings) as an embedder.

There are no files to hash, so a probe text stands for the model: the fingerprint is over URL,
model, dimension and the signs of some components of the probe's vector. The probe's vector is
kept in the state folder: while the endpoint's differs from it by rounding only, the fingerprint
stays. `fingerprint_now` asks for the probe again and notices a model that was changed silently.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.canonical import digest
from trivet.errors import EmbedderError
from trivet.semantic.json_client import JsonClient
from trivet.semantic.model_files import replace_atomically
from trivet.semantic.vectors import CHARS_PER_TOKEN, clipped, normalised

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_PROBE = "How long does it take until a parcel arrives, and what does it cost?"
_SIGNS = 32
_SAME_COSINE = 0.999
"""Above what another precision or batch makes of one model (0.9999), below another model."""
_AT_ONCE = 64
_MAX_TOKENS = 8192 // CHARS_PER_TOKEN
"""Texts are cut to 8,192 characters, since the endpoint's tokenizer is not known."""
_KEYS = ("TRIVET_EMBEDDER_KEY", "OPENAI_API_KEY")


class EndpointEmbedder:
    """An `Embedder` behind HTTP. For one thread at a time; each call may take `timeout_s`."""

    def __init__(
        self,
        url: str,
        model: str,
        cache: Path | None = None,
        *,
        timeout_s: float = 10.0,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """`url` is with or without the closing /v1. The key is TRIVET_EMBEDDER_KEY, or
        OPENAI_API_KEY; it goes to `url` and is never followed to another place.

        Raises `EmbedderError`: the endpoint is asked for the probe twice.
        """
        self.name = f"openai:{url}#{model}"
        self._model = model
        key = next((env[name] for name in _KEYS if env.get(name)), "")
        self._client = JsonClient(_embeddings_url(url), key, timeout_s)
        try:
            self.dimension = self._learned_dimension()
            self._probe = self._kept_probe(self.embed([_PROBE])[0], cache)
        except EmbedderError:
            self.close()
            raise
        self.fingerprint = self._named(self._probe)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Reason `text`: the endpoint refused what it was given (400, 413,
        422), which says nothing about other texts."""
        made = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _AT_ONCE):
            part = [clipped(text, _MAX_TOKENS) for text in texts[start : start + _AT_ONCE]]
            made[start : start + len(part)] = normalised(self._ask(part), len(part), self.dimension)
        return made

    def fingerprint_now(self) -> str:
        """The fingerprint of what answers now. Raises `EmbedderError`."""
        probe = self.embed([_PROBE])[0]
        return self.fingerprint if _alike(probe, self._probe) else self._named(probe, "other")

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _ask(self, texts: list[str]) -> list[Any]:
        answer = self._client.post({"model": self._model, "input": texts})
        try:
            rows = {int(item["index"]): item["embedding"] for item in answer["data"]}
        except (KeyError, TypeError, ValueError, OverflowError):
            raise EmbedderError("shape", f"{self.name} answered without embeddings.") from None
        if sorted(rows) != list(range(len(texts))):
            told = f"{self.name} gave {len(rows)} vectors for {len(texts)} texts."
            raise EmbedderError("shape", told)
        return [rows[index] for index in range(len(texts))]

    def _learned_dimension(self) -> int:
        vector = self._ask([_PROBE])[0]
        if not isinstance(vector, list) or not vector:
            raise EmbedderError("shape", f"{self.name} gave an embedding that is not a list.")
        return len(vector)

    def _named(self, probe: Vectors, mark: str = "") -> str:
        places = np.linspace(0, self.dimension - 1, _SIGNS).astype(int)
        signs = np.packbits(probe[places] > 0).tobytes()
        parts = (self.name.encode(), str(self.dimension).encode(), signs, mark.encode())
        return digest(b"trivet-endpoint/1", *parts).hex()

    def _kept_probe(self, probe: Vectors, cache: Path | None) -> Vectors:
        """The vector that the last process kept, if this one is the same but for rounding."""
        if cache is None:
            return probe
        name = digest(self.name.encode(), str(self.dimension).encode()).hex()[:32]
        file = cache / f"probe-{name}.json"
        with suppress(OSError, ValueError):
            kept = np.asarray(json.loads(file.read_bytes()), dtype=np.float32)
            if kept.shape == probe.shape and _alike(kept, probe):
                return kept
        with suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            replace_atomically(file, json.dumps([float(value) for value in probe]).encode())
        return probe


def _alike(one: Vectors, other: Vectors) -> bool:
    return float(one @ other) >= _SAME_COSINE


def _embeddings_url(url: str) -> str:
    base = url.rstrip("/")
    if base.endswith("/embeddings"):
        return base
    return f"{base}/embeddings" if base.endswith("/v1") else f"{base}/v1/embeddings"
