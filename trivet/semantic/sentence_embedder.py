"""Any sentence-transformers model, on torch. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from sentence_transformers import SentenceTransformer

from trivet.errors import EmbedderError
from trivet.semantic.model_files import Digests
from trivet.semantic.vectors import clipped, normalised

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_LONGEST = 8192
"""Tokens of a text for models that name no limit."""
_OTHER_FORMATS = ["*.onnx", "*.h5", "*.ot", "*.msgpack", "onnx/*", "openvino/*", "coreml/*"]


class SentenceEmbedder:
    """An `Embedder` of a folder, or of a hub name (`ORG/MODEL` or `ORG/MODEL@REVISION`).

    With HF_HUB_OFFLINE set, only what the hub's cache holds. On all of torch's threads
    (OMP_NUM_THREADS bounds them).
    """

    def __init__(self, name: str, cache: Path | None = None) -> None:
        """Raises `EmbedderError("missing")`."""
        self.name = name
        self._folder, self._digests = model_folder(name), Digests(cache)
        self.fingerprint = self._digests.fingerprint(self._folder)
        try:
            self._model = SentenceTransformer(
                str(self._folder), device="cpu", local_files_only=True
            )
        except Exception as error:  # The library raises whatever its parts raise on a bad folder.
            told = f"sentence-transformers cannot open {self._folder}: {error}"
            raise EmbedderError("missing", told) from error
        self._max_tokens = int(self._model.max_seq_length or _LONGEST)
        self.dimension = int(np.asarray(self._encode(["dimension"])).shape[-1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        made = self._encode([clipped(text, self._max_tokens) for text in texts])
        return normalised(made, len(texts), self.dimension)

    def fingerprint_now(self) -> str:
        """The fingerprint of the files as they are now. Raises `EmbedderError("missing")`."""
        return self._digests.fingerprint(self._folder)

    def _encode(self, texts: list[str]) -> Any:
        try:
            return self._model.encode(texts, show_progress_bar=False, convert_to_numpy=True)
        except Exception as error:  # A model's own code runs here.
            raise EmbedderError("crash", f"{self.name} failed: {error}") from error


def model_folder(name: str) -> Path:
    """Where the model lies, fetched from the hub if need be and allowed.

    Raises `EmbedderError("missing")` with a sentence that says what to do.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    repository, _, revision = name.partition("@")
    try:
        found = snapshot_download(
            repository, revision=revision or None, ignore_patterns=_OTHER_FORMATS
        )
    except HFValidationError:
        raise EmbedderError(
            "missing", f"There is no folder {name}, and no hub model can have that name."
        ) from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        told = f"The model {name} is in no folder and not in the hub's cache ({error}): "
        todo = f"fetch it once with `hf download {repository}`, or give the path of its folder."
        raise EmbedderError("missing", told + todo) from error
    return Path(found)
