"""A cross-encoder by name: every command that scores takes one, and says when it needs one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from chain_parts import Angles, Telling, WordGate, pairs
from click.testing import CliRunner, Result
from tiny_cross_encoder import make_tiny_cross_encoder
from traffic_rows import row, write

from trivet.cli import main
from trivet.eval.calibrate import Wanted, auto, calibrate
from trivet.eval.calibration_runs import calibrated
from trivet.eval.pair_files import PairFile
from trivet.eval.pairs import LabelledPair
from trivet.policies.calibration import Calibration, load_calibration
from trivet.semantic.chain import Chain
from trivet.semantic.types import TextPair, Verdict

pytestmark = pytest.mark.filterwarnings("ignore")
CROSS = ("--chain", "cross-encoder")
WORDS = ("--embedder", "bag-of-words")
TARGET = ("--target-false-hits", "0.02")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


def written(path: Path, some: Sequence[LabelledPair]) -> Path:
    rows = ({"a": one.a, "b": one.b, "same": one.same} for one in some)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_cross_encoder(tmp_path_factory.mktemp("cross"))


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    some = [LabelledPair(f"how do I open gate {at}", f"open gate {at}", True) for at in range(40)]
    return written(tmp_path / "pairs.jsonl", some)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log", [row(0, "open gate"), row(9, "open the gate")])


@pytest.fixture
def cal(tmp_path: Path, asked: Path, model: Path) -> Path:
    out = tmp_path / "cal.json"
    run("calibrate", asked, *TARGET, "-o", out, *CROSS, *WORDS, "--cross-encoder", model)
    return out


def nameless(cal: Path) -> Path:
    found = json.loads(cal.read_text())
    cal.write_text(json.dumps({**found, "cross_encoder": None}))
    return cal


@pytest.mark.parametrize("command", ["sweep", "calibrate", "compare", "label", "replay"])
def test_the_chain_without_a_name_is_a_wrong_usage_that_names_the_option(
    tmp_path: Path, asked: Path, log: Path, cal: Path, command: str
) -> None:
    out = tmp_path / "out"
    arguments: dict[str, tuple[object, ...]] = {
        "sweep": (asked,),
        "calibrate": (asked, *TARGET, "-o", out),
        "compare": (cal, asked),
        "label": (log, "-o", out),
        "replay": (log,),
    }
    result = run(command, *arguments[command], *CROSS, *WORDS)
    assert result.exit_code == 2
    assert "The chain cross-encoder needs --cross-encoder NAME." in result.output
    assert not out.exists()


@pytest.mark.parametrize("command", ["sweep", "calibrate", "label", "replay"])
def test_a_name_that_no_chain_would_ask_is_a_wrong_usage(
    tmp_path: Path, asked: Path, log: Path, command: str
) -> None:
    out = tmp_path / "out"
    arguments: dict[str, tuple[object, ...]] = {
        "sweep": (asked,),
        "calibrate": (asked, *TARGET, "-o", out),
        "label": (log, "-o", out),
        "replay": (log,),
    }
    result = run(command, *arguments[command], "--chain", "rules", "--cross-encoder", "x", *WORDS)
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "--cross-encoder goes with --chain cross-encoder; the chain here is rules." in told
    assert not out.exists()


@pytest.mark.parametrize("command", ["score", "label", "replay", "compare"])
def test_so_is_a_calibration_of_it_that_names_none(
    tmp_path: Path, asked: Path, log: Path, cal: Path, model: Path, command: str
) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "score": (asked, "--calibration", nameless(cal)),
        "label": (log, "-o", tmp_path / "out", "--file", tmp_path / "s.csv", "--calibration", cal),
        "replay": (log, "--calibration", cal),
        "compare": (cal, cal, "--pairs", asked),
    }
    result = run(command, *arguments[command])
    assert (result.exit_code, "--cross-encoder NAME" in result.output) == (2, True)
    named = ("--cross-encoder", model)
    words = WORDS if command in ("label", "replay") else ()
    result = run(command, *arguments[command], *named, *words)
    assert result.exit_code == 0, result.output


def test_a_sweep_scores_by_the_model_that_is_named(asked: Path, model: Path) -> None:
    result = run("sweep", asked, *CROSS, *WORDS, "--cross-encoder", model, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["chain"], found["pairs"]) == ("cross-encoder", 40)


def test_a_calibration_keeps_the_name_and_is_scored_by_it(asked: Path, cal: Path) -> None:
    found = load_calibration(cal)
    assert found.fingerprint.chain == "cross-encoder"
    assert found.cross_encoder is not None
    result = run("score", asked, "--calibration", cal, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["rows"]) == 40


def test_a_calibration_of_another_chain_keeps_no_name(asked: Path, model: Path) -> None:
    wanted = Wanted(0.5, 0.5, "bag-of-words", cross_encoder=str(model))
    assert calibrated(asked, "rules", wanted).calibration.cross_encoder is None


def test_a_replay_takes_the_name_of_the_policy(
    tmp_path: Path, log: Path, cal: Path, model: Path
) -> None:
    semantic = {"calibration": cal.name, "embedder": "bag-of-words", "cross_encoder": str(model)}
    owner = tmp_path / "owner.yaml"
    owner.write_text(yaml.safe_dump({"tenant": "t1", "semantic": semantic}))
    nameless(cal)
    result = run("replay", log, "--policy", owner, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["chain"] == "cross-encoder"
    gone = run("replay", log, "--policy", owner, "--cross-encoder", tmp_path / "gone")
    assert gone.exit_code == 2
    assert "There is no folder" in gone.output


def test_compare_measures_each_by_its_own_model(tmp_path: Path, asked: Path, cal: Path) -> None:
    other = make_tiny_cross_encoder(tmp_path / "other", seed=2)
    new = tmp_path / "new.json"
    run("calibrate", asked, *TARGET, "-o", new, *CROSS, *WORDS, "--cross-encoder", other)
    found = json.loads(run("compare", cal, new, "--pairs", asked, "--json").stdout)
    assert found["served"]["old"] is not None
    assert found["same_chain"] is False


class Sure:
    """Knows every trap, and nothing but traps."""

    name, fingerprint = "sure", "s1"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [Verdict(0.1 if "trap" in pair.asked else 0.9) for pair in pairs]


class Shy:
    """Knows every trap, and takes what is far apart for one too."""

    name, fingerprint = "shy", "y1"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [
            Verdict(0.1 if "trap" in pair.asked or pair.cosine < 0.7 else 0.9) for pair in pairs
        ]


ANGLES = Angles()
COSINE = Chain("cosine", ANGLES, gate=WordGate())
VERIFIER = Chain("verifier", ANGLES, Telling(), WordGate())
SURE = Chain("cross-encoder", ANGLES, Sure(), WordGate())
ALIKE = Chain("cross-encoder", ANGLES, Telling(), WordGate())


def picked(some: Sequence[LabelledPair], *chains: Chain, **given: Any) -> Calibration:
    wanted = Wanted(0.02, 0.95, cross_encoder="mine", **given)
    found = calibrate(chains, PairFile(tuple(some)), wanted, date(2026, 11, 30))
    return found.calibration


class TestAuto:
    def test_it_stands_between_what_is_taken_unseen_and_the_cheap_ones(self) -> None:
        assert auto(Wanted(0.02, 0.95)) == ("verifier", "rules", "cosine")
        named = Wanted(0.02, 0.95, cross_encoder="mine")
        assert auto(named) == ("verifier", "cross-encoder", "rules", "cosine")

    def test_it_is_picked_where_it_serves_clearly_more(self) -> None:
        traps = [LabelledPair(f"0:trap a{at}", f"{at % 40}:trap b{at}", False) for at in range(350)]
        some = [*pairs(1050, True, spread=80.0), *traps]
        verifier = Chain("verifier", ANGLES, Shy(), WordGate())
        found = picked(some, verifier, SURE, COSINE)
        assert found.fingerprint.chain == "cross-encoder"
        assert found.cross_encoder == "mine"

    def test_of_equals_it_is_not_picked(self) -> None:
        some = pairs(1050, True) + pairs(350, False, "trap", 20.0)
        assert picked(some, VERIFIER, ALIKE, COSINE).fingerprint.chain == "verifier"

    def test_nor_where_the_pairs_cannot_be_parted(self) -> None:
        some = [
            LabelledPair(one.a, one.b, one.same, group="all")
            for one in pairs(1050, True) + pairs(350, False, "trap", 20.0)
        ]
        assert picked(some, VERIFIER, ALIKE, COSINE).fingerprint.chain == "verifier"

    def test_of_too_few_it_is_not_tested(self) -> None:
        some = pairs(150, True) + pairs(75, False, "trap", 20.0)
        found = picked(some, VERIFIER, SURE, COSINE)
        assert (found.fingerprint.chain, found.cross_encoder) == ("verifier", None)
