"""What `trivet eval` makes of models, extras and files that are not there: a wrong usage."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from traffic_rows import row, write

from trivet.cli import USAGE, main
from trivet.policies.calibration import Calibration, Fingerprint, Measured


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


def pairs(folder: Path) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text('{"a": "x", "b": "y", "same": true}\n')
    return file


def calibration(folder: Path, embedder: str) -> Path:
    made = Calibration(
        made=date(2026, 11, 30),
        fingerprint=Fingerprint(chain="cosine", embedder="0" * 64),
        embedder=embedder,
        dataset="0" * 64,
        target=0.02,
        confidence=0.95,
        threshold=0.9,
        measured=Measured(pairs=9, same=9, hits=9, false_hits=0, upper_bound=0.3),
    )
    file = folder / "cal.json"
    file.write_text(made.model_dump_json())
    return file


def log(folder: Path) -> Path:
    return write(folder / "log", [row(0, "ab"), row(1, "aab")])


def commands(folder: Path, embedder: str) -> dict[str, list[object]]:
    """Every command that opens an embedder, with this one."""
    cal, file, out = calibration(folder, embedder), pairs(folder), folder / "out"
    target = ("--target-false-hits", "0.1", "-o", out)
    return {
        "sweep": ["sweep", file, "--embedder", embedder],
        "calibrate": ["calibrate", file, *target, "--embedder", embedder],
        "score": ["score", file, "--calibration", cal],
        "compare": ["compare", cal, cal, "--pairs", file],
        "compare anew": ["compare", cal, file, "--embedder", embedder],
        "replay": ["replay", log(folder), "--embedder", embedder],
        "label": ["label", log(folder), "-o", out, "--embedder", embedder],
    }


NAMES = ["sweep", "calibrate", "score", "compare", "compare anew", "replay", "label"]


@pytest.mark.parametrize("command", NAMES)
@pytest.mark.parametrize(
    "embedder", ["/no/such/folder", "openai:nowhere", "openai:http://127.0.0.1:9#m"]
)
def test_an_embedder_that_is_not_there(tmp_path: Path, command: str, embedder: str) -> None:
    result = run(*commands(tmp_path, embedder)[command])
    assert result.exit_code == USAGE, result.output
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [*NAMES, "gate"])
@pytest.mark.parametrize("library", ["onnxruntime", "numpy"])
def test_an_extra_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, library: str
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"text": "what is it"}) + "\n")
    given = {**commands(tmp_path, "default"), "gate": ["gate", texts]}[command]
    for name in [one for one in sys.modules if one.startswith(("trivet.semantic", "trivet.eval."))]:
        if library in ("numpy",) or "onnx" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    result = run(*given)
    assert result.exit_code == USAGE, result.output
    assert "pip install 'trivet[semantic" in result.stderr
