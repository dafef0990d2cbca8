"""`determinism: bitwise`: a hit, an eviction and company change no bit of any logit."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest
import tiny_models
import torch
from law6_rig import SIZE, Answer, Asking, Prompts, apart, memory, reusable, running, three_tenants
from loop_builders import Letters

from trivet.prefix.engine.engine import EngineSettings
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.loading import load
from trivet.prefix.engine.runner import Determinism
from trivet.prefix.engine.sampler import Drawn, SamplerState, draw
from trivet.prefix.engine.scheduler import Limits

COUNT = 4
"""Tokens of an answer."""

Logits = dict[int, list[bytes]]
"""SHA-256 of the row of logits behind each token, by the number of the request."""


@contextmanager
def logits_of() -> Iterator[Logits]:
    """The logits of all requests meanwhile, which have their number for a seed."""
    found: Logits = defaultdict(list)

    def noting(logits: torch.Tensor, states: Sequence[SamplerState]) -> list[Drawn]:
        for row, state in zip(logits, states, strict=True):
            assert state.params.seed is not None
            found[state.params.seed].append(sha256(row.numpy().tobytes()).digest())
        return draw(logits, states)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trivet.prefix.engine.stepper.draw", noting)
        yield found


class Runs:
    """The same prompts again and again, under one `determinism`."""

    def __init__(self, one: LoadedModel, prompts: Prompts, determinism: Determinism) -> None:
        self.one = one
        self.prompts = prompts
        self._determinism = determinism

    def asked(self, blocks: int, *askings: Asking, host: int = 0) -> tuple[list[Answer], Logits]:
        """By one engine, one after the other; of the last one. All have the same bits."""
        made = EngineSettings(
            memory(self.one, blocks),
            host_memory=memory(self.one, host),
            determinism=self._determinism,
            limits=Limits(step_tokens=100),
        )
        with running(self.one, made) as engine:
            for asking in askings:
                with logits_of() as logits:
                    answers = asking.of(engine, self.prompts)
            self.counters = [*engine.stats().tenants.values()]
        return answers, logits

    def total(self, name: str) -> int:
        """A counter of the last engine, over all tenants."""
        return sum(getattr(each, name) for each in self.counters)


def asking(at_once: int = 1, space: Callable[[int], str] = lambda number: "one") -> Asking:
    return Asking(COUNT, at_once=at_once, space=space, logprobs=20)


@cache
def tiny(architecture: str, dtype: torch.dtype) -> LoadedModel:
    torch.set_num_threads(1)
    return replace(tiny_models.loaded(architecture, dtype), tokenizer=Letters())


@cache
def tiny_prompts() -> list[list[int]]:
    """40: eight lengths of five common beginnings, each with a tail of its own."""
    chance = random.Random(9)

    def tokens(count: int) -> list[int]:
        return chance.choices(range(tiny_models.VOCABULARY), k=count)

    bases = [tokens(80) for _ in range(5)]
    lengths = [1, 15, 16, 17, 47, 48, 49, 80]
    return [
        base[:length] + tokens(chance.choice([0, 1, 9, 16, 23]))
        for base in bases
        for length in lengths
    ]


SMOLLM2_TEXT = (
    "Dear guest, the kitchen serves soup, bread and fish from noon until the last table is free."
    " Wine from our own hill is poured by the glass. Please tell us of what you cannot eat before"
    " you order, and we shall find something else for you. The terrace is open while it is dry,"
    " and dogs are welcome there. We take no cards. Question: "
)
SMOLLM2_QUESTIONS = ["Is there fish?", "May I bring my dog?", "How do I pay?", "When do you open?"]


@cache
def smollm2() -> LoadedModel:
    return load("smollm2", threads=2, device="cpu")


@cache
def smollm2_prompts() -> list[list[int]]:
    """24: six lengths of one text, and four questions behind each."""
    tokenizer = smollm2().tokenizer
    text = tokenizer(SMOLLM2_TEXT)["input_ids"]
    return [
        text[:length] + tokenizer(question)["input_ids"]
        for length in (0, 15, 16, 17, 33, 64)
        for question in SMOLLM2_QUESTIONS
    ]


EACH_TIME = ("gemma3", "gpt2", "llama", "mistral")
"""One of each kind of attention and of positions; the others run with `make test-long`."""
CASES = [
    *(
        pytest.param(name, torch.float32, marks=() if name in EACH_TIME else pytest.mark.long)
        for name in sorted(tiny_models.CONFIGS)
    ),
    ("llama", torch.bfloat16),
]


def assert_no_bit_differs(runs: Runs, few: int) -> None:
    """`few` blocks are fewer than 32 at once need."""
    cold, expected = runs.asked(1024, asking(space=apart))
    assert {answer.cached for answer in cold} == {0}
    assert [len(expected[at]) for at in range(len(cold))] == [len(each.tokens) for each in cold]

    def same(answers: list[Answer], logits: Logits) -> None:
        assert logits == expected
        assert [(each.tokens, each.logprobs) for each in answers] == [
            (each.tokens, each.logprobs) for each in cold
        ]

    warm, logits = runs.asked(1024, asking(32), asking())
    assert [answer.cached for answer in warm] == [*map(reusable, runs.prompts)]
    same(warm, logits)
    same(*runs.asked(1024, asking(100, apart)))
    same(*runs.asked(1024, asking(100), asking(100)))
    assert runs.total("hits") > 0
    same(*runs.asked(few, asking(100, three_tenants), asking(100, three_tenants), host=60))
    for name in ("evictions", "offload_hits"):
        assert runs.total(name) > 0, name


@pytest.mark.parametrize(
    ("architecture", "dtype"), CASES, ids=lambda given: str(given).removeprefix("torch.")
)
def test_no_bit_differs_cold_or_warm_alone_or_among_32(
    architecture: str, dtype: torch.dtype
) -> None:
    runs = Runs(tiny(architecture, dtype), tiny_prompts(), "bitwise")
    assert_no_bit_differs(runs, 40)
    assert runs.total("preemptions") > 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_bit_differs_with_smollm2() -> None:
    assert_no_bit_differs(Runs(smollm2(), smollm2_prompts(), "bitwise"), 16)


def test_without_it_bits_differ() -> None:
    """Else nothing here could fail."""
    runs = Runs(tiny("llama", torch.float32), tiny_prompts(), "")
    _, cold = runs.asked(1024, asking(space=apart))
    _, warm = runs.asked(1024, asking(), asking())
    _, together = runs.asked(1024, asking(100, apart))
    for other in (warm, together):
        assert sum(cold[at] != other[at] for at in cold) > 0


def test_what_an_answer_began_with_is_shared_only_as_far_as_it_was_a_prompt() -> None:
    """Blocks that decoding filled came about in other shapes."""
    runs = Runs(tiny("llama", torch.float32), [tiny_prompts()[3]], "bitwise")
    made = EngineSettings(memory(runs.one, 64), determinism="bitwise")
    with running(runs.one, made) as engine:
        (first,) = Asking(40).of(engine, runs.prompts)
        talk = [*runs.prompts[0], *first.tokens]
        (second,) = Asking(1).of(engine, [talk])
    assert second.cached == len(runs.prompts[0]) // SIZE * SIZE
