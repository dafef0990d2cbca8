"""Models that paged attention does not compute right are refused at load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_models
import torch

from trivet.errors import ConfigError
from trivet.prefix.engine import attention
from trivet.prefix.engine.loading import adopt


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def refused(model: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        adopt("x", model, None)


def test_attention_sinks_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"GptOssConfig \(GptOssForCausalLM\).*needs s_aux"):
        tiny_models.adopted("GptOssConfig", {"num_local_experts": 2, "num_experts_per_tok": 1})


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_depend_on_the_length_are_refused(kind: str) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if kind == "longrope" else {}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0,
            "original_max_position_embeddings": 64, **factors}  # fmt: skip
    refused(tiny_models.made("llama", rope_parameters=rope), "changes with a prompt's length")


def test_attention_to_later_tokens_is_refused() -> None:
    refused(tiny_models.made("gemma3", use_bidirectional_attention=True), "not causal")
    refused(tiny_models.made("llama", is_causal=False), "not causal")


def test_layers_with_a_state_or_with_chunks_of_attention_are_refused() -> None:
    model = tiny_models.made("llama")
    model.config.layer_types = ["full_attention", "linear_attention", "chunked_attention"]
    refused(model, "layers of chunked_attention, linear_attention")


def test_a_model_without_attention_that_can_be_replaced_is_refused() -> None:
    with pytest.raises(ConfigError, match="MambaForCausalLM"):
        tiny_models.adopted("MambaConfig", {"state_size": 4})


def test_a_window_that_only_the_mask_knows_is_refused() -> None:
    model = tiny_models.made("qwen3", use_sliding_window=True, sliding_window=8,
                             layer_types=["sliding_attention"] * 3)  # fmt: skip
    for layer in model.model.layers:
        layer.self_attn.sliding_window = None
    refused(model, "a sliding window that its attention is not told")


def test_another_window_than_the_configuration_has_is_refused() -> None:
    model = tiny_models.made("gemma3")
    model.model.layers[0].self_attn.sliding_window = 7
    refused(model, "another sliding window")


def test_an_upcast_that_only_eager_attention_has_changes_nothing() -> None:
    model = tiny_models.made("gpt2", reorder_and_upcast_attn=True)
    assert adopt("x", model, None).facts.name == "x"


def _wrong(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A model whose keys lose their positions when its own attention is not the one in use."""
    model = tiny_models.made("llama")
    inner = model.model.layers[1].self_attn
    forward = inner.forward

    def changed(hidden_states: torch.Tensor, **given: Any) -> Any:
        if model.config._attn_implementation != "eager":
            hidden_states = change(hidden_states)
        return forward(hidden_states=hidden_states, **given)

    inner.forward = changed
    return model


@pytest.mark.parametrize(
    "change", [lambda states: states * 1.1, lambda states: states.roll(1, 1), torch.zeros_like]
)
def test_logits_that_are_not_the_models_own_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    refused(_wrong(change), "other logits than its own")


def test_nan_is_refused() -> None:
    refused(_wrong(lambda states: states * float("nan")), "other logits than its own")


def test_every_reason_is_told_at_once() -> None:
    model = tiny_models.made("llama", is_causal=False)
    model.config.layer_types = ["mamba"]
    with pytest.raises(ConfigError) as refusal:
        adopt("x", model, None)
    assert len(refusal.value.problems) == 2


def test_a_model_keeps_paged_attention_after_its_check() -> None:
    one = tiny_models.loaded("llama")
    assert one.model.config._attn_implementation == attention.NAME
    assert len(one.layers) == 3
