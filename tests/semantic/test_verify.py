from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from training.exported import exported
from trivet.semantic import verify
from trivet.semantic.features import analyse, features
from trivet.semantic.trees import Trees
from trivet.semantic.types import TextPair
from trivet.semantic.verify import BAND, WEIGHTS, RuleVerifier, TrainedVerifier
from trivet.semantic.verify_align import distance
from trivet.semantic.verify_lexicon import lexicon

VERIFIER = TrainedVerifier()
ODD = ("", " ", "?", "😀😀", "مرحبا كيف حالك", "שלום עולם", "日本語のテキスト",
       "a" * 100_000, "\x00\ud800",
       "12:99", "3rd 3,,4 ½ ²", "no " * 30_000, "'s n't 're", "don't" * 500)  # fmt: skip


def score(a: str, b: str, cosine: float) -> float:
    verdict = VERIFIER.verify([TextPair(a, b, cosine)])[0]
    return 0.0 if verdict.veto else verdict.score


def test_a_rewording_scores_high_and_another_act_on_the_same_thing_low() -> None:
    asked = "How can I oil a squeaky hinge?"
    assert score("How do I oil a squeaky hinge?", asked, 0.98) > 0.8
    assert score("How do I remove a squeaky hinge?", asked, 0.8) < 0.5


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Does the ferry run in winter?", "Does the ferry not run in winter?"),
        ("Does the ferry run to Malmo?", "Does the ferry run to Aarhus?"),
        ("Does the ferry take 40 cars?", "Does the ferry take 60 cars?"),
        ("Does the ferry sell coffee?", "Does the ferry sell coffee to children after midnight?"),
        ("Cancel my ferry ticket", "Can I cancel my ferry ticket?"),
        ("Is there a ferry from Malmo to Aarhus?", "Is there a ferry from Aarhus to Malmo?"),
    ],
)
def test_traps_score_low(a: str, b: str) -> None:
    assert score(a, b, 0.88) < 0.6


def test_two_equal_texts_score_near_one() -> None:
    assert score("Where can I rent skis?", "Where can I rent skis?", 1.0) > 0.95


def test_scores_are_the_same_each_time_and_in_any_batch() -> None:
    pairs = [TextPair("rent skis", "hire skis", 0.9), TextPair("rent skis", "sell skis", 0.9)]
    together = VERIFIER.verify(pairs)
    assert together == [VERIFIER.verify([pair])[0] for pair in pairs]
    assert together == TrainedVerifier().verify(pairs)


@given(st.text(max_size=60), st.text(max_size=60), st.floats(-1, 1))
@settings(max_examples=60, deadline=None)
def test_the_order_of_two_texts_changes_no_veto_and_any_text_has_a_score(
    a: str, b: str, cosine: float
) -> None:
    one, other = VERIFIER.verify([TextPair(a, b, cosine), TextPair(b, a, cosine)])
    assert 0 <= one.score <= 1
    assert 0 <= other.score <= 1
    assert one.veto == other.veto


@pytest.mark.parametrize("a", ODD)
def test_odd_texts_raise_nothing_and_take_bounded_time(a: str) -> None:
    pairs = [TextPair(a, b, 0.5) for b in ODD]
    started = time.perf_counter()
    for verifier in (VERIFIER, RuleVerifier()):
        for verdict in verifier.verify(pairs):
            assert np.isfinite(verdict.score)
    assert time.perf_counter() - started < 10


def test_long_texts_that_differ_beyond_the_cut_are_vetoed() -> None:
    start = "the contract says that " * 100
    same, other = VERIFIER.verify(
        [TextPair(start + "yes", start + "yes", 1.0), TextPair(start + "yes", start + "no", 0.99)]
    )
    assert same.veto is None
    assert other.veto == "length"


def test_no_pairs_have_no_verdicts() -> None:
    assert VERIFIER.verify([]) == []


