"""The live layout doctor: remembers recent prompts as fingerprints, and tells when one breaks.

No text is kept but where a policy lets it be shown. Memory is bounded in bytes; what was not used
longest goes first. A break is said where a prompt parts from an earlier one of its tenant and
route, both have much in common behind that place, and no other earlier prompt begins as far as it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Final, NamedTuple

from trivet.messages import Usage
from trivet.prefix.doctor.causes import Witness, cause_of, range_of
from trivet.prefix.doctor.fingerprint import Fingerprint, Looks, Maker
from trivet.prefix.doctor.kin import Kin, beyond_look_back, kin_of
from trivet.prefix.doctor.layout import Divergence, reading
from trivet.prefix.doctor.places import member_at, public
from trivet.prefix.doctor.quotes import Quote, Texts
from trivet.prefix.doctor.remedies import Cause, caused
from trivet.prefix.markers.rules import NOTHING, CacheRules
from trivet.prefix.prompts.outline import Level, Outline, Place

BYTES: Final = 32 << 20
_ROUTES: Final = 1_024
_RECENT: Final = 16
"""Prompts of a route that a new one is compared with."""
_FEW: Final = 128
"""Tokens whose loss is not worth a word."""
_BREAKS: Final = 256
_PARTS: Final = 4_096
"""A prompt of more parts is not looked at."""
_DAY: Final = 86_400
_AROUND: Final = 40
_PIECE: Final = 300
"""Bytes of memory that a part of a fingerprint takes beside its looks."""


class Finding(NamedTuple):
    """Why a prompt was not read from a prefix cache as far as it could have been."""

    tenant: str
    route: str
    level: Level
    place: Place
    """In the body, down to the member where that is known."""
    char: int
    """In that member's text: where it begins to differ, or the changing piece begins."""
    cause: str
    """One of `remedies.CAUSES`."""
    told: str
    fix: str
    shared_tokens: int
    lost_tokens: int
    """Tokens that a fix would have let be read. Both are estimated."""
    new: bool
    """The first of its kind on this route."""
    text: str = ""
    """Around the place, where the policy lets it be shown."""
    part: int = -1
    """Index of the part that differs; -1 where that is not one part."""
    quote: Quote | None = None
    """Both prompts' text around the place, where the policy lets it be shown."""


class Prompted(NamedTuple):
    """A prompt that went upstream."""

    tenant: str
    route: str
    outline: Outline
    usage: Usage | None
    now: float
    """Seconds; prompts older than the longest lifetime in `rules` do not count."""
    rules: CacheRules = NOTHING
    keep_text: bool = False


class Seen(NamedTuple):
    """The same without its text."""

    tenant: str
    route: str
    prompt: Fingerprint
    usage: Usage | None
    now: float
    rules: CacheRules = NOTHING


class _Break(NamedTuple):
    """A break on its way to be told."""

    cause: Cause
    where: Divergence
    kin: Kin
    old: Fingerprint


class _Route:
    """What is remembered of one tenant's route."""

    def __init__(self) -> None:
        self.recent: list[tuple[float, Fingerprint]] = []
        self.looks: dict[bytes, Looks] = {}
        self.texts = Texts()
        self.breaks: dict[tuple[str, ...], int] = {}
        self.size = 0

    def keep(self, one: Fingerprint, now: float, most: int) -> None:
        """Remember `one`; forget the oldest beyond `_RECENT` prompts or `most` bytes."""
        self.recent = [*self.recent[-_RECENT + 1 :], (now, one)]
        self._measure()
        while self.size > most and self.recent:
            del self.recent[0]
            self._measure()

    def drop_before(self, then: float) -> None:
        """Forget what no provider has any more."""
        self.recent = [one for one in self.recent if one[0] >= then]

    def _measure(self) -> None:
        parts = [part for _, one in self.recent for part in one.parts]
        self.looks = {part.looks.digest: part.looks for part in parts}
        self.texts.keep_only(self.looks.keys())
        looks = sum(looks.size for looks in self.looks.values())
        self.size = looks + _PIECE * len(parts) + self.texts.size


