"""GGUF files converted once: transformers takes half a minute to read one, and seconds for its own.

The conversion lies in the cache folder ($XDG_CACHE_HOME/trivet/engine) and can be deleted at will.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trivet.canonical import digest


def place_of(file: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Where the conversion of `file` lies or would lie: another file has another place."""
    home = env.get("XDG_CACHE_HOME")
    base = Path(home) if home else Path.home() / ".cache"
    state = file.stat()
    parts = (file.name, str(state.st_size), str(state.st_mtime_ns), version("transformers"))
    return base / "trivet" / "engine" / digest(*(part.encode() for part in parts)).hex()[:24]


def keep(model: Any, tokenizer: Any, place: Path) -> None:
    """Write the conversion, whole or not at all. A full disk costs the next start, nothing else."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=place.parent))
        try:
            _forget_quantization(model)
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _forget_quantization(model: Any) -> None:
    """The weights were expanded while loading; only the labels still say otherwise."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
