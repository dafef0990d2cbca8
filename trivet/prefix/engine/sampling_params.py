"""How the tokens of one answer are drawn, and what is told of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Temperature 0 takes the likeliest token each time; the filters are then without effect."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    """Share of the likeliest token's probability that a token has to have (Nguyen et al. 2024)."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """How many alternatives are told for each token; None tells no log probabilities at all."""
    json_schema: str | None = None
    """The answer is JSON of this schema (JSON text); `{}` takes any JSON object or value."""
