"""Law 6 on SmolLM2-135M with real text: the cache changes no token of an answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from law6_rig import (
    Answer,
    Asking,
    Unpaged,
    apart,
    memory,
    reusable,
    running,
    three_tenants,
)

from trivet.prefix.engine.engine import EngineSettings
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.loading import load
from trivet.prefix.engine.scheduler import Limits

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 8
"""Tokens of an answer."""

TIE = 1e-3
"""Of logits whose spread is about 3: ten times what paged and unpaged attention differ by."""

MOST_TIES = 1
"""In the answers of 100 prompts."""

HANDBOOK = (
    "This is the handbook of the harbour library. The library opens at nine in the morning and"
    " closes at six in the evening; on Sundays it stays closed. Readers borrow up to twelve books"
    " for four weeks. A book that nobody waits for may be kept for two weeks more. Whoever brings"
    " a book back late pays ten cents a day, and never more than the price of the book. Maps and"
    " newspapers are read in the hall on the first floor. Children have a room of their own beside"
    " the garden, where stories are read aloud on Wednesdays. Answer each question in one plain"
    " sentence, and say so when the handbook does not tell."
)
LENGTHS = [1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 80, 81, 95, 96, 97, 112]
QUESTIONS = [
    "When does the library open?",
    "How many books may I borrow at a time?",
    "What does it cost to bring a book back late?",
    "Where can I read yesterday's newspaper?",
    "Is there a place for my children?",
    "Write a line about the sea.",
    "Name two colours.",
    "What is 7 plus 5?",
    "Who wrote the handbook?",
    "May I keep a book for longer than four weeks?",
    "Translate 'good morning' into French.",
    "What is a harbour?",
    "Tell me a word that rhymes with book.",
    "Which day is the library closed, and why do you think that is so?",
    "List three things one finds in a library.",
    "How are you?",
    "What is the capital of Norway?",
    "Say thank you to a reader who brought a book back early.",
    "Begin a story about a cat that lives between the shelves.",
    "Count from one to five.",
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load("smollm2", threads=2, device="cpu")


@pytest.fixture(scope="module")
def prompts(model: LoadedModel) -> list[list[int]]:
    """100: as much of the handbook as a few blocks hold, a token more or less, and a question."""

    def tokens(text: str) -> list[int]:
        made: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        return made

    begun = tokens(f"<|im_start|>system\n{HANDBOOK}")
    assert len(begun) >= max(LENGTHS)
    ends = [
        tokens(f"<|im_end|>\n<|im_start|>user\n{each}<|im_end|>\n<|im_start|>assistant\n")
        for each in QUESTIONS
    ]
    return [
        begun[:length] + ends[(at + 4 * number) % len(ends)]
        for number in range(5)
        for at, length in enumerate(LENGTHS)
    ]


@pytest.fixture(scope="module")
def unpaged(model: LoadedModel, prompts: Sequence[Sequence[int]]) -> Unpaged:
    made = Unpaged(model, COUNT, TIE, own="sdpa")
    for prompt in prompts:
        made.answer(prompt)
    return made


class Case:
    """What each test needs."""

    def __init__(self, model: LoadedModel, prompts: list[list[int]], unpaged: Unpaged) -> None:
        self.model = model
        self.prompts = prompts
        self.unpaged = unpaged

    def settings(self, blocks: int, host: int = 0, disk: int = 0) -> EngineSettings:
        return EngineSettings(
            memory(self.model, blocks),
            host_memory=memory(self.model, host),
            disk_memory=memory(self.model, disk),
            limits=Limits(step_tokens=200),
        )

    def assert_equal(self, answers: Sequence[Answer]) -> None:
        assert self.unpaged.ties_of(self.prompts, answers) <= MOST_TIES


@pytest.fixture
def case(model: LoadedModel, prompts: list[list[int]], unpaged: Unpaged) -> Case:
    return Case(model, prompts, unpaged)


def test_the_prompts_differ_and_so_do_their_answers(case: Case) -> None:
    assert len({(*prompt,) for prompt in case.prompts}) == 100
    assert len({case.unpaged.answer(prompt) for prompt in case.prompts}) > 40


def test_without_the_cache_answers_are_those_of_generate(case: Case) -> None:
    with running(case.model, case.settings(256)) as engine:
        answers = Asking(COUNT, at_once=8, reuse=False).of(engine, case.prompts)
    assert {answer.cached for answer in answers} == {0}
    case.assert_equal(answers)


def test_cold_and_32_at_once_answers_are_those_of_generate(case: Case) -> None:
    with running(case.model, case.settings(512)) as engine:
        answers = Asking(COUNT, at_once=100, space=apart).of(engine, case.prompts)
        stats = engine.stats()
    assert {answer.cached for answer in answers} == {0}
    assert stats.generated_tokens / stats.steps > 8
    case.assert_equal(answers)


def test_warm_answers_are_those_of_generate(case: Case) -> None:
    with running(case.model, case.settings(512)) as engine:
        Asking(1, at_once=32).of(engine, case.prompts)
        alone = Asking(COUNT).of(engine, case.prompts[::4])
        together = Asking(COUNT, at_once=100).of(engine, case.prompts)
    for answers, prompts in ((alone, case.prompts[::4]), (together, case.prompts)):
        assert [answer.cached for answer in answers] == [*map(reusable, prompts)]
        assert case.unpaged.ties_of(prompts, answers) <= MOST_TIES


def test_after_eviction_answers_are_those_of_generate(case: Case) -> None:
    asking = Asking(COUNT, at_once=32, space=three_tenants)
    with running(case.model, case.settings(40)) as engine:
        answers = asking.of(engine, case.prompts)
        tenants = engine.stats().tenants.values()
    case.assert_equal(answers)
    assert sum(each.evictions for each in tenants) > 80
    assert 0 < sum(each.hits for each in tenants) < 100 * 60


def test_answers_on_blocks_that_came_back_from_host_and_disk_are_those_of_generate(
    case: Case,
) -> None:
    with running(case.model, case.settings(40, host=48, disk=600)) as engine:
        Asking(1, at_once=32).of(engine, case.prompts)
        answers = Asking(COUNT, at_once=4).of(engine, case.prompts)
        counters = engine.stats().tenants["one"]
        host, disk = engine.stats().tiers
    case.assert_equal(answers)
    assert [answer.cached for answer in answers] == [*map(reusable, case.prompts)]
    assert counters.offload_hits > 1000
    assert (host.used, disk.used > 50) == (48, True)
