"""Law 6, a hit changes nothing: answers of an engine beside those of the unpaged model.

Two ways of summing the same floats differ in their last bits. Where the two likeliest tokens are
closer to each other than that, either is right; so another token than the unpaged model's is
accepted where that model itself puts it within `tie` of its top logit, and the answer has to go on
as the unpaged model goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig

from trivet.prefix.engine.engine import Engine, EngineSettings
from trivet.prefix.engine.kv_memory import bytes_per_token
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.sequence import Finish

T = TypeVar("T")
Prompts = Sequence[Sequence[int]]

SIZE = 16
"""Tokens in a block."""


@dataclass(frozen=True)
class Answer:
    """What came of one request."""

    tokens: tuple[int, ...]
    cached: int
    finish: Finish | None
    logprobs: tuple[Any, ...] = ()


class Unpaged:
    """Greedy answers of `count` tokens by transformers' `generate`, one prompt at a time."""

    def __init__(self, one: LoadedModel, count: int, tie: float, own: str = "eager") -> None:
        self.count = count
        self._one = one
        self._tie = tie
        self._own = own
        self._known: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}

    def answer(self, prompt: Sequence[int], count: int | None = None) -> tuple[int, ...]:
        """The answer's tokens, an end token among them. Not while an engine runs the model."""
        asked, count = (*prompt,), count or self.count
        if (asked, count) not in self._known:
            given = torch.tensor([asked])
            settings = GenerationConfig(max_new_tokens=count, do_sample=False, pad_token_id=0)
            with self._unpaged() as model:
                made = model.generate(
                    given, attention_mask=torch.ones_like(given), generation_config=settings
                )
            self._known[asked, count] = (*made[0, len(asked) :].tolist(),)
        return self._known[asked, count]

    def ties(self, prompt: Sequence[int], found: Sequence[int]) -> int:
        """How often `found` takes the other one of two tokens that tie.

        Raises `AssertionError` where it takes a token that no rounding explains.
        """
        context, left, met = [*prompt], (*found,), 0
        while left != (expected := self.answer(context, self.count - len(context) + len(prompt))):
            pairs = enumerate(zip(left, expected, strict=False))
            at = next((at for at, (ours, theirs) in pairs if ours != theirs), None)
            assert at is not None, f"an answer has {len(left)} tokens instead of {len(expected)}"
            context += left[: at + 1]
            gap = self._gap(context)
            assert gap <= self._tie, (
                f"token {len(context) - len(prompt)} of an answer is {context[-1]}, not"
                f" {expected[at]}, which the unpaged model prefers by {gap:.3g}"
            )
            left, met = left[at + 1 :], met + 1
            if len(context) - len(prompt) == self.count:
                break
        return met

    def ties_of(self, prompts: Prompts, answers: Sequence[Answer]) -> int:
        """The same over all answers, each of which came to its end."""
        assert {answer.finish for answer in answers} <= {"length", "stop"}
        pairs = zip(prompts, answers, strict=True)
        return sum(self.ties(prompt, answer.tokens) for prompt, answer in pairs)

    def _gap(self, tokens: Sequence[int]) -> float:
        """By how much the last token's logit is below the top, seen from those before it."""
        with self._unpaged() as model, torch.inference_mode():
            given = torch.tensor([tokens[:-1]])
            logits = model(input_ids=given, use_cache=False).logits[0, -1].float()
        return float(logits.max() - logits[tokens[-1]])

    @contextmanager
    def _unpaged(self) -> Iterator[Any]:
        model = self._one.model
        model.set_attn_implementation(self._own)
        try:
            yield model
        finally:
            model.set_attn_implementation("trivet_paged")


def memory(one: LoadedModel, blocks: int, size: int = SIZE) -> int:
    """Bytes of so many blocks."""
    return blocks * size * bytes_per_token(one.layers, one.dtype)


@contextmanager
def running(one: LoadedModel, settings: EngineSettings) -> Iterator[Engine]:
    """An engine with its thread; afterwards no block is in use and the pool is sound."""
    engine = Engine(one, settings)
    engine.start()
    try:
        yield engine
        assert engine.alive
    finally:
        asyncio.run(engine.close())
    engine.pool.check_integrity()
    assert engine.pool.state().used == 0
    stats = engine.stats()
    assert (stats.failed_steps, *(tier.failures for tier in stats.tiers)) == (0,) * (
        1 + len(stats.tiers)
    )


@dataclass(frozen=True)
class Asking:
    """How prompts are put to an engine: request n under `space(n)`, at most `at_once` in flight."""

    count: int
    at_once: int = 1
    space: Callable[[int], str] = field(default=lambda number: "one")
    reuse: bool = True
    logprobs: int | None = None

    def of(self, engine: Engine, prompts: Prompts) -> list[Answer]:
        """All answers, in the order of the prompts."""
        return asyncio.run(self._all(engine, prompts))

    async def _all(self, engine: Engine, prompts: Prompts) -> list[Answer]:
        room = asyncio.Semaphore(self.at_once)

        async def one(number: int, prompt: Sequence[int]) -> Answer:
            async with room:
                return await self._one(engine, number, prompt)

        return await asyncio.gather(*(one(at, prompt) for at, prompt in enumerate(prompts)))

    async def _one(self, engine: Engine, number: int, prompt: Sequence[int]) -> Answer:
        # The seed is without effect at temperature 0: it names the request to `logits_of`.
        params = SamplingParams(self.count, 0.0, seed=number, logprobs=self.logprobs)
        space = self.space(number)
        asked = engine.submit([*prompt], params, tenant=space, salt=space, reuse=self.reuse)
        parts = [part async for part in asked]
        return Answer(
            tuple(token for part in parts for token in part.tokens),
            asked.cached_tokens,
            parts[-1].finish,
            tuple(drawn for part in parts for drawn in part.logprobs or ()),
        )


def apart(number: int) -> str:
    """A space for each request: nothing is shared."""
    return f"space-{number}"


def three_tenants(number: int) -> str:
    """Each third request under the same salt."""
    return f"tenant-{number % 3}"


def shared(prompt: Sequence[int], others: Prompts) -> int:
    """Tokens in the full blocks that the prompt begins with as any of the others; not its last."""
    found = 0
    for other in others:
        while found + SIZE < len(prompt) and [*prompt[: found + SIZE]] == [*other[: found + SIZE]]:
            found += SIZE
    return found


def reusable(prompt: Sequence[int]) -> int:
    """Tokens of a prompt that a warm cache has: full blocks before the last token."""
    return (len(prompt) - 1) // SIZE * SIZE
