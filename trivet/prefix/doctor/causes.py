"""Why two prompts part where they do, told from their fingerprints.

A cause is a short name, what happened in words, and what mends it. Where the texts are at hand the
exact character is given too, and the newer text to look at; the older one is never needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from trivet.prefix.doctor.fingerprint import BLOCK, Fingerprint, Looks, Piece, Span
from trivet.prefix.doctor.history import cause_in_history, moved_history
from trivet.prefix.doctor.layout import Difference
from trivet.prefix.doctor.remedies import Cause, caused
from trivet.prefix.doctor.volatile import TELLING
from trivet.prefix.prompts.outline import Level

Range = tuple[int, int]
"""Characters between which two texts begin to differ: `(n, n + 1)` where that is known exactly."""

_SETTINGS: Final = {
    "thinking": "thinking-changed",
    "tool_choice": "tool-choice-changed",
    "reasoning_effort": "effort-changed",
    "reasoning": "effort-changed",
    "response_format": "response-format-changed",
}
_EFFORT: Final = "effort"
_FORMAT: Final = "format"
_WEAK: Final = frozenset({"name", "counter"})
_ALONE: Final = TELLING | {"user-name"}
"""Kinds that need no counterpart in the other text."""
_KEY: Final = re.compile(r'\\?"[^"\\]{0,80}\\?"\s?:')


class Witness(NamedTuple):
    """What is known beside the fingerprints."""

    char: int | None = None
    """In the text of the part."""
    text: str = ""
    """Of the newer part."""


NO_WITNESS: Final = Witness()


def cause_of(
    old: Fingerprint, new: Fingerprint, where: Difference, witness: Witness = NO_WITNESS
) -> Cause:
    """Why `new` parts from `old` at `where`."""
    if where.what == "model":
        return caused("model-changed", "another model, or another API")
    if where.what == "setting":
        return _of_setting(old, new, where)
    if where.what == "images":
        return caused("images-changed", "only one of the two has images: messages level")
    if where.level is Level.TOOLS:
        return _of_tools(old, new, where, witness)
    if where.what == "part":
        return _of_text(old, new, where, witness)
    return caused("text-edited", f"a block was {'added' if where.what == 'more' else 'removed'}")


def _of_text(old: Fingerprint, new: Fingerprint, where: Difference, witness: Witness) -> Cause:
    if where.level is Level.MESSAGES:
        moved = moved_history(old, new, where.at)
        if moved is not None:
            return moved
    before, after = old.parts[where.at], new.parts[where.at]
    if (before.kind, before.role) == (after.kind, after.role):
        found = of_part(before, after, witness)
        if found is not None:
            return found
    if where.level is Level.MESSAGES:
        return cause_in_history(old, new, where.at)
    return _of_blocks(old, new, where)


def of_part(old: Piece, new: Piece, witness: Witness) -> Cause | None:
    """The cause within one part; None where it is an edit like any other."""
    before, after = old.looks, new.looks
    if before.squeezed and before.squeezed == after.squeezed:
        return caused("white-space", "white space differs")
    if before.keys and before.keys == after.keys:
        return caused("keys-reordered", "the same JSON, its keys in another order")
    if before.sets and before.sets == after.sets:
        return caused("list-reordered", "the same JSON, a list in another order")
    span = _changed_span(before, after, witness)
    if before.words and before.words == after.words and not _clearly(span):
        if after.keys or _at_key(witness, before, after):
            return caused("keys-reordered", "the same JSON, its keys in another order")
        return caused("list-reordered", "the same words in another order")
    if span is None:
        return None
    return caused("user-name" if span.kind == "name" else span.kind, _SPAN_TOLD[span.kind], span)


_SPAN_TOLD: Final = {
    "timestamp": "a timestamp",
    "date": "a date",
    "uuid": "a UUID",
    "e-mail": "an e-mail address",
    "hash": "a hash",
    "random-id": "a random id",
    "user-name": "a user's name",
    "counter": "a number that changes: a counter",
    "name": "a name",
}


def range_of(old: Looks, new: Looks) -> Range | None:
    """Between which characters the texts begin to differ; None where no blocks were kept."""
    if not old.blocks or not new.blocks:
        return None
    pairs = zip(old.blocks, new.blocks, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if at is None:
        at = min(len(old.blocks), len(new.blocks))
    return at * BLOCK, (at + 1) * BLOCK


def _changed_span(old: Looks, new: Looks, witness: Witness) -> Span | None:
    """The volatile piece in which the texts begin to differ."""
    known = (witness.char, witness.char + 1) if witness.char is not None else range_of(old, new)
    alike = bool(old.masked) and old.masked == new.masked
    theirs = {span.start: span for span in old.spans}
    for span in new.spans:
        other = theirs.get(span.start)
        if known is not None and span.start >= known[1]:
            break
        if other is not None and other.digest == span.digest:
            continue
        if known is not None and max(span.end, 0 if other is None else other.end) <= known[0]:
            continue
        if _fits(span, other, alike=alike, exact=witness.char is not None):
            return _surer(span, other)
        if known is None:
            break
    return _only_old(old, new, known)


def _fits(span: Span, other: Span | None, *, alike: bool, exact: bool) -> bool:
    if other is None:
        return span.kind in _ALONE
    if _WEAK.issuperset((span.kind, other.kind)):
        return alike or (exact and span.kind == other.kind == "counter")
    return True


def _surer(span: Span, other: Span | None) -> Span:
    if other is None or span.kind not in _WEAK:
        return span
    return other._replace(start=span.start, end=span.end)


def _only_old(old: Looks, new: Looks, known: Range | None) -> Span | None:
    """A piece that only the older text shows as volatile, such as an id without digits now."""
    if known is None:
        return None
    ours = {span.start for span in new.spans}
    return next(
        (
            span
            for span in old.spans
            if span.start < known[1] and span.end > known[0] and span.start not in ours
            and span.kind in _ALONE
        ),
        None,
    )  # fmt: skip


def _clearly(span: Span | None) -> bool:
    return span is not None and span.kind in TELLING


def _at_key(witness: Witness, old: Looks, new: Looks) -> bool:
    """Whether the texts begin to differ in the name of a JSON member."""
    known = range_of(old, new) if witness.char is None else (witness.char, witness.char)
    if known is None or not witness.text:
        return False
    low, high = known
    around = _KEY.finditer(witness.text, max(0, low - 82), high + 82)
    return any(found.start() <= high and low <= found.end() for found in around)


def _of_setting(old: Fingerprint, new: Fingerprint, where: Difference) -> Cause:
    name = where.name
    theirs = next((one.fields for one in old.settings if one.name == name), ())
    ours = next((one.fields for one in new.settings if one.name == name), ())
    changed = _changed_names(theirs, ours)
    slug = _SETTINGS.get(name, "setting-changed")
    if name in ("output_config", "text"):
        if _EFFORT in changed:
            slug = "effort-changed"
        elif _FORMAT in changed:
            slug = "response-format-changed"
    inner = f" ({', '.join(changed)})" if changed else ""
    return caused(slug, f"{name}{inner} differs: {where.level.value} level")


def _of_tools(old: Fingerprint, new: Fingerprint, where: Difference, witness: Witness) -> Cause:
    before, after = _tools(old), _tools(new)
    theirs, ours = ([_name(one.looks) for one in tools] for tools in (before, after))
    at = where.at
    if at >= len(after) or (at < len(before) and theirs[at] not in ours and ours[at] in theirs):
        return caused("tool-removed", f"tool {_label(before[at])} was removed")
    if at >= len(before) or (ours[at] not in theirs and theirs[at] in ours):
        return caused("tool-added", f"tool {_label(after[at])} was added")
    if ours[at] == theirs[at]:
        return of_part(before[at], after[at], witness) or _edited(before[at], after[at])
    if ours[at] not in theirs:
        return caused(
            "tool-edited", f"tool {_label(before[at])} became {_label(after[at])}: name edited"
        )
    if sorted(ours) == sorted(theirs):
        return caused("tools-reordered", "the same tools in another order")
    return caused("tools-reordered", "tools in another order, and not the same ones")


def _edited(old: Piece, new: Piece) -> Cause:
    changed = _changed_names(old.looks.fields, new.looks.fields) or ["content"]
    return caused("tool-edited", f"tool {_label(new)}: {', '.join(changed)} edited")


def _changed_names(old: Sequence[tuple[str, bytes]], new: Sequence[tuple[str, bytes]]) -> list[str]:
    theirs, ours = dict(old), dict(new)
    return [name for name in dict.fromkeys((*theirs, *ours)) if theirs.get(name) != ours.get(name)]


def _tools(one: Fingerprint) -> list[Piece]:
    return [part for part in one.parts if part.level is Level.TOOLS]


def _name(looks: Looks) -> bytes:
    return looks.name or looks.digest


def _label(piece: Piece) -> str:
    return repr(piece.looks.label) if piece.looks.label else str(piece.place[-1])


def _of_blocks(old: Fingerprint, new: Fingerprint, where: Difference) -> Cause:
    """A system block took the place of another."""
    level = where.level
    before, after = (
        [part.looks.digest for part in one.parts if part.level is level] for one in (old, new)
    )
    if len(before) > 1 and before != after and sorted(before) == sorted(after):
        return caused("list-reordered", "the same blocks in another order")
    return caused("text-edited", "the text was edited")
