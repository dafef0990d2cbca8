"""The identity of a model folder: SHA-256 over the files that shape its vectors.

The name of a model says nothing about its weights, and the library that runs it changes nothing
that matters here: a folder has one fingerprint, whichever embedder reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trivet.canonical import digest
from trivet.errors import EmbedderError

_DOCUMENTS = frozenset({".md", ".png", ".jpg"})
_OTHER_FORMATS = frozenset({".onnx", ".h5", ".ot", ".msgpack", ".xml", ".tflite", ".gguf"})
_OTHER_FOLDERS = frozenset({"onnx", "openvino", "coreml"})
_UNUSED = frozenset({"data_config.json", "train_script.py"})
"""What describes the training, in folders of sentence-transformers."""


def model_files(folder: Path) -> list[Path]:
    """Files below `folder` that shape its vectors, sorted: weights, tokenizer, and all settings.

    Left out are documents, hidden files, the same weights in the formats of other frameworks, and
    pickled weights beside safetensors. Raises `EmbedderError("missing")` if no weights are there.
    """
    found = sorted(path for path in _walk(folder) if path.is_file())
    safe = {path.parent for path in found if path.suffix == ".safetensors"}
    kept = [path for path in found if path.suffix != ".bin" or path.parent not in safe]
    if not any(path.suffix in (".safetensors", ".bin") for path in kept):
        raise EmbedderError("missing", f"{folder} holds no model: no .safetensors and no .bin.")
    return kept


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in parts)
        if hidden or _OTHER_FOLDERS.intersection(parts[:-1]) or path.name in _UNUSED:
            continue
        if path.suffix not in _DOCUMENTS and path.suffix not in _OTHER_FORMATS:
            yield path


class Digests:
    """SHA-256 of files, remembered by path, size and times of change, so that a start is fast.

    The memory is a JSON file in `folder`; without one, or if it cannot be written, each process
    hashes once.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "digests.json"
        self._known: dict[str, tuple[list[int], bytes]] = {}
        if self._file is not None:
            with suppress(OSError, ValueError, TypeError, AttributeError):
                read = json.loads(self._file.read_bytes())
                self._known = {
                    path: (list(state), bytes.fromhex(hash_))
                    for path, (state, hash_) in read.items()
                }

    def fingerprint(self, folder: Path) -> str:
        """Hex SHA-256 over the names and contents of `model_files(folder)`.

        Raises `EmbedderError("missing")` if they cannot be read.
        """
        before = dict(self._known)
        try:
            parts = [
                part
                for path in model_files(folder)
                for part in (path.relative_to(folder).as_posix().encode(), self._digest(path))
            ]
        except OSError as error:
            raise EmbedderError("missing", f"{folder} cannot be read: {error}.") from error
        if before != self._known:
            self._save()
        return digest(b"trivet-model/1", *parts).hex()

    def _digest(self, path: Path) -> bytes:
        status = path.stat()
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        known = self._known.get(str(path))
        if known is None or known[0] != state:
            with path.open("rb") as file:
                known = state, hashlib.file_digest(file, "sha256").digest()
            self._known[str(path)] = known
        return known[1]

    def _save(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written = {path: (state, hash_.hex()) for path, (state, hash_) in self._known.items()}
            replace_atomically(self._file, json.dumps(written).encode())


def replace_atomically(file: Path, content: bytes) -> None:
    """Write the whole file or nothing. Raises `OSError`."""
    handle, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(made, file)
    finally:
        Path(made).unlink(missing_ok=True)
