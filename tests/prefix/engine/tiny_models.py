"""Small random models of the supported architectures.

Weights with a standard deviation of 0.15: with the default 0.02 every prompt has the same greedy
tokens, and KV read from a wrong place would show nowhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers

from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.loading import adopt

VOCABULARY = 211
WINDOW = 24

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
# Embeddings that are scaled up and read out again would say the last token over and over.
_GEMMA = {**_COMMON, "head_dim": 16, "tie_word_embeddings": False}
_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _COMMON),
    "qwen2": ("Qwen2Config", _COMMON),
    "qwen3": ("Qwen3Config", {**_COMMON, "head_dim": 12}),
    "mistral": ("MistralConfig", {**_COMMON, "sliding_window": WINDOW}),
    "smollm3": ("SmolLM3Config", {**_COMMON, "no_rope_layer_interval": 3}),
    "gemma": ("GemmaConfig", _GEMMA),
    "gemma2": (
        "Gemma2Config",
        {**_GEMMA, "sliding_window": WINDOW, "layer_types": _SLIDING,
         "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 7},
    ),
    "gemma3": ("Gemma3TextConfig", {**_GEMMA, "sliding_window": WINDOW, "layer_types": _SLIDING}),
    "gpt2": (
        "GPT2Config",
        {"vocab_size": VOCABULARY, "n_positions": 512, "n_embd": 48, "n_layer": 3, "n_head": 4,
         "initializer_range": 0.15, "scale_attn_by_inverse_layer_idx": True,
         "bos_token_id": None, "eos_token_id": None},
    ),
}  # fmt: skip

MLA: dict[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 12, "first_k_dense_replace": 3, "num_key_value_heads": 6,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "rope_interleave": True,
}  # fmt: skip
"""For `adopted` with DeepseekV3Config: keys and values of different widths, no experts used."""


def made(architecture: str, dtype: torch.dtype = torch.float32, **changed: Any) -> Any:
    """A fresh model of transformers, with its own attention still."""
    kind, settings = CONFIGS[architecture]
    config = getattr(transformers, kind)(**{**settings, **changed})
    torch.manual_seed(5)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@cache
def loaded(architecture: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Adopted; shared by all tests, which leave it as it is."""
    return adopt(architecture, made(architecture, dtype), None)


def unpaged(one: LoadedModel, tokens: list[int]) -> torch.Tensor:
    """Logits of all tokens by the model's own attention, (tokens, vocabulary) float32."""
    one.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            given = torch.tensor([tokens], device=one.device)
            logits: torch.Tensor = one.model(input_ids=given, use_cache=False).logits[0].float()
            return logits
    finally:
        one.model.set_attn_implementation("trivet_paged")


def adopted(kind: str, changed: dict[str, Any]) -> LoadedModel:
    """A model of another configuration class of transformers."""
    config = getattr(transformers, kind)(**{**_COMMON, **changed})
    torch.manual_seed(5)
    return adopt(kind, transformers.AutoModelForCausalLM.from_config(config), None)
