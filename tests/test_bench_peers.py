"""What stands beside Trivet in `bench.peers.semantic`: the stream, the counts, the process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.peers import peer as peer_module
from bench.peers import semantic
from bench.peers.peer import Peer, PeerError, Setting, line_of, python_of
from bench.peers.stream import (
    Counts,
    Question,
    Replay,
    answers_by_intent,
    answers_by_pair,
    as_traffic,
    count,
    in_pairs,
    most_hits,
    thinned,
    together,
)
from trivet.eval.pairs import LabelledPair
from trivet.policies.calibration import Chain as ChainName
from trivet.semantic.bag_of_words import BagOfWords
from trivet.semantic.chain import Chain
from trivet.semantic.types import TextPair, Verdict
from trivet.semantic.verifiers import open_chain

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

EXAMPLES = [
    LabelledPair("open hours", "when open", same=True),
    LabelledPair("when open", "opening times", same=True),
    LabelledPair("open hours", "open a file", same=False),
]


class Fussy:
    """Objects to every pair whose asked text has `not`."""

    name = "fussy"
    fingerprint = "00"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [Verdict(one.cosine, "negation" if "not" in one.asked else None) for one in pairs]


def traffic(*lines: tuple[str, str]) -> list[Question]:
    return as_traffic([text for text, _ in lines], dict(lines))


def test_texts_that_pairs_call_the_same_share_one_answer_through_others() -> None:
    answers = answers_by_pair(EXAMPLES)
    assert answers["open hours"] == answers["when open"] == answers["opening times"]
    assert answers["open a file"] != answers["open hours"]


def test_two_intents_in_a_group_are_those_of_the_two_texts() -> None:
    pairs = [
        LabelledPair("lost card", "card gone", same=True, group="lost"),
        LabelledPair("lost card", "new pin", same=False, group="lost|pin"),
    ]
    assert answers_by_intent(pairs) == {"lost card": "lost", "card gone": "lost", "new pin": "pin"}


def test_first_texts_are_stored_and_second_ones_asked_each_once() -> None:
    pairs = [*EXAMPLES, EXAMPLES[0]]
    found = in_pairs(pairs, answers_by_pair(pairs))
    assert [(one.text, one.asked) for one in found] == [
        ("open hours", False),
        ("when open", True),
        ("when open", False),
        ("opening times", True),
        ("open a file", True),
    ]


def test_hits_false_hits_and_what_could_be_answered_are_counted() -> None:
    questions = traffic(("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))
    first, second = questions[0].answer, questions[2].answer
    assert (first, second) == ("0", "1")
    found = count(questions, [None, "0", "0", None])
    assert found == Counts(asked=4, answerable=2, hits=1, false_hits=1)
    assert (found.among_hits, found.over_all) == (0.5, 0.25)


def test_a_text_that_was_only_asked_pair_by_pair_answers_nothing_later() -> None:
    questions = [
        Question("a", "0", asked=True, keep=False),
        Question("b", "0", asked=True, keep=False),
    ]
    assert count(questions, [None, None]).answerable == 0


def test_no_rate_is_made_of_nothing() -> None:
    assert (Counts(0, 0, 0, 0).among_hits, Counts(0, 0, 0, 0).over_all) == (0.0, 0.0)


def test_most_hits_are_those_at_no_more_false_among_hits() -> None:
    curve = [Counts(9, 9, 1, 0), Counts(9, 9, 3, 1), Counts(9, 9, 4, 4)]
    assert most_hits(curve, 0.25) == curve[1]
    assert most_hits(curve, 0.0) == curve[0]
    assert most_hits(curve[1:], 0.1).hits == 0


def test_a_chain_serves_the_nearest_stored_question_from_its_score_on() -> None:
    embedder = BagOfWords()
    pairs = [
        LabelledPair("open on sunday", "is it open on sunday", same=True),
        LabelledPair("price of tea", "is it not the price of tea", same=False),
    ]
    questions = in_pairs(pairs, answers_by_pair(pairs))
    vectors = embedder.embed([one.text for one in questions])
    bare = Replay(open_chain("cosine", embedder), questions, vectors).curve()
    assert [(one.hits, one.false_hits) for one in bare] == [(1, 0), (1, 1)]
    fussy = Replay(Chain("rules", embedder, Fussy()), questions, vectors).curve()
    assert [(one.hits, one.false_hits) for one in fussy] == [(1, 0)]


def test_traffic_that_is_served_is_not_stored() -> None:
    embedder = BagOfWords()
    questions = traffic(("tea price", "x"), ("tea price now", "x"), ("tea price now please", "y"))
    vectors = embedder.embed([one.text for one in questions])
    curve = Replay(open_chain("cosine", embedder), questions, vectors).curve()
    assert max(one.hits for one in curve) == 1
    assert curve[-1] == Counts(asked=3, answerable=1, hits=1, false_hits=1)


def test_thinned_scores_keep_the_first_and_the_last() -> None:
    scores = [1 - at / 1000 for at in range(1000)]
    found = thinned(scores, 20)
    assert (found[0], found[-1]) == (scores[0], scores[-1])
    assert len(found) <= 20
    assert found == sorted(found, reverse=True)
    assert thinned(scores[:5], 20) == scores[:5]


PARROT = """
import json, sys
for text in sys.stdin:
    line = json.loads(text)
    if line["do"] == "open":
        known = None
    elif line["do"] == "store":
        known = line["answer"]
    else:
        print(json.dumps({"served": known}), flush=True)
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peer_module, "HERE", tmp_path)
    return tmp_path


