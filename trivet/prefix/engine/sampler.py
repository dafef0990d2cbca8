"""From logits to tokens, for all sequences of a step at once.

Each sequence has a random generator of its own and takes one number of it for each token, which is
mapped through the cumulated probabilities. So a seed gives the same answer whatever else is in the
batch, and whether the sequence was preempted meanwhile.

The order of the filters is temperature, min-p, top-k, top-p (Holtzman et al. 2020, Nguyen et al.
2024), each on what the one before it left.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

from trivet.prefix.engine.sampling_params import SamplingParams

_GREEDY = 1e-5
"""Temperatures below take the likeliest token: dividing by them would overflow."""

_FIRST, _MORE = 256, 32
"""Likeliest tokens that are sorted at first, and how many times as many where top-p needs more: to
sort a whole vocabulary of 50,000 takes 20 times as long."""

_LEAST_LOGPROB = -9999.0
"""In place of minus infinity, which JSON does not have; as OpenAI's API tells it."""


class Mask(Protocol):
    """Which tokens a grammar allows next."""

    def allowed(self, vocabulary: int) -> torch.Tensor:
        """(vocabulary,) of bool, on the CPU."""
        ...


class SamplerState:
    """What one sequence keeps between its tokens."""

    def __init__(self, params: SamplingParams, mask: Mask | None = None) -> None:
        self.params = params
        self.mask = mask
        seed = secrets.randbits(64) if params.seed is None else params.seed
        # Python takes a negative seed for its absolute value.
        self.random = random.Random(seed % 2**64)


class Drawn(NamedTuple):
    """One token. Log probabilities are natural, of the model's own distribution: before the
    temperature, filters and grammar, as OpenAI tells them."""

    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens, as many as were asked for."""
    failed: bool = False
    """There was nothing to draw from: NaN, or no token that is allowed."""


def usable(logits: torch.Tensor) -> list[bool]:
    """Which rows are numbers to draw from: no NaN, no infinity above, not all minus infinity."""
    sound: list[bool] = logits.amax(-1).isfinite().tolist()
    return sound


def draw(logits: torch.Tensor, states: Sequence[SamplerState]) -> list[Drawn]:
    """One token for each row of `logits` (sequences, vocabulary), float32.

    A row that cannot be used fails, and the others do not know of it.
    """
    if not states:
        return []
    masked = _masked(logits, states)
    best, tokens = masked.max(-1)
    sound: list[bool] = best.isfinite().tolist()
    rows = [at for at, state in enumerate(states) if sound[at] and _is_random(state)]
    if rows:
        tokens[rows] = _sampled(masked[rows], [states[at] for at in rows])
    drawn = [Drawn(token) for token in tokens.tolist()]
    told = [at for at, state in enumerate(states) if state.params.logprobs is not None]
    if told:
        some = _with_logprobs(logits[told], tokens[told], [states[at].params for at in told])
        for at, one in zip(told, some, strict=True):
            drawn[at] = one
    return [one if good else Drawn(0, failed=True) for one, good in zip(drawn, sound, strict=True)]


def _is_random(state: SamplerState) -> bool:
    return state.params.temperature >= _GREEDY


def _masked(logits: torch.Tensor, states: Sequence[SamplerState]) -> torch.Tensor:
    rows = [at for at, state in enumerate(states) if state.mask is not None]
    if not rows:
        return logits
    width = logits.shape[-1]
    allowed = torch.stack([state.mask.allowed(width) for state in states if state.mask is not None])
    masked = logits.clone()
    masked[rows] = logits[rows].masked_fill(~allowed.to(logits.device), -math.inf)
    return masked


def _sampled(logits: torch.Tensor, states: Sequence[SamplerState]) -> torch.Tensor:
    """(rows,) token ids."""
    params = [state.params for state in states]
    heat = logits.new_tensor([each.temperature for each in params])[:, None]
    # The likeliest token at 0: no temperature makes it overflow.
    scores = (logits - logits.amax(-1, keepdim=True)) / heat
    if any(each.min_p for each in params):
        floor = logits.new_tensor([_log(each.min_p) for each in params])[:, None]
        scores = scores.masked_fill(scores < floor, -math.inf)
    chance = torch.tensor([state.random.random() for state in states], dtype=torch.float64)
    chance = chance.to(logits.device)
    rows = [at for at, each in enumerate(params) if each.top_k or each.top_p < 1]
    plain = [at for at in range(len(params)) if at not in set(rows)]
    tokens = torch.zeros(len(states), dtype=torch.int64, device=logits.device)
    if plain:
        tokens[plain] = _place(scores[plain].exp(), chance[plain])
    if rows:
        tokens[rows] = _filtered(scores[rows], [params[at] for at in rows], chance[rows], _FIRST)
    return tokens


def _filtered(
    scores: torch.Tensor, params: Sequence[SamplingParams], chance: torch.Tensor, first: int
) -> torch.Tensor:
    """Draw by top-k and top-p among the `first` likeliest tokens, or more where those are few."""
    vocabulary = scores.shape[-1]
    most = [min(each.top_k or vocabulary, vocabulary) for each in params]
    width = min(vocabulary, max(first, *(each.top_k for each in params)))
    best, tokens = scores.topk(width, -1)
    weights = best.double().exp()
    place = torch.arange(width, device=scores.device)
    top_k = torch.tensor(most, device=scores.device)[:, None]
    weights = weights.masked_fill(place >= top_k, 0.0)
    mass_of_all = _by_row(lambda row: row.exp().sum(dtype=torch.float64), scores)
    whole = torch.where(top_k[:, 0] <= width, weights.sum(-1), mass_of_all)
    mass = torch.tensor([each.top_p for each in params], device=scores.device).double() * whole
    reached = weights.cumsum(-1)
    kept = (reached - weights < mass[:, None]) | (place == 0)
    drawn = _place(weights * kept, chance)
    picked = tokens.gather(-1, drawn[:, None])[:, 0]
    short = ((reached[:, -1] < mass) & (top_k[:, 0] > width)).nonzero()[:, 0].tolist()
    if short:
        rest = [params[at] for at in short]
        picked[short] = _filtered(scores[short], rest, chance[short], width * _MORE)
    return picked


def _place(weights: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """Where `chance`, in [0, 1), falls among the cumulated weights (rows, places); never on a 0."""
    reached = weights.cumsum(-1, dtype=torch.float64)
    end = reached[:, -1:]
    aim = torch.minimum(chance[:, None] * end, torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(reached, aim, right=True)[:, 0]


def _with_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, params: Sequence[SamplingParams]
) -> list[Drawn]:
    whole = _by_row(lambda row: row.logsumexp(-1), logits)[:, None]
    own = (logits.gather(-1, tokens[:, None]) - whole)[:, 0].tolist()
    counts = [min(each.logprobs or 0, logits.shape[-1]) for each in params]
    best, places = logits.topk(max(counts), -1)
    best = best - whole
    return [
        Drawn(
            token, _told(logprob), tuple(zip(ids[:count], map(_told, values[:count]), strict=True))
        )
        for token, logprob, ids, values, count in zip(
            tokens.tolist(), own, places.tolist(), best.tolist(), counts, strict=True
        )
    ]


def _by_row(reduce: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """Each row by itself: how a sum over several rows is split depends on how many there are, and
    in bitwise mode no bit of what is told may depend on the others in the step."""
    return torch.stack([reduce(row) for row in rows])


def _told(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf
