"""ONNX files of models, exported once and kept: `FINGERPRINT.onnx` beside its SHA-256."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trivet.errors import EmbedderError
from trivet.semantic.model_files import replace_atomically

Export = Callable[[Path, Path], None]
"""Writes the ONNX form of a model folder to a file. Raises `EmbedderError`."""

_EXPORT_S = 600
_FORM = "1"
"""Part of the file's name: another way to export is another file."""


def export_in_process(folder: Path, file: Path) -> None:
    """Export in a process of its own, so that this one never loads torch."""
    command = [sys.executable, "-m", "trivet.semantic.onnx_export", str(folder), str(file)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=_EXPORT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbedderError("export", f"{folder} was not exported: {error}") from error
    if done.returncode == 0:
        return
    said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    if said[0].startswith("ModuleNotFoundError"):
        need = f"The first start needs torch ({said[0]}): pip install 'trivet[semantic]'"
        raise EmbedderError("install", need)
    raise EmbedderError("export", f"{folder} was not exported to ONNX: {said[0]}")


def exported(
    folder: Path, fingerprint: str, cache: Path, export: Export = export_in_process
) -> Path:
    """The ONNX file of the model in `folder`, made if it is not there or is not whole.

    Takes some 15 s the first time. Processes that come at once wait for the first. Raises
    `EmbedderError("export")` if it cannot be made or kept.
    """
    file = cache / f"{fingerprint[:32]}.{_FORM}.onnx"
    sums = file.with_suffix(".sha256")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / "export.lock"):
            if not _whole(file, sums):
                _make(folder, file, sums, export)
    except OSError as error:
        raise EmbedderError("export", f"{cache} cannot keep the exported model: {error}") from error
    return file


def _make(folder: Path, file: Path, sums: Path, export: Export) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".export-") as made:
        fresh = Path(made) / "model.onnx"
        export(folder, fresh)
        checksum = _sha256(fresh)
        fresh.replace(file)
    replace_atomically(sums, checksum.encode())


def _whole(file: Path, sums: Path) -> bool:
    with suppress(OSError):
        return sums.read_text() == _sha256(file)
    return False


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