class Doctor:
    """For one thread. `key` (16 bytes or more) keys all digests; `most` bytes are kept. Breaks that
    lose less than `least` tokens are not told."""

    def __init__(self, key: bytes, most: int = BYTES, least: int = _FEW) -> None:
        self._key = key
        self._most = most
        self._least = least
        self._routes: OrderedDict[tuple[str, str], _Route] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that are kept, about."""
        return self._size

    def see(self, one: Prompted) -> Finding | None:
        """Remember a prompt that went upstream, and tell of the break that it shows, if any."""
        if len(one.outline.parts) > _PARTS:
            return None
        state = self._enter(one.tenant, one.route)
        maker = Maker(self._key, state.looks, blocks=True, labels=one.keep_text)
        prompt = maker.make(one.outline)
        state.texts.hold(prompt, one.outline if one.keep_text else None)
        found = self.note(
            Seen(one.tenant, one.route, prompt, one.usage, one.now, one.rules), one.outline
        )
        if found is None:
            return None
        if one.keep_text:
            return found._replace(text=_around(one.outline, found))
        if found.part < 0:
            return found
        place, char = public(found.place, found.char)
        return found._replace(place=place, char=char)

    def note(self, seen: Seen, outline: Outline | None = None) -> Finding | None:
        """The same for a prompt of which only the fingerprint is at hand, as in a record."""
        state = self._enter(seen.tenant, seen.route)
        lifetime = max((ttl.seconds for ttl in seen.rules.ttls), default=_DAY)
        state.drop_before(seen.now - lifetime)
        found = self._look(state, seen, outline)
        quote = None if found is None or outline is None else _quote(state.texts, found, outline)
        self._size -= state.size
        state.keep(seen.prompt, seen.now, self._most // 4)
        self._size += state.size
        self._forget()
        if found is None:
            return None
        cause, where, kin, _ = found
        differs = where.what == "part" and where.shared_parts < len(seen.prompt.parts)
        return Finding(
            *(seen.tenant, seen.route, where.level, where.place, where.char, cause.name),
            *(cause.told, cause.fix, where.shared_tokens, kin.lost, _count(state, cause, where)),
            part=where.shared_parts if differs else -1,
            quote=quote,
        )

    def forget(self, tenant: str) -> None:
        """Forget all prompts of a tenant."""
        for named in [one for one in self._routes if one[0] == tenant]:
            self._size -= self._routes.pop(named).size

    def _enter(self, tenant: str, route: str) -> _Route:
        state = self._routes.setdefault((tenant, route), _Route())
        self._routes.move_to_end((tenant, route))
        return state

    def _look(self, state: _Route, seen: Seen, outline: Outline | None) -> _Break | None:
        new = seen.prompt
        pairs = [(old, kin_of(old, new)) for _, old in reversed(state.recent)]
        if not pairs:
            return None
        best = max(pairs, key=lambda pair: pair[1].shared)
        broken = max(pairs, key=lambda pair: pair[1].shared + pair[1].lost)
        gain = broken[1].shared + broken[1].lost - best[1].shared
        # Where an earlier prompt is the beginning of this one, a nearer relative tells of another.
        goes_on = any(kin.where is None and kin.shared >= broken[1].shared for _, kin in pairs)
        if broken[1].where is not None and gain >= max(self._least, broken[1].lost // 2):
            if goes_on:
                return None
            old, kin = broken
            where, witness = place_in(old, new, kin, outline)
            assert kin.where is not None
            cause = cause_of(old, new, kin.where, witness)
            if cause.name != "other-message":
                start = where.char if cause.start < 0 else cause.start
                return _Break(cause, where._replace(char=start), kin, old)
            return None
        unread = seen.usage is not None and seen.usage.cache_read_tokens == 0
        return _unread(best[0], new, best[1], seen.rules) if unread else None

    def _forget(self) -> None:
        while len(self._routes) > 1 and (self._size > self._most or len(self._routes) > _ROUTES):
            _, gone = self._routes.popitem(last=False)
            self._size -= gone.size


def place_in(
    old: Fingerprint, new: Fingerprint, kin: Kin, outline: Outline | None
) -> tuple[Divergence, Witness]:
    """Where the newer prompt, whose text may be at hand, parts from the older one."""
    where = kin.where
    assert where is not None
    if where.what != "part":
        place: Place = (where.name or where.what,)
        if where.what in ("more", "fewer"):
            place = (new if where.what == "more" else old).parts[where.at].place
        elif where.what == "images":
            place = next(one.place for one in (*new.parts, *old.parts) if one.kind == "image")
        at = Divergence(where.level, place, 0, kin.shared, where.at, where.what)
        return at, Witness()
    if outline is None:
        at = Divergence(where.level, new.parts[where.at].place, 0, kin.shared, where.at)
        return at, Witness()
    part = outline.parts[where.at]
    read = reading(part)
    known = range_of(old.parts[where.at].looks, new.parts[where.at].looks)
    low, high = known or (0, 0)
    place = (*part.place, *read.path)
    char = low
    if not read.path and not isinstance(read.value, str):
        inner, char = member_at(read.text, low, min(high, len(read.text)))
        place = (*place, *inner)
    at = Divergence(where.level, place, char, kin.shared, where.at)
    return at, Witness(text=read.text[: high + 200] if known else read.text)


def _unread(old: Fingerprint, new: Fingerprint, kin: Kin, rules: CacheRules) -> _Break | None:
    """Why nothing was read though the prompt begins as an earlier one did."""
    if not kin.shared:
        return None
    lost = kin._replace(lost=kin.shared)
    last = new.parts[-1]
    where = Divergence(last.level, last.place, 0, kin.shared, len(new.parts))
    if kin.shared < rules.min_tokens:
        told = f"{kin.shared:,} shared tokens are below the minimum of {rules.min_tokens:,}"
        return _Break(caused("below-minimum", told), where, lost, old)
    parts = min(len(old.parts), len(new.parts)) if kin.where is None else kin.where.at
    blocks = beyond_look_back(old, new, rules, parts)
    if blocks:
        told = f"{blocks} blocks since the last breakpoint: one looks back {rules.lookback}"
        return _Break(caused("look-back", told), where, lost, old)
    return None


def _count(state: _Route, cause: Cause, where: Divergence) -> bool:
    """Count a break; whether it is the first of its kind, as far as that is remembered."""
    place = tuple("*" if isinstance(step, int) else step for step in where.place)
    kind = (cause.name, where.level.value, *place)
    known = kind in state.breaks
    if not known and len(state.breaks) >= _BREAKS:
        del state.breaks[next(iter(state.breaks))]
    state.breaks[kind] = state.breaks.get(kind, 0) + 1
    return not known


def _quote(texts: Texts, found: _Break, outline: Outline) -> Quote | None:
    where, at = found.where, found.where.shared_parts
    if where.what != "part" or at >= min(len(found.old.parts), len(outline.parts)):
        return None
    return texts.quote(found.old.parts[at].looks.digest, outline.parts[at], where.place, where.char)


def _around(outline: Outline, found: Finding) -> str:
    if found.part < 0:
        return ""
    part = outline.parts[found.part]
    value = reading(part).value
    for step in found.place[len(part.place) :]:
        value = value[step]
    text = value if isinstance(value, str) else json.dumps(value)
    return text[max(0, found.char - _AROUND) : found.char + _AROUND]
