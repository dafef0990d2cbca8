"""The hand-written questions of `data/questions_*.txt`, in blocks.

A block holds rewordings of one question; a line that begins with `!` asks something else (n
negation or antonym, e entity, d number or date, s scope, w order, a act), and `+` rewords it,
unless its numbers differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.verifier_changes import DATA
from trivet.semantic.verify_numbers import Quantity, quantities
from trivet.semantic.verify_text import tokens

KINDS = {"n": "negation", "e": "entity", "d": "number", "s": "scope", "w": "order", "a": "act"}


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled pair; `group` is the block that both come from."""

    a: str
    b: str
    same: bool
    kind: str
    group: str


def blocks() -> list[tuple[list[str], list[tuple[str, list[str]]]]]:
    """(rewordings, [(kind, rewordings of a trap)]) of each block."""
    found = []
    for path in sorted(DATA.glob("questions_*.txt")):
        for block in path.read_text("utf-8").strip().split("\n\n"):
            same: list[str] = []
            traps: list[tuple[str, list[str]]] = []
            for line in block.splitlines():
                if line.startswith("!"):
                    traps.append((KINDS[line[1]], [line[3:]]))
                elif line.startswith("+"):
                    kind, lines = traps[-1]
                    if kind == "number" and _numbers(line[2:]) != _numbers(lines[0]):
                        traps.append((kind, [line[2:]]))
                    else:
                        lines.append(line[2:])
                else:
                    same.append(line)
            found.append((same, traps))
    return found


def _numbers(text: str) -> list[Quantity]:
    return sorted(set(quantities(tokens(text))[0]))
