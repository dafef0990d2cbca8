"""Labelling: which pairs are sampled, a session driven by keys, sheets, and a judge beside it."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from traffic_rows import answer, chain, row, write

from trivet.cli import main
from trivet.errors import ConfigError
from trivet.eval import chains
from trivet.eval.candidates import (
    Candidate,
    Gate,
    find_candidates,
    stratified,
    stratum_name,
    stratum_of,
)
from trivet.eval.judge import Agreement, EndpointJudge, agreement
from trivet.eval.label import Terminal, label
from trivet.eval.label_sheet import read_sheet, write_sheet
from trivet.eval.labels import LabelFile
from trivet.eval.memo import Memo
from trivet.eval.pair_files import load_pairs
from trivet.eval.remembered import remembered
from trivet.eval.side_by_side import Word, cells, differing, shown, wrapped
from trivet.policies.intents import Intent
from trivet.policies.traffic import Traffic
from trivet.semantic.chain import Chain


def pair(a: str = "how high", b: str = "how low", score: float | None = 0.9) -> Candidate:
    return Candidate("t1", a, b, "c" * 64, score, 0.9)


def candidates(*rows: Traffic, gate: Gate | None = None) -> list[tuple[str, str]]:
    memo = Memo(None, "")
    of, embedder = remembered(chain(), memo)
    found = [(one.a, one.b) for one in find_candidates(rows, of, embedder, gate)]
    memo.close()
    return found


class TestCandidates:
    def test_a_question_is_paired_with_the_nearest_earlier_one(self) -> None:
        rows = [row(0, "aab"), row(1, "bbc"), row(2, "ab"), row(3, "bc")]
        assert candidates(*rows) == [("aab", "bbc"), ("aab", "ab"), ("bbc", "bc")]

    def test_pairs_stay_within_tenant_and_partition(self) -> None:
        assert candidates(row(0, "ab"), row(1, "aab", "t2"), row(2, "aab", rest="x")) == []

    def test_equal_questions_and_pairs_that_came_before_are_no_pairs(self) -> None:
        rows = [row(0, "ab"), row(1, "AB ab"), row(2, "AB  ab "), row(3, "ab")]
        assert candidates(*rows) == [("ab", "AB ab")]

    def test_only_stored_answers_are_in_the_stead_of_others(self) -> None:
        failed = row(0, "ab", answer=answer(reason="status-500"))
        calling = row(1, "ba", answer=answer(None, plain=False))
        assert candidates(failed, calling, row(2, "aab"), row(3, None)) == []

    def test_what_the_gate_refuses_is_left_out(self) -> None:
        gate = Gate((Intent.INFORMATIONAL,))
        rows = [row(0, "dab"), row(1, "ab"), row(2, "dab d"), row(3, "aab")]
        assert candidates(*rows, gate=gate) == [("ab", "aab")]


class TestSample:
    def test_strata_take_turns_and_far_ones_give_a_quarter(self) -> None:
        scores = [0.3, 0.89, 0.91, 0.99]
        many = [pair(f"{at} {score}", "b", score) for score in scores for at in range(50)]
        chosen = stratified(many, 0.9, 20)
        counts = [sum(one.score == score for one in chosen) for score in scores]
        assert counts == [2, 8, 8, 2]

    def test_what_is_labelled_is_not_asked_again(self) -> None:
        many = [pair(str(at)) for at in range(9)]
        known = {one.id for one in many[:5]}
        assert {one.a for one in stratified(many, 0.9, 99, known)} == {"5", "6", "7", "8"}

    def test_far_ones_are_taken_where_nothing_else_is_left(self) -> None:
        assert len(stratified([pair(str(at), "b", 0.1) for at in range(9)], 0.9, 7)) == 7

    @given(
        st.lists(st.none() | st.floats(-1, 1), max_size=30), st.floats(-1, 1), st.integers(0, 40)
    )
    def test_it_gives_as_many_as_there_are_each_once_and_the_same_again(
        self, scores: list[float | None], near: float, count: int
    ) -> None:
        many = [pair(str(at), "b", score) for at, score in enumerate(scores)]
        chosen = stratified(many, near, count)
        assert len({one.id for one in chosen}) == len(chosen) == min(count, len(many))
        assert chosen == stratified(many[::-1], near, count)

    @pytest.mark.parametrize(
        ("score", "name"),
        [(None, "..-0.15"), (0.5, "..-0.15"), (0.89, "-0.02..+0.00"), (0.95, "+0.04..+0.08")],
    )
    def test_strata_are_named_by_their_edges(self, score: float | None, name: str) -> None:
        assert stratum_name(stratum_of(score, 0.9)) == name


class TestSideBySide:
    def test_words_that_differ_are_marked(self) -> None:
        a, b = differing("May I cancel it", "may I NOT cancel")
        assert [word.text for word in a if word.differs] == ["it"]
        assert [word.text for word in b if word.differs] == ["NOT"]

    @pytest.mark.parametrize("one", ["\x1b[2J", "\x07", "\u202e", "\x9b", "\r", "\x00", "\u2028"])
    def test_nothing_that_steers_a_terminal_gets_through(self, one: str) -> None:
        assert shown(f"a{one}b").isprintable()

    def test_wide_characters_take_two_columns_and_marks_none(self) -> None:
        assert (cells("ab"), cells("中文"), cells("e\u0301"), cells("🙂")) == (2, 4, 1, 2)

    @given(st.text(max_size=200), st.text(max_size=200), st.integers(4, 60))
    def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(
        self, a: str, b: str, width: int
    ) -> None:
        for words in differing(a, b):
            lines = list(wrapped(words, width, lambda word: f"[{word}]"))
            assert all(cells(line) <= width for line in lines)
            plain = "".join(word.text for word in words)
            bare = "".join(wrapped([Word(word.text, False) for word in words], width, str))
            assert bare.replace(" ", "") == plain.replace(" ", "")


def session(keys: str, pairs: Sequence[Candidate], path: Path) -> tuple[LabelFile, list[str]]:
    said: list[str] = []
    typed = iter(keys)
    labels = LabelFile(path)
    terminal = Terminal(lambda: next(typed, ""), said.append, 40, lambda word: f"[{word}]")
    label(pairs, labels, 0.9, terminal)
    return labels, said


class TestSession:
    pairs = (pair("one", "1"), pair("two", "2"), pair("three", "3"))

    def answers(self, path: Path) -> list[tuple[str, bool, bool]]:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [(one["a"], one["same"], "ambiguous" in one) for one in rows]

    def test_each_key_is_an_answer(self, tmp_path: Path) -> None:
        session("sD?", self.pairs, tmp_path / "p")
        assert self.answers(tmp_path / "p") == [
            ("one", True, False),
            ("two", False, False),
            ("three", False, True),
        ]

    def test_the_file_is_one_that_every_command_reads(self, tmp_path: Path) -> None:
        session("sd?", self.pairs, tmp_path / "p")
        file = load_pairs(tmp_path / "p")
        assert [(one.a, one.b, one.same) for one in file.pairs] == [
            ("one", "1", True),
            ("two", "2", False),
            ("three", "3", False),
        ]
        assert all(one.comparable for one in file.pairs)

    def test_back_takes_the_last_answer_out_of_the_file(self, tmp_path: Path) -> None:
        session("bsdbbds", self.pairs, tmp_path / "p")
        assert self.answers(tmp_path / "p") == [("one", False, False), ("two", True, False)]

    @pytest.mark.parametrize("end", ["q", "\x03", "\x04", ""])
    def test_it_ends_with_all_answers_kept(self, tmp_path: Path, end: str) -> None:
        session("s" + end, self.pairs, tmp_path / "p")
        assert self.answers(tmp_path / "p") == [("one", True, False)]

    def test_other_keys_are_told_what_there_is(self, tmp_path: Path) -> None:
        _, said = session("xs", self.pairs, tmp_path / "p")
        assert sum("b back" in line for line in said) == 3
        assert self.answers(tmp_path / "p") == [("one", True, False)]

    def test_earlier_answers_are_never_taken_back(self, tmp_path: Path) -> None:
        session("s", self.pairs[:1], tmp_path / "p")
        session("bb", self.pairs[1:], tmp_path / "p")
        assert self.answers(tmp_path / "p") == [("one", True, False)]

    def test_both_texts_are_shown_with_what_differs(self, tmp_path: Path) -> None:
        _, said = session("q", [pair("how high is it", "how low is\x1b it")], tmp_path / "p")
        assert "A   how [high] [is] it" in said
        assert "B   how [low] [is\\x1b] it" in said


class TestLabelFile:
    def test_a_last_line_without_its_end_is_not_run_into(self, tmp_path: Path) -> None:
        session("s", [pair("one", "1")], tmp_path / "p")
        (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-1])
        session("s", [pair("two", "2")], tmp_path / "p")
        assert len(load_pairs(tmp_path / "p").pairs) == 2

    def test_what_is_no_label_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "p").write_text('{"a": "x", "b": "y", "same": true}\n{"a": "x", "b": 1}\n')
        with pytest.raises(ConfigError, match=r"p:2:1: b: has to be a text"):
            LabelFile(tmp_path / "p")

    def test_a_pair_is_known_whichever_way_round(self, tmp_path: Path) -> None:
        labels, _ = session("s", [pair("one", "1")], tmp_path / "p")
        assert pair(" 1", "ONE").id in labels.labels

    def test_a_persons_label_stands_before_a_judges(self, tmp_path: Path) -> None:
        labels = LabelFile(tmp_path / "p")
        for by in ("person", "judge"):
            labels.add(pair(), "same" if by == "person" else "different", by, 0.9)
        for known in (labels, LabelFile(tmp_path / "p")):
            (one,) = known.labels.values()
            assert (one.by, one.same) == ("person", True)


class TestSheet:
    texts = (
        ("=1+1", "@sum"),
        ("'quoted'", "+3"),
        ('a "b", c;d', "line\nbreak"),
        ("\t tab", "مرحبا 🙂"),
        ("plain", "-"),
    )

    @pytest.mark.parametrize("name", ["sheet.csv", "sheet.jsonl"])
    def test_what_is_filled_in_comes_back(self, tmp_path: Path, name: str) -> None:
        pairs = [
            pair(a, b, score)
            for (a, b), score in zip(self.texts, [0.5, None, 0.5, 0.5, None], strict=True)
        ]
        path = tmp_path / name
        write_sheet(path, pairs)
        assert read_sheet(path) == []
        fill(path, ["s", "Different", "?", "", "yes"])
        filled = read_sheet(path)
        assert [one.answer for one in filled] == ["same", "different", "unsure", "same"]
        assert [one.pair for one in filled] == [pairs[at] for at in (0, 1, 2, 4)]

    def test_no_cell_begins_like_a_formula(self, tmp_path: Path) -> None:
        path = tmp_path / "s.csv"
        write_sheet(path, [pair(a, b) for a, b in self.texts])
        with path.open(newline="") as file:
            for one in csv.DictReader(file):
                assert one["a"][0] not in "=+-@\t\r"
                assert one["b"][0] not in "=+-@\t\r"

    def test_a_spreadsheet_may_save_it_with_semicolons(self, tmp_path: Path) -> None:
        path = tmp_path / "s.csv"
        write_sheet(path, [pair("a, b", "c; d")])
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=";")
            writer.writeheader()
            writer.writerow({**rows[0], "same": "s"})
        assert read_sheet(path)[0].pair == pair("a, b", "c; d")

    def test_every_row_that_is_wrong_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "s.jsonl"
        write_sheet(path, [pair("one"), pair("two")])
        fill(path, ["maybe", "s"])
        path.write_text(path.read_text().replace("two", "changed"))
        with pytest.raises(ConfigError) as caught:
            read_sheet(path)
        assert [(one.line, one.field) for one in caught.value.problems] == [(1, "same"), (2, "id")]

    def test_a_file_that_is_there_is_not_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "s.csv").write_text("mine")
        with pytest.raises(ConfigError, match="cannot be written"):
            write_sheet(tmp_path / "s.csv", [pair()])
        assert (tmp_path / "s.csv").read_text() == "mine"


def fill(path: Path, answers: list[str]) -> None:
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            for one, said in zip(rows, answers, strict=True):
                writer.writerow({**one, "same": said})
        return
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    text = [
        json.dumps({**one, "same": said}) + "\n" for one, said in zip(rows, answers, strict=True)
    ]
    path.write_text("".join(text))


class TestAgreement:
    def test_kappa_by_hand(self) -> None:
        # Cohen (1960): 20 and 15 agreed of 50, margins 25 and 30: (0.7 - 0.5) / 0.5.
        found = Agreement(both_same=20, both_different=15, only_person_same=5, only_judge_same=10)
        assert (found.pairs, found.agreement) == (50, 0.7)
        assert found.kappa == pytest.approx(0.4)

    def test_unsure_pairs_are_counted_apart(self) -> None:
        found = agreement([("same", "same"), ("unsure", "same"), ("different", "unsure")])
        assert found == Agreement(both_same=1, unsure=2)

    def test_it_is_not_defined_where_chance_explains_all(self) -> None:
        assert (Agreement().agreement, Agreement().kappa) == (None, None)
        assert (Agreement(both_same=9).agreement, Agreement(both_same=9).kappa) == (1.0, None)


class _Model(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[Any, str | None]]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((body, self.headers["authorization"]))
        said = json.loads(body["messages"][1]["content"])
        word = "Same." if said["first"][:1] == said["second"][:1] else "different"
        out = json.dumps({"choices": [{"message": {"content": word}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[str]:
    _Model.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"openai:http://127.0.0.1:{server.server_port}/v1#judge-1"
    server.shutdown()
    thread.join()
    server.server_close()


class TestJudge:
    def test_it_asks_the_model_with_its_own_key(self, model: str) -> None:
        judge = EndpointJudge(model, {"TRIVET_JUDGE_KEY": "k1", "OPENAI_API_KEY": "k2"})
        assert (judge.says("ab", "ac"), judge.says("ab", "b")) == ("same", "different")
        judge.close()
        body, key = _Model.asked[0]
        assert (body["model"], body["temperature"], key) == ("judge-1", 0, "Bearer k1")

    @pytest.mark.parametrize("name", ["gpt", "openai:http://x", "http://x#m", "openai:http://x#"])
    def test_another_name_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="openai:URL#MODEL"):
            EndpointJudge(name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Chain:
    of = chain()
    monkeypatch.setattr(chains, "open_eval_chain", lambda embedder, name, **how: of)
    return of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    texts = ["ab", "aab", "bbc", "bbcc", "cca", "ccab"]
    return write(tmp_path / "log", [row(9.0 * at, text) for at, text in enumerate(texts)])


def run(*arguments: object, keys: str = "") -> Result:
    return CliRunner().invoke(main, ["eval", "label", *map(str, arguments)], input=keys)


class TestCommand:
    def test_a_session_is_driven_by_keys(self, tmp_path: Path, log: Path, opened: Chain) -> None:
        out = tmp_path / "p.jsonl"
        result = run(log, "-o", out, "--count", 3, keys="sd?")
        assert result.exit_code == 0, result.output
        assert "3 labelled, 0 left" in result.output
        assert len(load_pairs(out).pairs) == 3
        result = run(log, "-o", out, keys="sq")
        assert "1 labelled, 1 left" in result.output

    def test_a_log_without_texts_is_told(self, tmp_path: Path) -> None:
        log = write(tmp_path / "log", [row(0, None)])
        result = run(log, "-o", tmp_path / "p")
        assert result.exit_code == 0
        assert "No question's text is recorded" in result.output

    def test_a_sheet_is_written_and_read_back_once(
        self, tmp_path: Path, log: Path, opened: Chain
    ) -> None:
        out, sheet = tmp_path / "p.jsonl", tmp_path / "s.csv"
        assert "5 pairs" in run(log, "-o", out, "--file", sheet).output
        fill(sheet, ["s", "d", "?", "", "s"])
        assert "4 labels read" in run(log, "-o", out, "--file", sheet).output
        assert "0 labels read" in run(log, "-o", out, "--file", sheet).output
        assert len(load_pairs(out).pairs) == 4

    def test_a_judge_is_compared_and_writes_nothing(
        self, tmp_path: Path, log: Path, opened: Chain, model: str
    ) -> None:
        out = tmp_path / "p.jsonl"
        result = run(log, "-o", out, "--judge", model, keys="sssss")
        assert result.exit_code == 0, result.output
        assert "on 5 pairs: agreement " in result.output
        assert "Cohen's kappa" in result.output
        assert {json.loads(line)["labelled_by"] for line in out.read_text().splitlines()} == {
            "person"
        }
        assert len(_Model.asked) == 5

    def test_a_judge_labels_only_where_it_is_told_to(
        self, tmp_path: Path, log: Path, opened: Chain, model: str
    ) -> None:
        out = tmp_path / "p.jsonl"
        assert run(log, "-o", out, "--judge-labels").exit_code == 2
        result = run(log, "-o", out, "--judge", model, "--judge-labels")
        assert "5 pairs labelled by openai:" in result.output
        assert {json.loads(line)["labelled_by"] for line in out.read_text().splitlines()} == {
            "judge"
        }


_SCRIPT = """
import sys
sys.path[:0] = {paths!r}
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from traffic_rows import chain
from trivet.eval import chains
from trivet.cli import main
chains.open_eval_chain = lambda embedder, name, **how: chain()
main(sys.argv[1:])
"""


def test_a_session_in_a_real_terminal(tmp_path: Path, log: Path) -> None:
    out = tmp_path / "p.jsonl"
    parent, child = pty.openpty()
    script = _SCRIPT.format(paths=[str(Path(__file__).parent)])
    arguments = ["eval", "label", str(log), "-o", str(out), "--count", "3"]
    running = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    said = b""
    # Three keys are typed ahead; an arrow key ends in a letter that is no answer.
    for shown_before, keys in ((1, b"sbd"), (4, b"\x1b[D"), (5, b"?"), (6, b"")):
        while said.count(b"q quit") < shown_before:
            said += os.read(parent, 4096)
        os.write(parent, keys)
    running.send_signal(signal.SIGINT)
    while b"left of this sample" not in said:
        said += os.read(parent, 4096)
    assert running.wait() == 0
    os.close(parent)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["same"], "ambiguous" in one) for one in rows] == [(False, False), (False, True)]
