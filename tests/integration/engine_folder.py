"""A tiny model of random weights as a Hugging Face folder, with the tokenizer of `engine_rig`."""

from __future__ import annotations

import torch
from engine_rig import tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

CONTEXT = 1024


def tiny_model() -> LlamaForCausalLM:
    """Weights wide enough apart that each prompt has an answer of its own; it ends by length."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=None)
    return model


def write_model(folder: str) -> None:
    """Put the model there."""
    tiny_model().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
