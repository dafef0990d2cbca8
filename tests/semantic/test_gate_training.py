"""How the gate's own training texts are made, and what is kept apart."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from training.gate import LEAST, form_bars
from training.gate_split import fold, is_held, sentences
from training.gate_texts import DATA, expand, own_examples
from trivet.policies.intents import Intent
from trivet.semantic.gate_features import normalised
from trivet.semantic.gate_forms import Form

SHARED = Path(__file__).parents[3] / "shared"
WORDS = {"pet": ["cat", "dog"]}


def test_a_template_chooses_among_its_alternatives() -> None:
    chance = random.Random(0)
    made = {expand("feed (the <pet>|(him|her))", WORDS, chance) for _ in range(100)}
    assert made == {"feed the cat", "feed the dog", "feed him", "feed her"}


def test_an_unbalanced_template_is_refused() -> None:
    with pytest.raises(ValueError, match="unbalanced"):
        expand("feed (the cat", WORDS, random.Random(0))
    with pytest.raises(ValueError, match="unbalanced"):
        expand("feed the cat) now", WORDS, random.Random(0))


def test_the_same_seed_gives_the_same_texts() -> None:
    assert own_examples(seed=3, per_template=1) == own_examples(seed=3, per_template=1)


def test_the_templates_teach_every_intent() -> None:
    assert {one.intent for one in own_examples(per_template=1)} == set(Intent)


def test_a_sentence_to_avoid_is_not_made() -> None:
    every = own_examples(per_template=2)
    avoid = {" ".join(normalised(every[0].text))}
    left = own_examples(per_template=2, avoid=avoid)
    assert all(" ".join(normalised(one.text)) not in avoid for one in left)
    assert len(left) < len(every)


def test_an_intent_is_held_out_as_a_whole() -> None:
    rows = [{"text": str(n), "intent": "balance", "source": "clinc150"} for n in range(20)]
    assert len({is_held(row) for row in rows}) == 1


def test_texts_without_intents_are_held_out_one_by_one() -> None:
    rows = [{"text": str(n), "intent": "yes", "source": "freshqa"} for n in range(50)]
    assert len({is_held(row) for row in rows}) == 2


def test_a_group_stays_in_one_fold() -> None:
    assert fold("own-7", 5) == fold("own-7", 5)
    assert {fold(str(n), 5) for n in range(100)} == set(range(5))


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the shared data are not here")
def test_no_template_is_a_sentence_of_the_shared_data() -> None:
    lines = (DATA / "gate_templates.jsonl").read_text("utf-8").splitlines()
    plain = [row["text"] for row in map(json.loads, lines) if not set(row["text"]) & set("(<")]
    assert {" ".join(normalised(text)) for text in plain} & sentences(SHARED) == set()


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_a_form_in_which_nothing_leaks_has_the_lowest_bar(part: float) -> None:
    info = np.tile(np.linspace(0.51, 0.99, 1000, dtype=np.float32), 2)
    intents = np.repeat([Intent.INFORMATIONAL, Intent.TIME], 1000)
    forms = np.array([Form.HOW, Form.STATE] * 500 + [Form.STATE] * 1000)
    bars = form_bars(info, intents, forms, LEAST, part)
    passing = (info >= bars[Form.STATE]) & (intents == Intent.TIME)
    assert bars[Form.HOW] == LEAST[Form.HOW]
    assert passing.sum() <= 15 * part


def test_a_bar_is_no_higher_than_what_may_pass_asks_for() -> None:
    info = np.linspace(0.51, 0.9, 1000, dtype=np.float32)
    intents = np.repeat([Intent.TIME, Intent.INFORMATIONAL], 500)
    bars = form_bars(info, intents, np.full(1000, str(Form.MAY)), LEAST)
    assert bars[Form.MAY] == LEAST[Form.MAY]
