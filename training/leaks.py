"""Looks for sentences of the shared data sets in this repository: none may be in it.

    python -m training.leaks    print file, line and source of each, exit 1 if there is one

A sentence is found where a line, a cell of a table, a quoted string or a string constant is it,
whatever the case, the punctuation and the spaces.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"
FEWEST_WORDS = 4
_PLACES = ("training", "tests", "docs", "trivet", "examples", "bench", "README.md", "CHANGELOG.md")
_SUFFIXES = frozenset({".py", ".md", ".txt", ".json", ".jsonl", ".csv", ".html", ".toml", ".yaml"})
_PIECES = re.compile(r'[|"`“”\t]|(?<=[.?!])\s+|<[^<>]*>|\\n|, \'|\', |\(\'|\'\)')
_MARK = re.compile(r"^\s*(?:![a-z] |\+ |[-*#>]+ |\d+\. |\[[a-z-]+\] |-?\d\.\d+ +)")


@dataclass(frozen=True, slots=True)
class Leak:
    """A sentence of a shared set, and where it stands."""

    path: Path
    line: int
    source: str
    text: str


def normalised(text: str) -> str:
    """Words in lower case with one space between them; punctuation counts for nothing."""
    kept = re.sub(r"['’‘`]", "", text.casefold())
    return " ".join(re.findall(r"[^\W_]+", kept))


def _messages(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for message in value:
            yield message["content"]


def shared_sentences(shared: Path = SHARED) -> dict[str, str]:
    """Normalised sentences of at least four words, and the set that each is from."""
    found: dict[str, str] = {}
    for path in sorted(shared.rglob("*.jsonl")):
        if path.parent.name == "traces":
            continue
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            for name in ("a", "b", "text"):
                for text in _messages(row.get(name)):
                    found.setdefault(normalised(text), path.stem)
    return {text: name for text, name in found.items() if text.count(" ") >= FEWEST_WORDS - 1}


def pieces(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of everything in a file that might be a sentence."""
    content = path.read_text("utf-8", errors="replace")
    for at, line in enumerate(content.splitlines(), 1):
        yield at, _MARK.sub("", line)
        for piece in _PIECES.split(line):
            yield at, _MARK.sub("", piece)
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for line in node.value.splitlines():
                    yield node.lineno, line


def files(root: Path = ROOT) -> Iterator[Path]:
    """The text files of the repository that a sentence could stand in."""
    for place in _PLACES:
        path = root / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts and file.is_file():
                yield file


def leaks(root: Path = ROOT, shared: Path = SHARED) -> list[Leak]:
    """Every sentence of the shared sets that stands in the repository, once a line."""
    sentences = shared_sentences(shared)
    found: dict[tuple[Path, int, str], Leak] = {}
    for path in files(root):
        for line, text in pieces(path):
            key = normalised(text)
            if key in sentences:
                found[path, line, key] = Leak(path, line, sentences[key], text.strip())
    return list(found.values())


if __name__ == "__main__":
    all_found = leaks()
    for leak in all_found:
        print(f"{leak.path.relative_to(ROOT)}:{leak.line}: {leak.source}: {leak.text[:90]}")
    sys.exit(bool(all_found))
