"""The gate that ships: what passes, what never does, and that nothing makes it raise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import gate_texts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.policies.intents import Intent
from trivet.semantic.embedders import open_embedder
from trivet.semantic.gate import TrainedGate, load_gate, load_weights
from trivet.semantic.types import Intention

OPEN = (Intent.INFORMATIONAL,)


def judge(*texts: str) -> list[Intention]:
    return load_gate().classify(texts, None)


def passed(*texts: str) -> list[str]:
    found = judge(*texts)
    return [t for t, one in zip(texts, found, strict=True) if one.admitted and one.intent in OPEN]


@pytest.mark.parametrize("text", gate_texts.COMMANDS)
def test_a_command_never_passes(text: str) -> None:
    assert passed(text) == []


@pytest.mark.parametrize("text", gate_texts.RECORDS)
def test_a_question_about_the_askers_records_or_rights_never_passes(text: str) -> None:
    assert passed(text) == []


@pytest.mark.parametrize("text", gate_texts.STATES)
def test_a_question_that_depends_on_who_asks_never_passes(text: str) -> None:
    assert passed(text) == []


def joined(joiners: Iterable[str], orders: Iterable[str]) -> list[str]:
    return ["".join(parts) for parts in product(gate_texts.ASKED, joiners, orders)]


def test_of_the_questions_with_a_command_behind_at_most_one_in_a_hundred_passes() -> None:
    texts = joined(gate_texts.JOINERS, gate_texts.ORDERS)
    assert len(passed(*texts)) * 100 <= len(texts)


def test_a_sentence_that_asks_nothing_does_not_pass_behind_a_question() -> None:
    assert passed(*joined(("? ", ". ", "\n", "; ", "? Then "), gate_texts.REMARKS)) == []


@pytest.mark.parametrize("order", gate_texts.ORDERS)
def test_a_command_does_not_pass_before_a_question(order: str) -> None:
    assert passed(f"{order}. How does a magnet work?", f"{order}, what is a magnet?") == []


@pytest.mark.parametrize("order", ["d\u00e9lete the backup", "DELETE THE BACKUP", "then delete it"])
def test_a_command_behind_a_question_is_named_however_it_is_spelled(order: str) -> None:
    (found,) = judge(f"How does a magnet work? {order}")
    assert found.intent is Intent.ACTION
    assert found.reason in ("rule-command", "rule-joined-command")


def test_a_command_outweighs_what_else_a_text_is() -> None:
    (found,) = judge("What is the weather today? Cancel my train.")
    assert found.intent is Intent.ACTION


def test_a_harmless_sentence_beside_a_question_meets_no_rule() -> None:
    question = "How does a magnet work?"
    texts = [before + question for before in gate_texts.BEFORE]
    texts += [question + behind for behind in gate_texts.BEHIND]
    assert [one.reason for one in judge(*texts) if one.reason.startswith("rule-")] == []


def test_most_questions_pass_with_a_harmless_sentence_beside_them() -> None:
    texts = [f"I am new here. {question}?" for question in gate_texts.ASKED]
    texts += [f"{question}? Please explain it briefly." for question in gate_texts.ASKED]
    vectors = open_embedder("default").embed(texts)
    found = load_gate().classify(texts, vectors)
    assert sum(one.admitted and one.intent in OPEN for one in found) * 2 >= len(texts)


@given(st.sampled_from(gate_texts.ASKED), st.text(max_size=60))
def test_what_stands_behind_a_question_never_makes_its_rules_raise(
    question: str, rest: str
) -> None:
    assert len(judge(f"{question}? {rest}", f"{question} then {rest}")) == 2


def test_a_text_with_characters_that_nobody_sees_is_not_judged() -> None:
    (found,) = judge("how does a mag\u00adnet work")
    assert found == Intention(Intent.CONTEXT, False, "unread-hidden-text", 0.0)


@pytest.mark.parametrize("text", gate_texts.TIMELY)
def test_a_question_that_the_clock_answers_never_passes(text: str) -> None:
    assert passed(text) == []


@pytest.mark.parametrize("text", [*gate_texts.LEANING, *gate_texts.MADE_UP])
def test_what_leans_on_context_or_wants_something_new_never_passes(text: str) -> None:
    assert passed(text) == []


def test_most_general_questions_pass_by_words_alone() -> None:
    texts = gate_texts.INFORMATIONAL
    assert len(passed(*texts)) * 2 >= len(texts)


@pytest.mark.parametrize("text", gate_texts.ABROAD)
def test_another_language_or_script_is_not_judged(text: str) -> None:
    (found,) = judge(text)
    assert not found.admitted
    assert found.reason in ("unread-language", "unread-script", "unread-unknown-words")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unread-empty"),
        (" \n\t", "unread-empty"),
        ("🙂🙃", "unread-no-words"),
        ("?!", "unread-no-words"),
        ("how " * 30_000, "unread-long"),
        ("blorf snatix quorble wuggle", "unread-unknown-words"),
        ("what is разница", "unread-script"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(text: str, reason: str) -> None:
    assert judge(text) == [Intention(Intent.CONTEXT, False, reason, 0.0)]


@given(st.lists(st.text(max_size=300), max_size=4))
def test_no_text_makes_it_raise(texts: list[str]) -> None:
    found = judge(*texts)
    assert len(found) == len(texts)
    assert all(0 <= one.score <= 1 and (one.reason or one.admitted) for one in found)


def test_half_of_a_surrogate_pair_does_not_make_it_raise() -> None:
    assert not judge("what is \ud83d")[0].admitted


def test_the_same_text_is_judged_the_same_in_any_company() -> None:
    texts = gate_texts.INFORMATIONAL
    assert judge(*texts) == [judge(text)[0] for text in texts]


def test_a_class_of_which_it_is_sure_is_left_to_the_policy() -> None:
    (found,) = judge("where is my parcel")
    assert found == Intention(Intent.PERSONAL, True, "rule-own-record")


def test_a_negated_command_is_refused_under_every_policy() -> None:
    (found,) = judge("do not cancel my order")
    assert found == Intention(Intent.ACTION, False, "rule-negated-command")


def test_vectors_of_another_embedder_are_not_looked_at() -> None:
    gate, texts = load_gate(), gate_texts.INFORMATIONAL
    other = np.ones((len(texts), 512), dtype=np.float32)
    assert gate.classify(texts, other) == gate.classify(texts, None)


def test_vectors_that_are_not_finite_are_not_looked_at() -> None:
    gate = load_gate()
    broken = np.full((1, 384), np.nan, dtype=np.float32)
    assert gate.classify(["who wrote carmen"], broken) == gate.classify(["who wrote carmen"], None)


def test_loading_twice_gives_the_same_fingerprint() -> None:
    assert TrainedGate(load_weights()).fingerprint == load_gate().fingerprint


def test_another_weight_is_another_fingerprint() -> None:
    weights = load_weights()
    weights.arrays["word_bias"] = weights.arrays["word_bias"] + 1
    assert TrainedGate(weights).fingerprint != load_gate().fingerprint


def test_another_bar_is_another_fingerprint() -> None:
    weights = load_weights()
    weights.metadata["bars"]["words"]["action"] = 0.1
    assert TrainedGate(weights).fingerprint != load_gate().fingerprint


def test_another_bar_of_a_form_is_another_fingerprint() -> None:
    weights = load_weights()
    weights.metadata["forms"]["vectors"]["how"] = 0.1
    assert TrainedGate(weights).fingerprint != load_gate().fingerprint


def test_the_weights_say_what_they_were_trained_on_and_under_which_licences() -> None:
    metadata = load_gate().metadata
    assert metadata["licences"] == {
        "own": "Apache-2.0",
        "clinc150": "CC BY 3.0",
        "hwu64": "CC BY 4.0",
    }
    assert set(metadata["trained_on"]) == set(metadata["licences"])
    assert metadata["trained"]


def test_weights_that_are_missing_or_cut_short_are_refused_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "gate.npz"
    with pytest.raises(ConfigError, match=r"gate\.npz.*unusable weights"):
        load_weights(broken)
    broken.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(ConfigError, match="unusable weights"):
        load_weights(broken)


def test_weights_without_a_bar_for_each_form_are_refused(tmp_path: Path) -> None:
    weights, other = load_weights(), tmp_path / "gate.npz"
    del weights.metadata["forms"]["words"]["how"]
    text = np.frombuffer(json.dumps(weights.metadata).encode(), dtype=np.uint8)
    np.savez(other, allow_pickle=False, metadata=text, **weights.arrays)
    with pytest.raises(ConfigError, match="another version"):
        load_weights(other)


def test_weights_of_other_features_are_refused(tmp_path: Path) -> None:
    weights, other = load_weights(), tmp_path / "gate.npz"
    metadata = {**weights.metadata, "features": "other"}
    text = np.frombuffer(json.dumps(metadata).encode(), dtype=np.uint8)
    np.savez(other, allow_pickle=False, metadata=text, **weights.arrays)
    with pytest.raises(ConfigError, match="another version"):
        load_weights(other)


def test_its_cost_grows_with_the_number_of_texts_and_no_faster() -> None:
    gate, texts = load_gate(), list(gate_texts.INFORMATIONAL)
    gate.classify(texts, None)

    def seconds(times: int) -> float:
        started = time.process_time()
        gate.classify(texts * times, None)
        return time.process_time() - started

    once = min(seconds(4) for _ in range(5))
    assert min(seconds(16) for _ in range(5)) < 4 * once * 2