def test_a_peer_answers_line_by_line_and_its_results_are_kept(scripts: Path) -> None:
    (scripts / "run_parrot.py").write_text(PARROT)
    questions = in_pairs(EXAMPLES, answers_by_pair(EXAMPLES))
    vectors = np.zeros((len(questions), 3), dtype=np.float32)
    kept = scripts / "kept"
    with Peer("parrot", Path(sys.executable), kept) as peer:
        assert peer.play({"at": 0.8}, questions, vectors) == ["0", "0", "0"]
    (file,) = kept.glob("*.json")
    file.write_text('["9"]')
    with Peer("parrot", Path(sys.executable), kept) as peer:
        assert peer.play({"at": 0.8}, questions, vectors) == ["9"]
        assert peer.play({"at": 0.9}, questions, vectors) == ["0", "0", "0"]


def test_a_peer_that_ends_is_an_error_with_what_it_said(scripts: Path) -> None:
    (scripts / "run_mute.py").write_text("raise SystemExit('no such library')")
    questions = in_pairs(EXAMPLES, answers_by_pair(EXAMPLES))
    vectors = np.zeros((len(questions), 3), dtype=np.float32)
    with (
        Peer("mute", Path(sys.executable), scripts / "kept") as peer,
        pytest.raises(PeerError, match="no such library"),
    ):
        peer.play({}, questions, vectors)
    assert not list((scripts / "kept").glob("*.json"))


def test_a_line_carries_the_vector_as_float32() -> None:
    line = line_of(Question("t", "7", asked=True, keep=True), np.array([1.0], dtype=np.float32))
    assert line == {"do": "ask", "text": "t", "answer": "7", "keep": True, "vector": "AACAPw=="}


def test_a_peer_that_is_not_installed_has_no_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRIVET_PEERS_VENV", str(tmp_path))
    assert python_of("gptcache") is None


class Lucky(Peer):
    """Serves the first questions, as many as its seed says."""

    def play(
        self, setting: Setting, questions: Sequence[Question], vectors: Vectors
    ) -> list[str | None]:
        return [
            one.answer if at < setting["seed"] else None
            for at, one in enumerate(one for one in questions if one.asked)
        ]


def test_a_peer_is_played_once_for_each_seed_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(semantic.SEEDS, "lucky", (3, 0, 1))
    stream = semantic.Stream("some", traffic(("a", "x"), ("b", "x"), ("c", "x")))
    peer = Lucky("lucky", tmp_path, tmp_path)
    runs = semantic.played(peer, {"delta": 0.1}, stream, np.zeros((3, 2), dtype=np.float32))
    assert [one.hits for one in runs] == [3, 0, 1]
    assert together(runs) == Counts(asked=9, answerable=6, hits=4, false_hits=0)


def test_a_row_has_both_denominators_and_the_summary_names_who_has_more() -> None:
    chains: dict[ChainName, Counts] = {"cosine": Counts(8, 5, 3, 1), "rules": Counts(8, 5, 1, 0)}
    point = semantic.Point("vcache", {"delta": 0.1}, Counts(16, 10, 4, 4), chains, runs=2)
    assert semantic.line(point) == (
        "| vCache, delta 0.1 | 2 | 2 | 50.0 % | 25.0 % | 3 (1) | 1 (0) |"
    )
    assert list(semantic.summary([point, point])) == ["| vCache | 2 | 2 | 0 | 0 | 0 |"]
