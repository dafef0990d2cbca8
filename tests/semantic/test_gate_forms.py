"""The forms of questions, and which bar a text of several sentences has to reach."""

from __future__ import annotations

import pytest

from trivet.semantic.gate import TrainedGate, load_weights
from trivet.semantic.gate_clauses import asking
from trivet.semantic.gate_features import normalised
from trivet.semantic.gate_forms import Form, form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do I mend a kettle?", Form.HOW),
        ("How to mend a kettle", Form.HOW),
        ("Where can I leave a kettle?", Form.HOW),
        ("Is there a way to mend a kettle", Form.HOW),
        ("Can I boil milk in a kettle?", Form.MAY),
        ("Do you mend kettles?", Form.MAY),
        ("What happens if a kettle boils dry?", Form.MAY),
        ("Are kettles dishwasher safe?", Form.STATE),
        ("What is your policy on kettles?", Form.SERVICE),
        ("Which kettles do you mend?", Form.SERVICE),
        ("What is a samovar?", Form.TERM),
        ("What does samovar mean?", Form.TERM),
        ("How does a kettle work?", Form.TERM),
        ("Who invented the kettle?", Form.WORLD),
        ("When does the kettle museum open?", Form.WORLD),
        ("kettle repair costs", Form.OTHER),
        ("", Form.OTHER),
    ],
)
def test_a_question_has_the_form_of_its_first_words(text: str, expected: Form) -> None:
    assert form(normalised(text)) is expected


def test_what_leads_in_is_not_the_form() -> None:
    assert form(normalised("Can you tell me who invented the kettle")) is Form.WORLD
    assert form(normalised("I want to know how to mend a kettle")) is Form.HOW


def test_a_greeting_has_no_form_of_its_own() -> None:
    assert asking("Hello there! How do I mend a kettle?") == [normalised("How do I mend a kettle")]
    assert asking("Hello!") == [["hello"]]


def test_of_several_sentences_the_highest_bar_counts() -> None:
    weights = load_weights()
    bars = dict.fromkeys(Form, 0.0) | {Form.WORLD: 1.1}
    weights.metadata["forms"] = {"words": bars, "vectors": bars}
    texts = ["How does a magnet work?", "How does a magnet work? Who was Faraday?"]
    assert [one.admitted for one in TrainedGate(weights).classify(texts, None)] == [True, False]
