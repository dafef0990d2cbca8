"""`trivet eval gate`: rows in, verdicts out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trivet.cli import main
from trivet.errors import ConfigError
from trivet.eval.gated import read_texts


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["eval", "gate", *map(str, arguments)])


def write(folder: Path, *rows: Any) -> Path:
    file = folder / "texts.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return file


def test_each_text_comes_back_with_intent_verdict_reason_and_score(tmp_path: Path) -> None:
    file = write(tmp_path, {"text": "cancel my order"}, {"text": ""})
    command, empty = json.loads(run(file, "--no-vectors", "--json").stdout)
    assert command == {
        "text": "cancel my order",
        "intent": "action",
        "admitted": False,
        "reason": "rule-command",
        "score": 1.0,
    }
    assert (empty["admitted"], empty["reason"]) == (False, "unread-empty")


def test_a_file_without_texts_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"texts\.jsonl: no row has a `text` that is a string$"):
        read_texts(write(tmp_path, *[{"question": "x"}] * 30))


def test_of_many_findings_five_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_texts(write(tmp_path, {"text": "x"}, *[{"question": "x"}] * 30))
    assert [one.line for one in raised.value.problems] == [2, 3, 4, 5, 6, 0]
    assert raised.value.problems[-1].message == "25 more findings like these"


def test_an_intent_that_a_policy_opens_is_admitted(tmp_path: Path) -> None:
    file = write(tmp_path, {"text": "cancel my order"})
    (told,) = json.loads(run(file, "--no-vectors", "--json", "--open", "action").stdout)
    assert told["admitted"] is True


def test_texts_and_labels_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = write(tmp_path, {"text": "a \x1b[2J b", "label": "\x9b2J\n"})
    output = run(file, "--no-vectors").output
    assert r"a \x1b[2J b" in output
    assert r"\x9b2J" in output
    assert not {"\x1b", "\x9b"} & set(output)


def test_labels_give_a_table_of_labels_against_intents(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"text": "cancel my order", "label": "action"},
        {"text": "is the payment api down", "label": "time"},
    )
    lines = run(file, "--no-vectors").stdout.splitlines()
    assert "0 of 2 texts pass." in lines
    action, time = (line.split() for line in lines[-2:])
    assert action == ["action", "1", "0", "0", "0", "0", "0", "0", "0", "0.0"]
    assert time == ["time", "0", "0", "1", "0", "0", "0", "0", "0", "0.0"]


def test_rows_without_labels_give_no_table(tmp_path: Path) -> None:
    told = run(write(tmp_path, {"text": "cancel my order"}), "--no-vectors").stdout
    assert told.rstrip().endswith("0 of 1 text passes.")


def test_half_of_a_surrogate_pair_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "what is \\ud83d"}', "utf-8")
    assert json.loads(run(file, "--json").stdout)[0]["admitted"] is False


def test_every_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": 1}\nnot json\n\n[]\n{"text": "a", "label": 2}\n', "utf-8")
    with pytest.raises(ConfigError) as raised:
        read_texts(file)
    assert [(problem.line, problem.field) for problem in raised.value.problems] == [
        (1, "text"),
        (2, ""),
        (4, ""),
        (5, "label"),
    ]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        read_texts(tmp_path / "none.jsonl")
