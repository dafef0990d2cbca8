"""`trivet eval calibrate`, `score`, `compare`: files, exit codes, and what a person reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chain_parts import Angles, Telling, WordGate, pairs
from click.testing import CliRunner, Result

from trivet.cli import main
from trivet.eval import chains
from trivet.eval.pairs import LabelledPair
from trivet.policies.calibration import load_calibration
from trivet.semantic.chain import Chain

GOOD = pairs(300, True) + pairs(100, False, "far", 160.0)[50:]
OPENED = {"default": Angles, "other": lambda: Angles("e2")}


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(embedder: Any, chain: Any, *_: object) -> Chain:
        return Chain(chain, embedder, None if chain == "cosine" else Telling())

    monkeypatch.setattr(chains, "_open_gate", WordGate)
    monkeypatch.setattr(chains, "_open_embedder", lambda name: OPENED[name]())
    monkeypatch.setattr(chains, "_over", over)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


def written(path: Path, some: Sequence[LabelledPair] = GOOD) -> Path:
    rows = ({"a": one.a, "b": one.b, "same": one.same, "slice": one.slice} for one in some)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def calibrated(folder: Path, *flags: object, name: str = "cal.json") -> Path:
    file = written(folder / "pairs.jsonl")
    out = folder / name
    assert run("calibrate", file, "--target-false-hits", 0.02, "-o", out, *flags).exit_code == 0
    return out


class TestCalibrate:
    def test_the_artefact_can_be_loaded_and_names_what_was_measured(self, tmp_path: Path) -> None:
        found = load_calibration(calibrated(tmp_path, "--chain", "verifier"))
        assert found.threshold is not None
        assert found.fingerprint.model_dump() == {
            "chain": "verifier",
            "embedder": "e1",
            "verifier": "v1",
            "gate": "g1",
        }
        assert (found.target, found.confidence, found.embedder) == (0.02, 0.95, "default")

    def test_it_fits_80_columns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file, out = written(tmp_path / "p.jsonl"), "c.json"
        monkeypatch.chdir(tmp_path)
        told = run(
            *("calibrate", file, "--target-false-hits", 0.02, "-o", out, "--holdout", 0.1),
            *("--hit-rate", 0.3, "--call-cost", 0.01, "--false-hit-cost", 0.1),
        ).output
        assert max(map(len, told.splitlines())) <= 80
        for part in ("certified: from a score of", "by slice", "held out"):
            assert part in told
        assert "worth it: per request it saves" in told

    def test_too_few_pairs_are_told_and_the_file_serves_nothing(self, tmp_path: Path) -> None:
        file, out = written(tmp_path / "p.jsonl", pairs(50, True)), tmp_path / "c.json"
        result = run("calibrate", file, "--target-false-hits", 0.02, "-o", out)
        assert result.exit_code == 1
        assert result.output.startswith("cannot be certified: 99 more pairs needed\n")
        found = load_calibration(out)
        assert (found.threshold, found.needed) == (None, 99)

    def test_what_becomes_of_texts_in_another_script_is_told(self, tmp_path: Path) -> None:
        output = tmp_path / "cal.json"
        flags = ("--target-false-hits", "0.02", "-o", output, "--chain", "cosine")
        few = run("calibrate", written(tmp_path / "few.jsonl", GOOD[:5]), *flags).output
        assert "writing systems: none is in 20 pairs or more" in few
        assert "(script-unseen)" in few
        many = run("calibrate", written(tmp_path / "many.jsonl"), *flags).output
        assert "writing systems: latin; a text in another is a miss (script-unseen)" in many

    def test_pairs_that_more_of_will_not_help_are_told_as_that_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        bad = [replace(one, same=at % 2 == 0) for at, one in enumerate(pairs(40, True))]
        file, out = written(tmp_path / "p.jsonl", bad), tmp_path / "c.json"
        result = run("calibrate", file, "--target-false-hits", 0.02, "-o", out)
        assert result.exit_code == 1
        told = result.output
        assert told.startswith("cannot be certified: too many false hits\n")
        assert "more pairs like these will hardly help: look at the labels" in told
        for contradiction in ("needed", "it takes", "certify", "held out"):
            assert contradiction not in told

    def test_what_was_tested_and_what_comes_nearest_are_told_apart(self, tmp_path: Path) -> None:
        file, out = written(tmp_path / "p.jsonl", pairs(50, True)), tmp_path / "c.json"
        told = run("calibrate", file, "--target-false-hits", 0.02, "-o", out).output
        assert "nearest: chain cosine over embedder" in told
        assert "50 pairs looked at" in told
        assert "only verifier was tested. It missed the target; cosine" in " ".join(told.split())

    def test_json_has_the_artefact_and_how_it_came_about(self, tmp_path: Path) -> None:
        file, out = written(tmp_path / "p.jsonl", pairs(50, True)), tmp_path / "c.json"
        result = run("calibrate", file, "--target-false-hits", 0.02, "-o", out, "--json")
        told = json.loads(result.stdout)
        assert (told["certified"], told["threshold"], told["needed_pairs"]) == (False, None, 99)
        assert told["message"] == "cannot be certified: 99 more pairs needed"

    def test_the_gate_filters_where_it_is_asked_to(self, tmp_path: Path) -> None:
        gated = load_calibration(calibrated(tmp_path, "--gate", "--intents", "informational,time"))
        assert gated.gated == ("informational", "time")
        assert "gate" in gated.slices

    def test_what_the_gate_drops_is_told(self, tmp_path: Path) -> None:
        some = [*GOOD, *pairs(30, True, "do"), *pairs(20, True, "when")]
        file, out = written(tmp_path / "p.jsonl", some), tmp_path / "c.json"
        usual = ("calibrate", file, "--target-false-hits", 0.02, "-o", out)
        told = run(*usual, "--gate").output
        wanted = "the gate drops 50 of 400 pairs (12%; action 30, time 20), and lets 700 of 800"
        assert wanted in told
        assert "--gate shows it" not in told
        assert json.loads(run(*usual, "--gate", "--json").stdout)["gate_drops"] == {
            "pairs": 400,
            "dropped": 50,
            "texts": 800,
            "texts_passed": 700,
            "reasons": {"action": 30, "time": 20},
        }

    def test_without_the_gate_it_says_that_the_proxys_is_not_in_the_counts(
        self, tmp_path: Path
    ) -> None:
        file, out = written(tmp_path / "p.jsonl"), tmp_path / "c.json"
        usual = ("calibrate", file, "--target-false-hits", 0.02, "-o", out)
        assert "the proxy's gate refuses is not left out" in run(*usual).output
        assert json.loads(run(*usual, "--json").stdout)["gate_drops"] is None

    def test_one_of_a_kind_is_told_in_the_singular(self, tmp_path: Path) -> None:
        some = [*pairs(20, True), LabelledPair("0:x", "0:y", False)]
        file, out = written(tmp_path / "p.jsonl", some), tmp_path / "c.json"
        told = run("calibrate", file, "--target-false-hits", 0.02, "-o", out).output
        assert "a threshold with 1 false hit among " in told

    @pytest.mark.parametrize(
        "flags",
        [
            ("--target-false-hits", "0"),
            ("--target-false-hits", "nan"),
            ("--confidence", "1"),
            ("--hit-rate", "2"),
            ("--call-cost", "inf", "--false-hit-cost", "1"),
            ("--hit-rate", "many"),
            ("--call-cost", "0.1"),
            ("--false-hit-cost", "0.1"),
            ("--call-cost", "0", "--false-hit-cost", "1"),
            ("--gate", "--intents", "gossip"),
            ("--holdout", "1"),
        ],
    )
    def test_wrong_flags_are_a_wrong_usage(self, tmp_path: Path, flags: tuple[str, ...]) -> None:
        file = written(tmp_path / "p.jsonl")
        usual = ("--target-false-hits", "0.02", "-o", tmp_path / "c.json")
        result = run("calibrate", file, *usual, *flags)
        assert result.exit_code == 2
        assert not (tmp_path / "c.json").exists()

    def test_a_folder_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        file = written(tmp_path / "p.jsonl")
        out = tmp_path / "no" / "c.json"
        result = run("calibrate", file, "--target-false-hits", 0.02, "-o", out)
        assert result.exit_code == 2
        assert f"{out}: cannot be written" in result.stderr


class TestScore:
    def test_each_pair_has_its_score_its_fate_and_the_reason(self, tmp_path: Path) -> None:
        cal = calibrated(tmp_path, "--chain", "cosine")
        some = [LabelledPair("0:x", "1:y", True, "s"), LabelledPair("0:x", "80:y", False, "s")]
        file = written(tmp_path / "other.jsonl", some)
        told = json.loads(run("score", file, "--calibration", cal, "--json").stdout)
        assert [(row["served"], row["reason"]) for row in told["rows"]] == [
            (True, ""),
            (False, "below-threshold"),
        ]
        assert told["rows"][0]["score"] == pytest.approx(0.9998, abs=1e-4)
        assert told["totals"]["coverage"] == 1.0
        assert told["slices"]["s"]["hits"] == 1

    def test_false_hits_are_named(self, tmp_path: Path) -> None:
        cal = calibrated(tmp_path, "--chain", "cosine")
        file = written(tmp_path / "o.jsonl", [LabelledPair("0:x", "1:\x1b y", False, "s")])
        told = run("score", file, "--calibration", cal).output
        assert "served wrongly:\n0.9998  '0:x'  ->  '1:" in told
        assert "\x1b" not in told

    def test_another_model_is_refused_by_name(self, tmp_path: Path) -> None:
        cal = calibrated(tmp_path)
        result = run("score", tmp_path / "pairs.jsonl", "--calibration", cal, "--embedder", "other")
        assert result.exit_code == 2
        assert f"{cal}: fingerprint: was made with another embedder" in result.stderr

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"", "calibration: Invalid JSON"),
            (b"\xff\xfe", "calibration: Invalid JSON"),
            (b"[]", "calibration: "),
            (b'{"format": 2}', "format: "),
        ],
    )
    def test_a_corrupt_artefact_is_refused_by_name(
        self, tmp_path: Path, content: bytes, told: str
    ) -> None:
        cal = tmp_path / "cal.json"
        cal.write_bytes(content)
        result = run("score", written(tmp_path / "p.jsonl"), "--calibration", cal)
        assert result.exit_code == 2
        assert f"error: {cal}: {told}" in result.stderr

    def test_the_gate_can_be_put_before_a_calibration_without_one(self, tmp_path: Path) -> None:
        cal = calibrated(tmp_path)
        file = written(tmp_path / "o.jsonl", [LabelledPair("0:do", "0:do", True)])
        reasons = [
            json.loads(run("score", file, "--calibration", cal, "--json", *flags).stdout)["rows"][0]
            for flags in ((), ("--gate",), ("--gate", "--intents", "action"))
        ]
        assert [row["reason"] for row in reasons] == ["", "intent-action", ""]


class TestCompare:
    def test_a_calibration_against_itself_is_not_worse(self, tmp_path: Path) -> None:
        cal = calibrated(tmp_path)
        result = run("compare", cal, cal, "--pairs", tmp_path / "pairs.jsonl")
        assert result.exit_code == 0
        assert "No pair changes sides." in result.output
        assert result.output.endswith("not worse\n")

    def test_a_new_model_is_calibrated_on_pairs_and_compared(self, tmp_path: Path) -> None:
        old = calibrated(tmp_path, "--chain", "cosine")
        result = run("compare", old, tmp_path / "pairs.jsonl", "--embedder", "other")
        assert result.exit_code == 0
        assert "the old threshold means nothing to the new one" in result.output
        assert "Kept, it would serve" in result.output

    def test_a_model_that_was_replaced_under_its_name_is_compared_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = calibrated(tmp_path, "--chain", "cosine")
        monkeypatch.setitem(OPENED, "default", lambda: Angles("e3"))
        result = run("compare", old, tmp_path / "pairs.jsonl")
        assert result.exit_code == 0
        assert "The old chain is there no more" in result.output
        assert "Kept, it would serve" in result.output

    def test_worse_is_exit_code_1_and_says_in_what(self, tmp_path: Path) -> None:
        old = calibrated(tmp_path)
        few = written(tmp_path / "few.jsonl", pairs(30, True))
        result = run("compare", old, few)
        assert result.exit_code == 1
        assert "nothing is certified any more" in result.output

    def test_json_says_whether_thresholds_carry_over(self, tmp_path: Path) -> None:
        old = calibrated(tmp_path)
        new = calibrated(tmp_path, "--embedder", "other", name="new.json")
        told = json.loads(run("compare", old, new, "--json").stdout)
        assert (told["thresholds_carry_over"], told["same_chain"]) == (False, False)
        assert told["worse"] == []

    def test_it_fits_80_columns_but_for_the_questions(self, tmp_path: Path) -> None:
        old = calibrated(tmp_path)
        new = calibrated(tmp_path, "--embedder", "other", name="new.json")
        told = run("compare", old, new).output
        assert max(map(len, told.splitlines())) <= 80


def test_slices_texts_and_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    bad = "\x1b]0;s\x07"
    some = [replace(one, slice=f"s{bad}") for one in GOOD]
    file = written(tmp_path / "bad.jsonl", some)
    out = tmp_path / "cal.json"
    made = run("calibrate", file, "--target-false-hits", 0.02, "-o", out)
    artefact = json.loads(out.read_bytes())
    (tmp_path / "b.json").write_text(json.dumps({**artefact, "embedder": bad}))
    wrong = written(tmp_path / "wrong.jsonl", [*some, *pairs(2, False, f"q {bad}", 1.0)])
    scored = run("score", "--calibration", out, wrong)
    compared = run("compare", out, tmp_path / "b.json")
    for told in (made, scored, compared):
        assert r"\x1b]0;s" in told.output
        assert not {"\x1b", "\x07"} & set(told.output)
