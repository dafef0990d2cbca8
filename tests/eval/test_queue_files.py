"""The proxy's label queue: told apart from recorded traffic, read, and labelled."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from traffic_rows import row, write

from trivet.cli import main
from trivet.errors import ConfigError
from trivet.eval.pair_files import load_pairs
from trivet.eval.queue_files import queues_of, read_queues


def queued(
    at: int, a: str = "how high is it", b: str = "how tall is it", **more: Any
) -> dict[str, Any]:
    """As the proxy writes it: see tests/middleware/test_audits.py."""
    return {
        "tenant": "acme",
        "context": "c" * 64,
        "a": a,
        "b": b,
        "answer_a": "Four metres.",
        "answer_b": "It is 4 m.",
        "same": None,
        "judge": "person",
        "judged": None,
        "intent": "informational",
        "cosine": 0.97,
        "score": 0.96,
        "threshold": 0.8,
        "id": f"{at:032x}",
        "at": 1000.0 + at,
        **more,
    }


def queue(folder: Path, *rows: dict[str, Any], name: str = "acme.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def run(*arguments: object, keys: str = "") -> Result:
    return CliRunner().invoke(main, ["eval", "label", *map(str, arguments)], input=keys)


def three(folder: Path) -> Path:
    texts = [("one", "1"), ("two", "2"), ("three", "3")]
    return queue(folder, *(queued(at, *pair) for at, pair in enumerate(texts)))


class TestReading:
    def test_pairs_come_in_the_order_of_time_with_their_answers(self, tmp_path: Path) -> None:
        path = queue(tmp_path, queued(2, "later"), queued(1, "earlier"))
        found = read_queues([path]).pairs
        assert [one.a for one in found] == ["earlier", "later"]
        assert found[0].answers == ("Four metres.", "It is 4 m.")
        assert (found[0].tenant, found[0].context, found[0].score) == ("acme", "c" * 64, 0.96)

    def test_a_pair_that_was_drawn_again_is_there_once(self, tmp_path: Path) -> None:
        path = queue(tmp_path, queued(1), queued(2), queued(3, context="d" * 64))
        assert [one.context[0] for one in read_queues([path]).pairs] == ["c", "d"]

    def test_the_threshold_is_the_newest(self, tmp_path: Path) -> None:
        rows = [queued(9, "x", threshold=0.7), queued(1, threshold=0.8), queued(10, threshold=None)]
        assert read_queues([queue(tmp_path, *rows)]).threshold == 0.7

    def test_a_row_without_a_tenant_is_of_the_one_that_names_the_file(self, tmp_path: Path) -> None:
        rows = {name: value for name, value in queued(1).items() if name not in ("tenant", "id")}
        assert read_queues([queue(tmp_path, rows, name="beta.jsonl")]).pairs[0].tenant == "beta"

    def test_a_line_that_is_being_written_is_left_out(self, tmp_path: Path) -> None:
        path = three(tmp_path)
        path.write_bytes(path.read_bytes()[:-10])
        found = read_queues([path])
        assert [one.a for one in found.pairs] == ["one", "two"]
        assert "cut off" in found.notes[0]

    def test_of_many_findings_five_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            read_queues([queue(tmp_path, queued(1), *[{**queued(2), "a": 5}] * 30)])
        first, *_, last = caught.value.problems
        assert (first.line, first.field) == (2, "a")
        assert last.message == "25 more findings like these"

    def test_recorded_traffic_and_other_files_are_no_queue(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.write_text('\n{"a": "x", "b": "y"}\n')
        empty = tmp_path / "empty"
        empty.write_text("")
        log = write(tmp_path / "log", [row(0, "ab")])
        path = three(tmp_path)
        assert queues_of([log, path, other, empty]) == (path,)


class TestCommand:
    def test_a_session_shows_the_answers_and_makes_pairs(self, tmp_path: Path) -> None:
        out = tmp_path / "pairs.jsonl"
        result = run(three(tmp_path), "-o", out, keys="sd?")
        assert result.exit_code == 0, result.output
        assert "    -> Four metres.\n" in result.output
        assert "    -> It is 4 m.\n" in result.output
        assert "3 labelled, 0 left" in result.output
        pairs = load_pairs(out).pairs
        assert [(one.a, one.b, one.same) for one in pairs] == [
            ("one", "1", True),
            ("two", "2", False),
            ("three", "3", False),
        ]
        assert all(one.comparable for one in pairs)

    def test_what_is_labelled_is_not_asked_again(self, tmp_path: Path) -> None:
        out = tmp_path / "pairs.jsonl"
        assert "2 labelled" in run(three(tmp_path), "-o", out, "--count", 2, keys="ss").output
        assert "1 labelled, 0 left" in run(three(tmp_path), "-o", out, keys="s").output
        assert "No pair is left to label." in run(three(tmp_path), "-o", out).output

    def test_a_sheet_has_the_answers_and_is_read_back(self, tmp_path: Path) -> None:
        out, sheet = tmp_path / "pairs.jsonl", tmp_path / "sheet.csv"
        path = three(tmp_path)
        assert "3 pairs in" in run(path, "-o", out, "--file", sheet).output
        with sheet.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [one["answer_b"] for one in rows] == ["It is 4 m."] * 3
        with sheet.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            said = ["s", "", "d"]
            writer.writerows({**one, "same": word} for one, word in zip(rows, said, strict=True))
        assert "2 labels read" in run(path, "-o", out, "--file", sheet).output
        assert [one.same for one in load_pairs(out).pairs] == [True, False]

    def test_long_answers_are_cut_in_the_terminal_and_cannot_steer_it(self, tmp_path: Path) -> None:
        path = queue(tmp_path, queued(1, answer_a="\x1b[2J word " * 500, answer_b=" "))
        said = run(path, "-o", tmp_path / "p", keys="q").output
        assert "\x1b" not in said
        assert said.count("\\x1b[2J word") > 4
        assert said.count("\n    ...\n") == 1
        assert len(said.splitlines()) < 16

    def test_labels_are_placed_by_the_threshold_that_served_them(self, tmp_path: Path) -> None:
        out = tmp_path / "pairs.jsonl"
        run(queue(tmp_path, queued(1, score=0.81)), "-o", out, keys="s")
        assert json.loads(out.read_text())["stratum"] == "+0.00..+0.02"

    def test_traffic_beside_a_queue_is_a_wrong_usage(self, tmp_path: Path) -> None:
        log = write(tmp_path / "log", [row(0, "ab")])
        result = run(log, three(tmp_path), "-o", tmp_path / "p")
        assert result.exit_code == 2
        assert "not both at once" in result.stderr

    def test_the_queue_itself_is_no_file_of_pairs_and_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no pair in it is labelled"):
            load_pairs(three(tmp_path))
