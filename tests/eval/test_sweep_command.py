"""`trivet eval sweep`: the table, the JSON, the report, and what is told when it cannot be run."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trivet.cli import main
from trivet.errors import ConfigError
from trivet.eval import chains, report
from trivet.eval.chains import read_intents
from trivet.eval.pairs import LabelledPair
from trivet.eval.plot import plot
from trivet.eval.scoring import ScoredPair
from trivet.eval.sweep import Row, sweep
from trivet.eval.sweep_result import Subject, SweepResult, as_json, nearest_different, summarise
from trivet.policies.intents import Intent

SHARED = Path(__file__).parents[3] / "shared" / "data"
OWN = [
    ("open the blue gate", "open the blue gate", True, "near"),
    ("open the blue gate", "open the red gate", False, "colour"),
    ("paint a fence", "fence paint how", True, "far"),
    ("paint a fence", "close every window", False, "far"),
    ("gate <b>key</b>", "gate key & 'lock'", False, ""),
]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", "sweep", *map(str, arguments)])


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.jsonl"
    names = ("a", "b", "same", "slice")
    file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in OWN))
    return file


class TestTable:
    @pytest.mark.skipif(
        not SHARED.is_dir(), reason="the shared data sets are not beside the project"
    )
    def test_the_stress_pairs_give_the_table_of_the_design(self) -> None:
        result = run(
            SHARED / "seed24.jsonl",
            "--embedder",
            "bag-of-words",
            "--thresholds",
            "0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.99",
        )
        assert result.exit_code == 0
        assert result.output.startswith((SHARED / "seed24.table").read_text().rstrip("\n") + "\n\n")

    def test_our_own_pairs_give_the_table_that_was_worked_out_by_hand(self, pairs: Path) -> None:
        # Cosines of the word counts: 1, 2/3, 2/sqrt(6), 0 and 2/sqrt(18).
        result = run(pairs, "--embedder", "bag-of-words", "--thresholds", "0.1,0.6,0.9")
        assert result.output.startswith(
            "threshold  hits on same intent  false hits  precision\n"
            "     0.10           2/2 (100%)     2/3        50%\n"
            "     0.60           2/2 (100%)     1/3        67%\n"
            "     0.90           1/2 ( 50%)     0/3       100%\n"
            "\n"
            "nearest different-intent pairs:\n"
            "0.67  'open the blue gate'  ->  'open the red gate'\n"
        )

    def test_it_fits_80_columns_but_for_the_questions(self, pairs: Path) -> None:
        lines = run(pairs, "--embedder", "bag-of-words", "--nearest", 0).output.splitlines()
        assert max(map(len, lines)) <= 80

    def test_both_denominators_the_bound_slices_and_a_plot_are_there(self, pairs: Path) -> None:
        output = run(pairs, "--embedder", "bag-of-words").output
        for part in (
            "of served",
            "95% bound",
            "of all",
            "served by slice",
            "o share of",
            "ROC AUC",
        ):
            assert part in output

    def test_a_text_cannot_steer_the_terminal(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text(json.dumps({"a": "x \x1b[2J\n y", "b": "x y", "same": False}))
        output = run(file, "--embedder", "bag-of-words").output
        assert r"'x \x1b[2J y'" in output
        assert "\x1b" not in output

    def test_a_slice_cannot_steer_the_terminal(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text(json.dumps({"a": "x", "b": "x", "same": True, "slice": "\x1b]0;s\n\x07"}))
        output = run(file, "--embedder", "bag-of-words").output
        assert r"\x1b]0;s \x07" in output
        assert "\x1b" not in output
        assert "\x07" not in output


class TestJson:
    def test_each_row_has_the_counts_and_the_rates(self, pairs: Path) -> None:
        result = run(pairs, "--embedder", "bag-of-words", "--thresholds", "0.6", "--json")
        told = json.loads(result.stdout)
        (row,) = told["rows"]
        assert row["upper_bound"] == pytest.approx(0.8646, abs=1e-4)
        del row["upper_bound"]
        assert row == {
            "threshold": 0.6,
            "hits": 2,
            "same": 2,
            "false_hits": 1,
            "different": 3,
            "precision": 2 / 3,
            "false_hit_rate": 1 / 3,
            "false_over_all": 1 / 5,
        }
        assert set(told["slices"]) == {"near", "colour", "far"}
        assert told["nearest"][0]["b"] == "open the red gate"
        assert told["auc"] == pytest.approx(1.0)
        assert told["pairs"] == 5

    def test_the_confidence_moves_the_bound_alone(self, pairs: Path) -> None:
        asked = (pairs, "--embedder", "bag-of-words", "--thresholds", "0.6", "--json")
        low = json.loads(run(*asked, "--confidence", "0.5").stdout)["rows"][0]
        high = json.loads(run(*asked).stdout)["rows"][0]
        assert low.pop("upper_bound") < high.pop("upper_bound")
        assert low == high


class TestTrouble:
    @pytest.mark.parametrize(
        "flags",
        [
            ("--thresholds", "0.5,x"),
            ("--thresholds", "nan"),
            ("--confidence", "1"),
            ("--chain", "magic"),
            ("--gate", "--open", "gossip"),
            ("--gate", "--open", ","),
        ],
    )
    def test_wrong_flags_are_a_wrong_usage(self, pairs: Path, flags: tuple[str, ...]) -> None:
        result = run(pairs, "--embedder", "bag-of-words", *flags)
        assert result.exit_code == 2
        assert "Traceback" not in result.output

    def test_findings_in_the_file_name_the_line(self, tmp_path: Path) -> None:
        file = tmp_path / "p.csv"
        file.write_text("a,b,same\nx,y,maybe\n")
        result = run(file)
        assert result.exit_code == 2
        assert f"error: {file}:2:1: same: has to be true or false" in result.stderr

    def test_an_embedder_that_is_not_there_is_told_in_a_sentence(self, pairs: Path) -> None:
        result = run(pairs, "--embedder", "openai:nowhere")
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")

    def test_a_library_that_is_missing_names_its_extra(
        self, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        result = run(pairs, "--embedder", "bag-of-words", "--html", tmp_path / "r.html")
        assert result.exit_code == 2
        assert "pip install 'trivet[report]'" in result.stderr

    def test_a_set_that_is_never_compared_says_why(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        row = {"a": "x", "b": "x", "same": True, "slice": "s", "context_a": "1", "context_b": "2"}
        file.write_text(json.dumps(row))
        html = tmp_path / "r.html"
        result = run(file, "--embedder", "bag-of-words", "--html", html)
        assert result.exit_code == 0
        assert "No pair has a score" in result.output
        assert "never served, whatever the threshold: context 1" in result.output
        assert "context 1" in html.read_text()


class TestImports:
    def test_the_command_line_loads_no_science_library(self) -> None:
        heavy = ["numpy", "scipy", "jinja2", "torch", "pydantic", "onnxruntime", "faiss"]
        code = f"import sys, trivet.cli; print([m for m in {heavy!r} if m in sys.modules])"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert found.stdout == "[]\n"


def scored(*rows: tuple[str, str, bool, float | None]) -> list[ScoredPair]:
    return [
        ScoredPair(LabelledPair(a, b, same, "s"), 0.0, score, "" if score is not None else "veto-x")
        for a, b, same, score in rows
    ]


def result(*rows: tuple[str, str, bool, float | None]) -> SweepResult:
    return summarise(Subject("pairs.jsonl", "ab" * 32, "mine", "rules"), scored(*rows))


class TestNearest:
    def test_highest_first_and_same_pairs_left_out(self) -> None:
        found = nearest_different(
            scored(("a", "b", False, 0.5), ("c", "d", True, 0.9), ("e", "f", False, 0.7)), 4
        )
        assert [(one.score, one.a) for one in found] == [(0.7, "e"), (0.5, "a")]

    def test_what_was_objected_to_is_not_near(self) -> None:
        assert nearest_different(scored(("a", "b", False, None)), 4) == []

    def test_objections_are_counted_by_reason(self) -> None:
        told = as_json(result(("a", "b", False, None), ("c", "d", True, 0.4)))
        assert told["unscored"] == {"veto-x": 1}


class Page(HTMLParser):
    """Collects tags and what they point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