def test_the_fingerprint_covers_weights_and_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TrainedVerifier().fingerprint == VERIFIER.fingerprint
    assert VERIFIER.fingerprint != RuleVerifier().fingerprint
    with np.load(WEIGHTS) as arrays:
        changed = dict(arrays)
    changed["scaling"] = changed["scaling"] + 1
    np.savez(tmp_path / "other.npz", **changed)
    assert TrainedVerifier(tmp_path / "other.npz").fingerprint != VERIFIER.fingerprint
    before = RuleVerifier().fingerprint
    for name in verify._RULE_FILES:
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((verify.HERE / name).read_bytes())
    monkeypatch.setattr(verify, "HERE", tmp_path)
    assert RuleVerifier().fingerprint == before
    (tmp_path / "english.py").write_text("STOP = 1")
    assert RuleVerifier().fingerprint != before


def test_trees_follow_their_thresholds() -> None:
    """One tree: leaf 0 where feature 1 is at most 0.5, else leaf 1 or 2 by feature 0."""
    trees = Trees(
        feature=np.array([[1], [0]], np.intp),
        threshold=np.array([[0.5], [9]], np.float32),
        mask=np.array([[0xFFFE], [0xFFFD]], np.uint16),
        value=np.array([[-1, 2, 3]], np.float32),
        baseline=0.25,
    )
    rows = np.array([[9, 0.5], [9, 0.6], [10, 0.6], [10, 0.4]], np.float32)
    assert trees.margin(rows).tolist() == [-0.75, 2.25, 3.25, -0.75]
    assert trees.margin(np.tile(rows, (40, 1))).tolist() == [-0.75, 2.25, 3.25, -0.75] * 40
    assert trees.margin(rows[:0]).shape == (0,)


def test_exported_trees_give_the_mean_of_the_models_they_are_from() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 6)).astype(np.float32)
    same = rows[:, 0] * rows[:, 1] > rows[:, 2]
    models = [
        HistGradientBoostingClassifier(max_iter=12, max_leaf_nodes=leaves, random_state=0).fit(
            rows, same
        )
        for leaves in (16, 5)
    ]
    expected = np.mean([model.decision_function(rows) for model in models], axis=0)
    assert np.abs(exported(models).margin(rows) - expected).max() < 0.01


def test_trees_come_back_from_their_arrays() -> None:
    with np.load(WEIGHTS) as arrays:
        trees = Trees.from_arrays(arrays)
    row = features(analyse(TextPair("rent skis", "hire skis", 0.9)))
    again = Trees.from_arrays({key: np.asarray(x) for key, x in trees.arrays().items()})
    assert again.margin(row[None]) == trees.margin(row[None])
    assert trees.feature.max() < len(row)


def test_the_weights_are_small() -> None:
    assert WEIGHTS.stat().st_size < 300_000


def test_scores_come_in_bands() -> None:
    pairs = [TextPair("rent skis", "hire skis", cosine / 100) for cosine in range(70, 100)]
    odds = [np.log(v.score / (1 - v.score)) / BAND for v in VERIFIER.verify(pairs)]
    assert np.abs(np.array(odds) - np.round(odds)).max() < 1e-6
    assert sorted(odds) == odds


@given(st.text(max_size=12), st.text(max_size=12))
@settings(max_examples=80, deadline=None)
def test_the_edit_distance_is_symmetric_and_zero_only_for_equals(a: str, b: str) -> None:
    assert distance(a, b, 12) == distance(b, a, 12)
    assert (distance(a, b, 12) == 0) == (a == b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [("ferry", "frery", 1), ("ferry", "fery", 1), ("ferry", "berry", 1), ("ferry", "boat", 3)],
)
def test_a_swap_of_neighbours_is_one_edit(a: str, b: str, expected: int) -> None:
    assert distance(a, b, 2) == expected


def test_the_lexicon_knows_forms_synonyms_opposites_and_kinds() -> None:
    known = lexicon()
    assert known.base("ferries") == "ferry"
    assert known.synonyms("buy", "purchase") == 3
    assert known.opposites("happy", "unhappy") == 2
    assert known.opposites("breathless", "breathe") == 2
    assert known.related("rabbit", "hamster") in (0, 1)
    assert known.cosine("car", "automobile") > known.cosine("car", "poem")
    assert known.rarity("the") < known.rarity("ferry") < known.rarity("qwxyz") == 1
