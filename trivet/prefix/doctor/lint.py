"""Two prompts compared before they are sent, and one looked through for what will change."""

from __future__ import annotations

from typing import Final, NamedTuple

from trivet.prefix.doctor.causes import Witness, cause_of
from trivet.prefix.doctor.fingerprint import Maker
from trivet.prefix.doctor.kin import beyond_look_back, kin_of
from trivet.prefix.doctor.layout import (
    Divergence,
    common_length,
    common_prefix,
    first_difference,
    reading,
    same,
)
from trivet.prefix.doctor.remedies import Cause, caused
from trivet.prefix.doctor.volatile import TELLING, volatile
from trivet.prefix.markers.rules import CacheRules
from trivet.prefix.prompts.outline import Level, Outline, Place

_KEY: Final = b"trivet-prefix-lint"
_AROUND: Final = 30


class Parted(NamedTuple):
    """Where two prompts part, and why."""

    where: Divergence
    cause: Cause


class Warned(NamedTuple):
    """A piece of one prompt that will hardly be the same in the next."""

    level: Level
    place: Place
    char: int
    kind: str
    text: str
    tokens_before: int


def parted(old: Outline, new: Outline) -> Parted | None:
    """Where `new` parts from `old` and why; None where one only goes on after the other."""
    where = common_prefix(old, new)
    difference = first_difference(old, new, same)
    if where is None or difference is None:
        return None
    witness = Witness()
    if difference.what == "part":
        one, other = (reading(prompt.parts[difference.at]) for prompt in (old, new))
        witness = Witness(common_length(one.text, other.text), other.text)
    maker = Maker(_KEY, labels=True)
    return Parted(where, cause_of(maker.make(old), maker.make(new), difference, witness))


def unread(old: Outline, new: Outline, where: Divergence | None, rules: CacheRules) -> Cause | None:
    """Why nothing is read under `rules` of what both share; None where it may be."""
    shared = min(old.tokens, new.tokens) if where is None else where.shared_tokens
    parts = min(len(old.parts), len(new.parts)) if where is None else where.shared_parts
    if not shared:
        return None
    if shared < rules.min_tokens:
        told = f"{shared:,} shared tokens are below the minimum of {rules.min_tokens:,}"
        return caused("below-minimum", told)
    maker = Maker(_KEY)
    blocks = beyond_look_back(maker.make(old), maker.make(new), rules, parts)
    if blocks:
        told = f"{blocks} blocks since the last breakpoint: one looks back {rules.lookback}"
        return caused("look-back", told)
    return None


def lost_tokens(old: Outline, new: Outline) -> int:
    """Estimated tokens that both have behind the place where they part: what a fix lets be read."""
    maker, where = Maker(_KEY), common_prefix(old, new)
    shared = 0 if where is None else where.shared_tokens
    return min(kin_of(maker.make(old), maker.make(new)).lost, new.tokens - shared)


def warnings(outline: Outline) -> list[Warned]:
    """What stands in the tools and the system prompt and looks as if it changed each time."""
    made: list[Warned] = []
    tokens = 0
    for part in outline.parts:
        if part.level is Level.MESSAGES:
            break
        read = reading(part)
        for found in volatile(read.text):
            if found.kind in TELLING:
                before = tokens + min(part.tokens, found.start // 4)
                place = (*part.place, *read.path)
                piece = read.text[found.start : found.end][: 2 * _AROUND]
                made.append(Warned(part.level, place, found.start, found.kind, piece, before))
        tokens += part.tokens
    return made
