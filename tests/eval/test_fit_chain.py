"""A chain of the tenant's own: fitted to the pairs set aside, certified by the others, and used by
every command that takes a calibration."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from traffic_rows import row, write

from trivet.cli import main
from trivet.errors import ConfigError
from trivet.eval.calibrate import Calibrated, Wanted, calibrate
from trivet.eval.calibration_text import calibrated_text
from trivet.eval.pair_files import PairFile
from trivet.eval.pairs import Contexts, LabelledPair
from trivet.eval.parts import Promise, parted
from trivet.eval.score import judge_pairs, totals
from trivet.policies.calibration import Calibration, load_calibration
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain
from trivet.semantic.english import word_list
from trivet.semantic.types import Intention, TextPair, Verdict
from trivet.semantic.verifiers import open_chain

THINGS = word_list(
    """door gate lamp printer heater window kettle blender mixer router camera scanner engine pump
    boiler fridge oven dryer fan radio speaker monitor keyboard drill tractor"""
)
DEEDS = word_list(
    """open close clean repair paint move lift adjust replace inspect polish store wrap unpack label
    weigh measure cover fold align tighten loosen sell rent"""
)


class Bland:
    """Finds all texts alike, so that the cosine tells nothing."""

    name, fingerprint, dimension = "bland", "e1", 2

    def embed(self, texts: Sequence[str]) -> Any:
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


class Lost:
    """A verifier that knows nothing either."""

    name, fingerprint = "lost", "l1"

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        return [Verdict(0.5 + 0.001 * (len(pair.asked) % 7)) for pair in pairs]


class LampGate:
    """What is asked about a lamp is an action."""

    fingerprint, reads = "g1", "e1"

    def classify(self, texts: Sequence[str], vectors: Any) -> list[Intention]:
        return [
            Intention(Intent.ACTION if "lamp" in text else Intent.INFORMATIONAL, True)
            for text in texts
        ]


COSINE = Chain("cosine", Bland(), gate=LampGate())
VERIFIER = Chain("verifier", Bland(), Lost(), LampGate())


def pairs(count: int) -> list[LabelledPair]:
    """Half ask for the same deed in other words, half for something else about it."""
    found = []
    for at in range(count):
        thing, deed = THINGS[at % len(THINGS)], DEEDS[at // len(THINGS)]
        a = f"How do I {deed} the {thing}?"
        same = f"What is the way to {deed} the {thing}?"
        other = f"Who is allowed to {deed} the {thing}?"
        found.append(LabelledPair(a, other if at % 2 else same, at % 2 == 0))
    return found


def made(some: Sequence[LabelledPair], fit: Any = "offer", **given: Any) -> Calibrated:
    wanted = Wanted(0.02, given.pop("confidence", 0.5), fit=fit, **given)
    return calibrate((VERIFIER, COSINE), PairFile(tuple(some)), wanted, date(2026, 11, 30))


def reopened(calibration: Calibration) -> Chain:
    chain = calibration.fingerprint.chain
    return open_chain(chain, Bland(), LampGate(), fitted=calibration.fitted)


class TestOffered:
    def test_it_is_picked_where_it_serves_clearly_more(self) -> None:
        found = made(pairs(600))
        assert found.calibration.fingerprint.chain == "fitted"
        assert found.calibration.fitted is not None
        assert found.calibration.fitted.pairs == found.chosen_on == 120
        assert found.calibration.threshold is not None
        assert found.calibration.measured.pairs == 480
        assert found.calibration.measured.hits > 200
        assert found.calibration.measured.false_hits <= 4
        assert set(found.prospects) == {"verifier", "fitted", "cosine"}

    def test_its_calibration_serves_new_pairs_by_the_weights_in_the_file(
        self, tmp_path: Path
    ) -> None:
        some = pairs(600)
        (tmp_path / "cal.json").write_text(made(some[:560]).calibration.model_dump_json())
        calibration = load_calibration(tmp_path / "cal.json")
        found = totals(judge_pairs(calibration, reopened(calibration), some[560:], None), 0.5)
        assert found.hits >= 18
        assert found.false_hits == 0

    def test_the_labels_of_those_that_certify_have_no_part_in_the_weights(self) -> None:
        some = pairs(600)
        parts = parted(some, Promise(0.02, 0.5), 0.1, several=True)
        turned = list(some)
        for at in (*parts.certifying, *parts.held_out):
            turned[at] = replace(some[at], same=not some[at].same)
        one, other = made(some, "only", holdout=0.1), made(turned, "only", holdout=0.1)
        assert one.calibration.fitted == other.calibration.fitted
        assert one.prospects == other.prospects
        assert one.calibration.threshold is not None
        assert other.calibration.threshold is None

    def test_the_order_of_the_file_changes_nothing(self) -> None:
        some = pairs(600)
        mixed = random.Random(1).sample(some, len(some))
        assert made(some).calibration.fitted == made(mixed).calibration.fitted

    def test_where_too_few_are_set_aside_nothing_is_as_if_it_were_there(self) -> None:
        for count in (150, 450):
            assert made(pairs(count)) == made(pairs(count), "no")

    def test_where_the_pairs_cannot_be_parted_it_is_not_offered(self) -> None:
        some = [replace(one, group="all") for one in pairs(600)]
        assert made(some) == made(some, "no")

    def test_what_the_gate_refuses_or_is_not_compared_has_no_part_in_the_fit(self) -> None:
        some = pairs(600)
        for at in range(0, 600, 40):
            some[at] = replace(some[at], context=Contexts("one", "other"))
        parts = parted(some, Promise(0.02, 0.5), 0.0, several=True)
        left = [
            some[at] for at in parts.choosing if some[at].comparable and "lamp" not in some[at].a
        ]
        found = made(some, "only", admit=(Intent.INFORMATIONAL,))
        assert found.calibration.fitted is not None
        assert found.calibration.fitted.pairs == len(left) < len(parts.choosing)


class TestForced:
    def test_too_few_pairs_are_an_error_that_says_how_many_more_it_takes(self) -> None:
        with pytest.raises(ConfigError, match=r"--chain fitted: 200 more pairs needed to fit"):
            made(pairs(300), "only")
        with pytest.raises(ConfigError, match=r"--chain fitted: 804 more pairs needed"):
            made(pairs(500), "only", confidence=0.95)

    def test_they_are_counted_with_those_that_are_held_out(self) -> None:
        with pytest.raises(ConfigError, match=r"--chain fitted: 400 more pairs needed"):
            made(pairs(600), "only", holdout=0.5)

    def test_so_are_pairs_that_all_hang_together(self) -> None:
        some = [replace(one, group="all") for one in pairs(600)]
        with pytest.raises(ConfigError, match="hang together in too few groups"):
            made(some, "only")

    def test_so_are_too_few_of_a_kind(self) -> None:
        some = [replace(one, same=at % 60 != 0) for at, one in enumerate(pairs(600))]
        with pytest.raises(ConfigError, match=r"more pairs needed to fit this chain"):
            made(some, "only")

    def test_the_text_says_what_it_was_fitted_to_and_what_weighs_most(self) -> None:
        text = calibrated_text(made(pairs(600), "only"))
        assert "fitted to 120 of those that chose:" in text
        assert "the verifier's log odds count" in text
        assert "weigh most" in text
        assert max(map(len, text.splitlines())) <= 80


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, a calibration of the chain, and one of the cosine."""
    found = tmp_path_factory.mktemp("fitted")
    rows = ({"a": one.a, "b": one.b, "same": one.same} for one in pairs(600))
    (found / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = ("--target-false-hits", 0.02, "--confidence", 0.5, "--embedder", "bag-of-words")
    for chain in ("fitted", "cosine"):
        out = found / f"{chain}.json"
        run("calibrate", found / "pairs.jsonl", *how, "--chain", chain, "-o", out)
    return found


class TestCommands:
    def test_calibrate_writes_the_weights(self, folder: Path) -> None:
        found = load_calibration(folder / "fitted.json")
        assert found.fingerprint.chain == "fitted"
        assert found.fitted is not None
        assert found.threshold is not None

    def test_score_opens_them(self, folder: Path) -> None:
        cal = folder / "fitted.json"
        found = json.loads(
            run("score", folder / "pairs.jsonl", "--calibration", cal, "--json").stdout
        )
        assert found["totals"]["hits"] > 250
        assert found["totals"]["false_hits"] <= 5

    def test_compare_measures_it_beside_another_chain(self, folder: Path) -> None:
        old, new = folder / "cosine.json", folder / "fitted.json"
        result = run("compare", old, new, "--pairs", folder / "pairs.jsonl", "--json")
        found = json.loads(result.stdout)
        assert found["same_chain"] is False
        assert found["served"]["new"]["hits"] > found["served"]["old"]["hits"]

    def test_weights_that_were_changed_are_another_chain(
        self, folder: Path, tmp_path: Path
    ) -> None:
        found = json.loads((folder / "fitted.json").read_text())
        found["fitted"]["intercept"] += 0.5
        (tmp_path / "changed.json").write_text(json.dumps(found))
        result = run("score", folder / "pairs.jsonl", "--calibration", tmp_path / "changed.json")
        assert result.exit_code == 2
        assert "was made with another verifier: calibrate again" in result.output

    @pytest.mark.parametrize("command", ["replay", "label"])
    def test_recorded_traffic_is_played_through_it(
        self, folder: Path, tmp_path: Path, command: str
    ) -> None:
        log = write(tmp_path / "log", [row(0, "How do I open the door?"), row(9, "open the door")])
        named = ("--calibration", folder / "fitted.json", "--embedder", "bag-of-words")
        out = ("-o", tmp_path / "out", "--file", tmp_path / "s.csv")
        result = run(command, log, *named, *(out if command == "label" else ("--json",)))
        assert result.exit_code == 0, result.output
        if command == "replay":
            assert json.loads(result.stdout)["chain"] == "fitted"
