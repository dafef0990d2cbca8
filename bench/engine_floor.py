"""Bare transformers, the floor that the engine is measured against: no server, no blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig


class Floor:
    """One model as transformers runs it by itself, with PyTorch's own attention (SDPA)."""

    def __init__(self, folder: str, threads: int, device: str = "cpu") -> None:
        torch.set_num_threads(threads)
        self._model: Any = (
            AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="sdpa"
            )
            .to(device)
            .eval()
        )

    def cold(self, prompt: Sequence[int]) -> float:
        """Seconds from the prompt to its first token, with nothing cached."""
        began = time.perf_counter()
        self._first(self._tensor([prompt]), None)
        return time.perf_counter() - began

    def warm(self, prefix: Sequence[int], tails: Sequence[Sequence[int]]) -> list[float]:
        """Seconds to the first token of each tail, the prefix's KV being in a DynamicCache."""
        cache = DynamicCache(config=self._model.config)
        self._first(self._tensor([prefix]), cache)
        took = []
        for tail in tails:
            began = time.perf_counter()
            self._first(self._tensor([tail]), cache)
            took.append(time.perf_counter() - began)
            cache.crop(-len(tail))
        return took

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """Seconds for `count` tokens of each prompt (all of one length), greedy, as one batch."""
        settings = GenerationConfig(
            max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0
        )
        tokens = self._tensor(prompts)
        began = time.perf_counter()
        # It has an inference mode of its own.
        self._model.generate(
            tokens, attention_mask=torch.ones_like(tokens), generation_config=settings
        )
        return time.perf_counter() - began

    def _tensor(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.tensor(tokens, device=self._model.device)

    def _first(self, tokens: Any, cache: DynamicCache | None) -> int:
        more = {} if cache is None else {"cache": cache}
        with torch.inference_mode():
            made = self._model(tokens, use_cache=cache is not None, logits_to_keep=1, **more)
        return int(made.logits[0, -1].argmax())
