"""The gate against the two lists of questions that we wrote to measure it, and never trained on."""

from __future__ import annotations

from functools import cache

import pytest

from training.gate_split import own_rows
from training.gate_texts import own_examples
from trivet.policies.intents import Intent
from trivet.semantic.embedders import open_embedder
from trivet.semantic.gate import load_gate
from trivet.semantic.gate_features import normalised

LISTS = (1, 2)


@cache
def share(number: int, label: Intent) -> float:
    """Share of a list's texts of one label that pass."""
    texts = [row["text"] for row in own_rows(number) if row["label"] == label]
    found = load_gate().classify(texts, open_embedder("default").embed(texts))
    passed = [one.admitted and one.intent is Intent.INFORMATIONAL for one in found]
    return sum(passed) / len(passed)


@pytest.mark.parametrize("number", LISTS)
def test_six_in_ten_plain_questions_pass(number: int) -> None:
    assert share(number, Intent.INFORMATIONAL) >= 0.6


@pytest.mark.parametrize("number", LISTS)
@pytest.mark.parametrize("label", [Intent.ACTION, Intent.PERSONAL, Intent.PERMISSION])
def test_no_command_and_no_question_about_the_asker_passes(number: int, label: Intent) -> None:
    assert share(number, label) == 0


@pytest.mark.parametrize("number", LISTS)
def test_of_what_the_clock_answers_at_most_three_in_a_hundred_pass(number: int) -> None:
    assert share(number, Intent.TIME) <= 0.03


def test_no_list_is_learnt_from() -> None:
    measured = {" ".join(normalised(row["text"])) for row in own_rows()}
    taught = {" ".join(normalised(one.text)) for one in own_examples(avoid=measured)}
    assert measured & taught == set()
