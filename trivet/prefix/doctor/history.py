"""What happened to the messages of a conversation that no longer begins as it did."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.prefix.doctor.fingerprint import Fingerprint, Piece
from trivet.prefix.doctor.remedies import Cause, caused
from trivet.prefix.prompts.outline import Level


def moved_history(old: Fingerprint, new: Fingerprint, index: int) -> Cause | None:
    """The cause where the newer prompt goes on with a later part of the older one."""
    before, after = old.parts[index:], new.parts[index:]
    if _thinking_gone(before, after):
        return caused("thinking-dropped", "a thinking block is no longer there")
    dropped = _found_later(after[0], before)
    if dropped and _goes_on(before[dropped:], after):
        return caused("history-truncated", f"{_parts(dropped)} dropped before it")
    return None


def cause_in_history(old: Fingerprint, new: Fingerprint, index: int) -> Cause:
    """Why the messages part at part `index`, of which both have one."""
    before, after = old.parts[index:], new.parts[index:]
    if _is_newest(old, index) and _is_newest(new, index):
        return caused("other-message", "the newest message is another one")
    if _kept_tail(before, after) or len(after) < len(before):
        return caused("history-compacted", "history rewritten: fewer parts stand for more")
    added = _found_later(before[0], after)
    if added:
        return caused("history-rewritten", f"{_parts(added)} put in before it")
    if before[0].kind == after[0].kind == "image":
        return caused("images-changed", "another image")
    return caused("history-rewritten", "a message that was sent before is another one")


def alike(one: Piece, other: Piece) -> bool:
    """Whether two parts are the same, wherever they stand."""
    return (one.kind, one.role, one.looks.digest) == (other.kind, other.role, other.looks.digest)


def _thinking_gone(before: Sequence[Piece], after: Sequence[Piece]) -> bool:
    return (
        before[0].kind == "thinking"
        and after[0].kind != "thinking"
        and any(alike(one, after[0]) for one in before[1:3])
    )


def _found_later(piece: Piece, among: Sequence[Piece]) -> int:
    """How many parts further on the same part stands; 0 where it does not."""
    return next((at for at, one in enumerate(among) if at and alike(one, piece)), 0)


def _goes_on(before: Sequence[Piece], after: Sequence[Piece]) -> bool:
    """Whether all that is left of the older prompt stands at the start of the newer rest."""
    pairs = list(zip(before, after, strict=False))
    return len(after) >= len(before) - 1 and all(alike(*pair) for pair in pairs[: len(before) - 1])


def _kept_tail(before: Sequence[Piece], after: Sequence[Piece]) -> bool:
    """Whether later parts of the older prompt follow sooner in the newer one."""
    where: dict[bytes, int] = {}
    for at, piece in enumerate(before):
        if at:
            where.setdefault(piece.looks.digest, at)
    found = ((at, where.get(piece.looks.digest)) for at, piece in enumerate(after) if at)
    return next((was > at for at, was in found if was is not None), False)


def _is_newest(prompt: Fingerprint, index: int) -> bool:
    """Whether the part belongs to the last message."""
    messages = [part for part in prompt.parts if part.level is Level.MESSAGES]
    return bool(messages) and prompt.parts[index].place[:2] == messages[-1].place[:2]


def _parts(count: int) -> str:
    return "1 part" if count == 1 else f"{count} parts"