class TestReport:
    def test_it_needs_nothing_from_outside_and_runs_nothing(self) -> None:
        text = report.render(result(("a", "b", False, 0.5), ("c", "d", True, 0.9)))
        page = Page(text)
        assert page.links == []
        assert "script" not in page.tags
        assert "url(" not in text
        assert "prefers-color-scheme: dark" in text

    def test_the_figures_are_there(self) -> None:
        text = report.render(result(("a", "b", False, 0.5), ("c", "d", True, 0.9)))
        for title in ("What a threshold serves", "False hits, counted twice", "ROC, area 1.000"):
            assert f'aria-label="{title}"' in text
        assert "Precision and recall, average precision 1.000" in text

    def test_every_text_is_escaped(self) -> None:
        evil = "<script>alert('&')</script>"
        subject = Subject(evil, evil, evil, evil, (evil,), (evil,))
        pair = ScoredPair(LabelledPair(evil, evil, False, evil), 0.5, 0.5)
        other = ScoredPair(LabelledPair("c", "d", True, evil), 0.9, None, evil)
        text = report.render(summarise(subject, [pair, other]))
        assert "<script" not in text
        assert "&lt;script&gt;" in text

    @pytest.mark.parametrize(
        "rows",
        [
            [("a", "b", True, 0.5)],
            [("a", "b", False, 0.5)],
            [("a", "b", True, None), ("a", "c", False, None)],
            [("a", "b", True, 1e-9), ("a", "c", False, -3.0)],
        ],
    )
    def test_small_and_odd_sets_are_drawn_too(self, rows: list[Any]) -> None:
        assert "</html>" in report.render(result(*rows))
        assert "nan" not in report.render(result(*rows)).split("<body>")[1]

    def test_a_report_replaces_an_older_one_whole(self, tmp_path: Path) -> None:
        file = tmp_path / "r.html"
        file.write_text("old")
        report.write_report(result(("a", "b", True, 0.5)), file)
        assert file.read_text().startswith("<!doctype html>")
        assert list(tmp_path.iterdir()) == [file]

    def test_a_report_that_breaks_off_leaves_the_older_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        file = tmp_path / "r.html"
        file.write_text("old")
        monkeypatch.setattr("os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            report.write_report(result(("a", "b", True, 0.5)), file)
        assert file.read_text() == "old"
        assert list(tmp_path.iterdir()) == [file]

    def test_a_folder_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be written: No such file"):
            report.write_report(result(("a", "b", True, 0.5)), tmp_path / "no" / "r.html")


class TestPlot:
    def test_it_stays_within_80_columns_and_is_ascii(self) -> None:
        rows = [Row(at / 100, at % 3 > 0) for at in range(100)]
        lines = plot(sweep(rows, [at / 100 for at in range(100)])).splitlines()
        assert max(map(len, lines)) <= 80
        assert all(line.isascii() for line in lines)

    def test_full_coverage_is_at_the_top_and_no_false_hit_at_the_bottom(self) -> None:
        lines = plot(sweep([Row(0.5, True), Row(0.9, True)], [0.5, 0.9])).splitlines()
        assert lines[1].startswith("100%  |o")
        assert lines[17].startswith("  0%  |x")

    def test_one_threshold_is_no_plot(self) -> None:
        assert plot(sweep([Row(0.5, True)], [0.5])) == ""


class TestIntents:
    def test_names_become_intents_once_and_in_order(self) -> None:
        assert read_intents("time, informational,time") == (Intent.TIME, Intent.INFORMATIONAL)

    def test_a_name_that_is_none_is_told_with_those_there_are(self) -> None:
        with pytest.raises(ConfigError, match="'gossip' is no intent; there are action"):
            read_intents("gossip")


class TestChains:
    def test_the_gate_stands_before_the_chain_only_where_it_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = object()
        monkeypatch.setattr(chains, "_open_gate", lambda: gate)
        assert chains.open_eval_chain("bag-of-words", "cosine", gate=True).gate is gate
        assert chains.open_eval_chain("bag-of-words", "cosine", gate=False).gate is None

    def test_a_chain_whose_library_is_missing_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "trivet.semantic.verifiers", None)
        with pytest.raises(ConfigError, match=r"pip install 'trivet\[semantic\]'"):
            chains.open_eval_chain("bag-of-words", "verifier", gate=False)
