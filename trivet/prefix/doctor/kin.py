"""How near two prompts are: what they share, and what they would share without the break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from trivet.prefix.doctor.causes import range_of
from trivet.prefix.doctor.fingerprint import Fingerprint, Looks, Piece
from trivet.prefix.doctor.history import alike
from trivet.prefix.doctor.layout import Difference, first_difference
from trivet.prefix.markers.rules import CacheRules
from trivet.prefix.prompts.outline import Level

_GUISES = ("masked", "squeezed", "words", "keys", "sets")
_BYTES_PER_TOKEN = 4
_LONG = 32
"""Tokens of a message that hardly begins two conversations."""


class Kin(NamedTuple):
    """An older prompt beside a newer one. Tokens are estimated."""

    where: Difference | None
    """None where one only goes on after the other."""
    shared: int
    """Tokens at the start of both."""
    lost: int
    """Tokens behind the break that both have all the same: what a fix would let be read."""


def kin_of(old: Fingerprint, new: Fingerprint) -> Kin:
    """Compare two prompts of one tenant and route."""
    where = first_difference(old, new, alike)
    if where is None:
        both = min(len(old.parts), len(new.parts))
        return Kin(None, _tokens(new, 0, both), 0)
    whole = _tokens(new, 0, where.at)
    inside = 0
    if where.what == "part":
        inside = _inside(old.parts[where.at].looks, new.parts[where.at].looks)
        inside = min(inside, new.parts[where.at].tokens)
    return Kin(where, whole + inside, _lost(old, new, where, inside))


def _inside(old: Looks, new: Looks) -> int:
    """Tokens of a part before the characters in which it begins to differ."""
    known = range_of(old, new)
    if known is not None:
        return known[0] // _BYTES_PER_TOKEN
    theirs = {span.start: span.digest for span in old.spans}
    changed = (span.start for span in new.spans if theirs.get(span.start) != span.digest)
    return next(changed, 0) // _BYTES_PER_TOKEN if old.masked == new.masked else 0


def _lost(old: Fingerprint, new: Fingerprint, where: Difference, inside: int) -> int:
    """At most what the newer prompt has behind the break."""
    at = where.at
    theirs = Counter(part.looks.digest for part in old.parts[at:])
    lost = 0
    for part in new.parts[at:]:
        if theirs[part.looks.digest] > 0:
            theirs[part.looks.digest] -= 1
            lost += part.tokens
    if where.what == "part" and _near(old.parts[at].looks, new.parts[at].looks):
        lost += new.parts[at].tokens - inside
    if not lost and _same_conversation(old, new, where):
        lost = _tokens(old, at, len(old.parts))
    return min(lost, _tokens(new, at, len(new.parts)) - inside)


def _near(old: Looks, new: Looks) -> bool:
    """Whether two contents are one in some guise."""
    return any(getattr(old, name) and getattr(old, name) == getattr(new, name) for name in _GUISES)


def _same_conversation(old: Fingerprint, new: Fingerprint, where: Difference) -> bool:
    """Whether the newer prompt goes on with a conversation whose past it tells otherwise: two
    messages are the same, or a long one, and what differs is the newest of neither."""
    if where.what != "part" or where.level is not Level.MESSAGES:
        return False
    shared = [part for part in new.parts[: where.at] if part.level is Level.MESSAGES]
    if len({part.place[:2] for part in shared}) < 2 and _tokens_of(shared) < _LONG:
        return False
    return not any(one.parts[where.at].place[:2] == one.parts[-1].place[:2] for one in (old, new))


def beyond_look_back(old: Fingerprint, new: Fingerprint, rules: CacheRules, shared: int) -> int:
    """Of two prompts with `shared` parts in common: parts from the older one's last breakpoint to
    the newer one's first behind it, where that is more than a breakpoint looks back; else 0."""
    if not rules.lookback:
        return 0
    written = _marks(old)
    if not written or written[-1] >= shared or any(mark <= written[-1] for mark in _marks(new)):
        return 0
    reached = [mark - written[-1] for mark in _marks(new)]
    return reached[0] if reached and reached[0] >= rules.lookback else 0


def _marks(prompt: Fingerprint) -> list[int]:
    marks = [at for at, part in enumerate(prompt.parts) if part.marked]
    if prompt.automatic and prompt.parts:
        marks.append(len(prompt.parts) - 1)
    return marks


def _tokens(prompt: Fingerprint, first: int, last: int) -> int:
    return _tokens_of(prompt.parts[first:last])


def _tokens_of(parts: Sequence[Piece]) -> int:
    return sum(part.tokens for part in parts)
