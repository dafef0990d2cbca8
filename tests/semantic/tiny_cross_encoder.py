"""A cross-encoder small enough to make in a test."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tiny_model import make_tiny_model
from transformers import BertConfig, BertForSequenceClassification


def make_tiny_cross_encoder(folder: Path, labels: int = 1, seed: int = 1) -> Path:
    """Random weights of dimension 8, drawn with `seed`; it reads letters."""
    make_tiny_model(folder, seed, max_tokens=64)
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        (folder / name).unlink()
    known = json.loads((folder / "config.json").read_text())
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=known["vocab_size"],
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=128,
        initializer_range=0.5,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder
