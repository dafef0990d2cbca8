"""A model that is ready to run, and what others need to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from trivet.prefix.engine.kv_memory import LayerKv


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What requests are checked against, and what tells this model's KV from another's.

    The last four belong into `hashing.Namespace`.
    """

    name: str
    context: int
    """Tokens that prompt and answer may have together."""
    vocabulary: int
    """Token ids are below it."""
    end_tokens: frozenset[int]
    """Each of them ends an answer."""
    revision: str
    tokenizer: str
    dtype: str
    layout: str


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Weights whose attention is `attention.NAME`, checked against the unpaged model."""

    facts: ModelFacts
    model: Any
    """Of transformers, in eval mode."""
    tokenizer: Any
    layers: tuple[LayerKv, ...]
    dtype: torch.dtype
    """Of keys and values."""

    @property
    def device(self) -> torch.device:
        """Where the weights lie, and so the KV."""
        return self.model.device
