"""Whether paged attention computes a model right: decided before it serves anything.

First what is known to go wrong is refused by name, then a probe forward shows what each layer keeps
and asks of its attention, and at last a prompt is run paged in pieces and compared with the model's
own attention. A model that fails is refused with the reason; nothing is computed wrongly.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trivet.errors import ConfigError, Problem
from trivet.prefix.engine.attention import NAME, attending
from trivet.prefix.engine.kv_memory import LayerKv
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.runner import Piece, Runner

KNOWN_LAYERS = {"full_attention", "sliding_attention"}

KNOWN_OPTIONS = {"dropout", "scaling", "sliding_window", "softcap", "is_causal", "position_ids"}
"""What attention.py acts on, or may leave aside in a forward without dropout, over causal text."""

CHECKED_TOKENS = 40
"""Of the prompt of the self-check: more than two blocks of 16."""

MAX_ERROR = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
"""Of logits, relative to their spread; rounding alone leaves a tenth of it."""


class _Probe:
    """Notes what the attention layers are called with."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerKv] = {}
        self.windows: dict[int, int | None] = {}
        self.dtypes: set[torch.dtype] = set()
        self.problems: list[str] = []

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        """Zeros, as `Attends` shapes them."""
        layer = getattr(module, "layer_idx", None)
        if not isinstance(layer, int) or layer in self.layers:
            self.problems.append("its attention layers are not numbered one by one")
        else:
            self.layers[layer] = LayerKv(key.shape[1], key.shape[-1], value.shape[-1])
            self.windows[layer] = options.get("sliding_window")
        self.dtypes |= {key.dtype, value.dtype}
        if key.shape[:3] != value.shape[:3] or query.shape[:1] + query.shape[2:3] != (
            key.shape[:1] + key.shape[2:3]
        ):
            self.problems.append("its attention is not over its own tokens alone")
        if not getattr(module, "is_causal", True) or options.get("is_causal") is False:
            self.problems.append("its attention is not causal")
        unknown = sorted(
            name
            for name, given in options.items()
            if name not in KNOWN_OPTIONS and given is not None and given is not False
        )
        if unknown:
            self.problems.append(f"its attention needs {', '.join(unknown)}")
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1])


def probe(name: str, model: Any) -> tuple[tuple[LayerKv, ...], torch.dtype]:
    """What each layer keeps of a token, in the order of layers, and in which dtype.

    Leaves the model with `attention.NAME` as its attention. Raises `ConfigError` with all reasons
    against it.
    """
    config = model.config.get_text_config()
    _refuse(name, model, _known_problems(model, config))
    try:
        model.set_attn_implementation(NAME)
    except ValueError as error:
        _refuse(name, model, [f"it takes no other attention: {error}"])
    seen = _Probe()
    tokens = torch.tensor([[1, 2, 0]], device=model.device) % config.vocab_size
    with torch.inference_mode(), attending(seen):
        model(input_ids=tokens, position_ids=torch.arange(3, device=model.device)[None],
              use_cache=False)  # fmt: skip
    count = config.num_hidden_layers
    problems = sorted(set(seen.problems))
    if sorted(seen.layers) != list(range(count)):
        problems.append(f"{len(seen.layers)} of its {count} layers use attention that can be paged")
    if len(seen.dtypes) > 1:
        problems.append("its keys and values have several dtypes")
    problems += _window_problems(config, seen.windows)
    _refuse(name, model, problems)
    return tuple(seen.layers[at] for at in range(count)), seen.dtypes.pop()


def self_check(loaded: LoadedModel) -> None:
    """Compare logits of one prompt, paged in pieces, with those of the model's own attention.

    Raises `ConfigError` if they are not the same up to rounding.
    """
    model, facts = loaded.model, loaded.facts
    length = min(CHECKED_TOKENS, facts.context)
    # A fixed scatter of ids: alike tokens would hide KV that is read from a wrong place.
    tokens = [(7919 * at + 13) % facts.vocabulary for at in range(1, length + 1)]
    ends = [length // 2 + 3, length - 1, length]
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            expected = model(
                input_ids=torch.tensor([tokens], device=loaded.device), use_cache=False
            ).logits[0][[end - 1 for end in ends]]
    finally:
        model.set_attn_implementation(NAME)
    blocks = [3, 1, 0, 2, 4]
    runner = Runner(loaded, len(blocks), -(-length // len(blocks)))
    starts = [0, *ends[:-1]]
    made = torch.cat([
        runner.run([Piece(tokens[start:end], start, blocks, wants_logits=True)])
        for start, end in zip(starts, ends, strict=True)
    ])  # fmt: skip
    if not _are_close(made, expected.float(), MAX_ERROR[loaded.dtype]):
        error = float((made - expected.float()).abs().max())
        _refuse(
            facts.name, model,
            [f"paged attention gives it other logits than its own (by up to {error:.3g})"],
        )  # fmt: skip


def _are_close(made: torch.Tensor, expected: torch.Tensor, limit: float) -> bool:
    """Each row by its norm around its mean, and its likeliest token no worse than rounding."""
    spread = expected.std(-1, keepdim=True)
    if not bool(torch.isfinite(made).all()):
        return False
    close = (made - expected).std(-1, keepdim=True) <= limit * spread
    chosen = expected.gather(-1, made.argmax(-1, keepdim=True))
    best = expected.max(-1, keepdim=True).values
    return bool((close & (best - chosen <= 10 * limit * spread)).all())


def _known_problems(model: Any, config: Any) -> Iterator[str]:
    if getattr(config, "is_encoder_decoder", False):
        yield "it has an encoder"
    if not getattr(config, "is_causal", True) or getattr(
        config, "use_bidirectional_attention", None
    ):
        yield "its attention is not causal"
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        yield "its forward computes the logits of all tokens only"
    unknown = set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS
    if unknown:
        yield f"it has layers of {', '.join(sorted(unknown))}"
    # KV under these depends on the length of the prompt and of whatever else is in the step.
    ropes = sorted(kind for kind in _rope_types(config) if kind in ("dynamic", "longrope"))
    if ropes:
        yield f"its rotary embedding ({', '.join(ropes)}) changes with a prompt's length"


def _rope_types(config: Any) -> set[str]:
    given = getattr(config, "rope_parameters", None) or {}
    each = [given, *(part for part in given.values() if isinstance(part, dict))]
    return {str(part.get("rope_type")) for part in each}


def _window_problems(config: Any, windows: Mapping[int, int | None]) -> Iterator[str]:
    """A window that only a mask knew would be lost: the self-check is too short to show it."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ()
    slides = [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]
    if not kinds and window:
        slides = list(windows)
    if any(not windows.get(layer) for layer in slides):
        yield "it has a sliding window that its attention is not told"
    if set(windows.values()) - {None, window}:
        yield "its attention has another sliding window than its configuration"


def _refuse(name: str, model: Any, problems: Any) -> None:
    found = list(problems)
    if found:
        kind = type(model).__name__
        raise ConfigError(
            *(Problem("trivet engine", 0, 0, "--model", f"{name} ({kind}): {one}") for one in found)
        )
