"""No sentence of a shared data set is in the repository, and the search for them finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.leaks import SHARED, leaks, normalised

PRESENT = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    row = {
        "a": "Where do otters sleep?",
        "b": [{"role": "user", "content": "otters: where do they sleep?"}],
    }
    (folder / "pairs.jsonl").write_text(json.dumps(row), "utf-8")
    return folder


@PRESENT
def test_no_sentence_of_a_shared_set_is_in_the_repository() -> None:
    assert [(str(leak.path), leak.line, leak.source) for leak in leaks()] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", 'TEXTS = ("where do otters sleep",)\n'),
        ("a.py", "TEXTS = ['x', 'where do otters sleep?']\n"),
        ("a.py", 'TEXT = (\n    "where do "\n    "otters sleep"\n)\n'),
        ("a.md", "| 3 | Where  do otters sleep? | same |\n"),
        ("a.txt", "!e WHERE do otters sleep\n"),
        ("a.jsonl", '{"text": "Otters, where do they sleep"}\n'),
    ],
)
def test_a_sentence_is_found_whatever_stands_around_it(
    tmp_path: Path, shared: Path, name: str, content: str
) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / name).write_text(content, "utf-8")
    (root / "docs" / "fine.md").write_text("Where do otters sleep in winter?\n", "utf-8")
    assert {(leak.path.name, leak.source) for leak in leaks(root, shared)} == {(name, "pairs")}


def test_case_punctuation_and_spaces_count_for_nothing() -> None:
    assert normalised("  What's THE  (total)?") == "whats the total"
