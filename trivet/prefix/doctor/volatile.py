"""Pieces of a text that change from request to request by their look: clocks, ids, names, counters.

The look alone is a weak witness: a version number looks like a counter. So nothing follows from a
span as such; where two prompts part inside one, its kind is the cause, and `trivet prefix lint`
warns of the kinds in `TELLING` where they stand in a part that should stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class Found(NamedTuple):
    """A volatile piece: `text[start:end]`, in characters."""

    start: int
    end: int
    kind: str


KINDS: Final = (
    "timestamp", "date", "uuid", "e-mail", "hash", "random-id", "user-name", "counter", "name"
)  # fmt: skip
"""Those that a piece can have; `name` is any word with a capital, `timestamp` any time of day."""

TELLING: Final = frozenset({"timestamp", "date", "uuid", "e-mail", "hash", "random-id"})
"""Kinds that hardly stand in a text which is the same for all requests."""

_WORD: Final = r"[^\W\d_]{2,14}\.?"
"""A month's name in any language."""
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_WEEKDAY: Final = r"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b)"
_DAY: Final = r"[0-3]?\d(?:st|nd|rd|th|er|\.)?"
_YEAR: Final = r"(?:19|20)\d\d"
_HALF: Final = r"\s?[AaPp]\.?\s?[Mm]\b\.?"
_ZONE: Final = r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
_UPPER: Final = "A-ZÀ-ÖØ-ÞŁŃÓŚŹŻĆČĐŠŽŘŮĞİŞА-ЯΑ-Ω"
_NAME: Final = rf"[{_UPPER}][^\W\d_]{{0,40}}+(?:['’.-][^\W\d_]{{1,40}}+){{0,4}}+(?!\w)\.?"
_NAMES: Final = rf"{_NAME}(?:\s{_NAME}){{0,3}}"

_NUMERIC: Final = re.compile(
    "|".join(
        (
            r"(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)",
            rf"(?P<timestamp>\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?{_ZONE}"
            r"|\d{8}T?\d{6}(?:Z|\b)|1[5-9]\d{8}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?\b"
            r"|\d{4}[.-]\d\d[.-]\d\d[-_]\d\d[.-]\d\d(?:[.-]\d\d)?\b)",
            # 30 November 2026, 30. November 2026, 30 de noviembre de 2026, 30-Nov-26, 30/Nov/2026
            rf"(?P<date>{_DAY}[\s/-](?:de\s|of\s)?{_WORD},?[\s/:-](?:de\s)?(?:{_YEAR}|\d\d)\b(?![:.]\d)"
            rf"|{_DAY}(?:\sof)?\s{_MONTH}"
            # 2026-11-30, 2026. 11. 30, 30.11.2026, 11/30/26, 20261130
            rf"|{_YEAR}(?P<a>[-/.])\s?[01]?\d(?P=a)\s?[0-3]?\d\b"
            rf"|[0-3]?\d(?P<b>[-/.])\s?[0-3]?\d(?P=b)\s?(?:{_YEAR}|\d\d)\b"
            rf"|{_YEAR}(?:年|년)\s?\d{{1,2}}(?:月|월)\s?\d{{1,2}}(?:日|일)"
            rf"(?:\s?[^\W\d_]曜日|\s?星期[^\W\d_]|\s?[^\W\d_]요일)?"
            rf"|{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\b)",
            rf"(?P<clock>\d{{1,2}}(?::\d\d){{1,2}}(?:[.,]\d{{1,9}})?(?:{_HALF})?{_ZONE}(?![\w:])"
            rf"|\d{{1,2}}(?:[.]\d\d){{0,2}}{_HALF}|\d{{1,2}}\s?h\s?\d\d\b"
            r"|\d{1,2}[時时시]\s?\d{1,2}[分분](?:\s?\d{1,2}[秒초])?)",
            r"(?P<hash>(?:[0-9a-f]{128}|[0-9a-f]{96}|[0-9a-f]{64}|[0-9a-f]{56}|[0-9a-f]{40}"
            r"|[0-9a-f]{32})\b)",
            r"(?P<address>\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))",
            r"(?P<counter>\d{1,15}(?:[.,]\d{1,9})*(?![\w-]|:\w))",
            r"(?P<id>\d[\w+/:.=-]{5,}\w=*|\d{16,})",
            r"(?P<digits>\d+)",
        )
    )
)
_WORDY: Final = re.compile(
    "|".join(
        (
            r"(?P<mail>[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)",
            r"(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)",
            r"(?P<hash>(?:[0-9a-f]{128}|[0-9a-f]{96}|[0-9a-f]{64}|[0-9a-f]{56}|[0-9a-f]{40}"
            r"|[0-9a-f]{32})\b)",
            # November 30, 2026; Nov 30; Nov 2026; Monday
            rf"(?P<date>{_MONTH}\s{{1,2}}(?:[0-3]?\d(?:st|nd|rd|th)?\b(?:,?\s{_YEAR}\b)?|{_YEAR}\b)"
            rf"|{_WEEKDAY})",
            r"(?P<id>[A-Za-z_+/:.-]{1,40}\d[\w+/:.=-]{2,}=*"
            r"|[A-Za-z]{0,9}[a-z][A-Z][a-z]{0,9}[A-Z][A-Za-z0-9+/_-]{6,}={0,2}|[A-Z]{2,5}-[A-Z]{4,})",
            rf"(?P<name>{_NAMES})",
        )
    )
)
_KINDS: Final = {
    "mail": "e-mail",
    "clock": "timestamp",
    "id": "random-id",
    "address": "random-id",
    "digits": "counter",
}

_CANDIDATE: Final = re.compile(
    rf"\b[^\W\d{_UPPER}]{{0,64}}+(?:[._+-][^\W\d{_UPPER}]{{0,64}}+){{0,4}}+[\d@{_UPPER}]"
)
"""A word that has a digit, a capital or an at sign: nothing else is looked at closely."""

_CUES: Final = (
    "user", "username", "user name", "user id", "login", "name", "customer", "client", "account",
    "employee", "patient", "member", "author", "owner", "agent", "hello", " hi", " hey", "dear",
    "welcome", "welcome back", "in as", "speaking with", "speaking to", "talking with",
    "talking to", "chatting with", "assisting", "assistant to", "assistant of", "assistant for",
    "assist", "help", "helping", "serving", "on behalf of", "assigned to", "requested by",
    "called", "belongs to", "user is", "name is", "customer is",
)  # fmt: skip
"""What stands before a person's name."""
_GREETINGS: Final = frozenset(one.lstrip() for one in _CUES)
_CUE_LENGTH: Final = 24
_ENDS: Final = frozenset('.!?\n"')
_LOGIN: Final = re.compile(r"(?:[ _-]?(?:name|id))?(?:\"?\s?[:=]\s?\"?)([a-z][\w.-]*[a-z0-9])\b")
_LOGIN_WORDS: Final = ("user", "login", "name", "customer", "account")

_CALLED: Final = re.compile(r"\w[\w.-]*(?<=\w)(?:\s[^\W\x00-\x7f]+)?")
_CALLED_CUES: Final = ("name is ", "in as ", "ello ", "dear ", "Dear ")
"""Behind these any word is taken for a name, though weakly."""

_BETWEEN: Final = re.compile(r"[\s,:.T·–()-]{0,5}[^\W\d_]{0,10}\.?,?\s?")
"""What stands between a date and a clock: a comma, a word (`at`, `um`, `下午`)."""
_BEFORE: Final = re.compile(r"(?<!\w)[^\W\d_]{4,14}[.,]{0,2}\s$")
"""A weekday's name in any language."""
_TIMES: Final = frozenset({"date", "timestamp"})
_MOST: Final = 4096


def volatile(text: str, most: int = _MOST) -> Iterator[Found]:
    """The pieces, in their order, about the first `most` of them. They do not overlap."""
    held: Found | None = None
    for found in _pieces(text, most):
        if held is not None:
            joined = _joined(text, held, found)
            if joined is None:
                yield held
            held = joined or found
        else:
            held = found
    if held is not None:
        yield held


def _pieces(text: str, most: int) -> Iterator[Found]:
    logins = _logins(text, most)
    login = next(logins, None)
    end = count = 0
    for candidate in _CANDIDATE.finditer(text):
        at = candidate.start()
        while login is not None and login.start < at:
            if login.start >= end:
                yield login
                end = login.end
            login = next(logins, None)
        if at < end:
            continue
        if count >= most:
            return
        found = _at(text, at)
        if found is not None:
            count, end = count + 1, found.end
            yield found
    if login is not None and login.start >= end:
        yield login


def _at(text: str, at: int) -> Found | None:
    match = (_NUMERIC if text[at].isdigit() else _WORDY).match(text, at)
    if match is None:
        return None
    name = next(one for one in match.groupdict() if match[one] is not None)
    if name == "name":
        return _named(text, at, match[0])
    start = at
    if name == "date":
        before = _BEFORE.search(text, max(0, at - 17), at)
        start = at if before is None else before.start()
    return Found(start, match.end(), _KINDS.get(name, name))


def _named(text: str, at: int, words: str) -> Found | None:
    first, space, _ = words.partition(" ")
    if space and first.lower() in _GREETINGS:
        return Found(at + len(first) + 1, at + len(words), "user-name")
    before = " " + text[max(0, at - _CUE_LENGTH) : at].rstrip(" \"':=,").lower()
    if before.endswith(_CUES):
        return Found(at, at + len(words), "user-name")
    if not space and (before == " " or text[max(0, at - 3) : at].rstrip(" ")[-1:] in _ENDS):
        return None  # any word has a capital at the start of a sentence
    return Found(at, at + len(words), "name")


def _logins(text: str, most: int) -> Iterator[Found]:
    """Names in small letters, known by the word before them: `user=anna.s`."""
    found: dict[int, Found] = {}
    for word in _CALLED_CUES:
        for at in _after(text, word, most):
            match = _CALLED.match(text, at)
            if match is not None:
                found[at] = Found(*match.span(), "name")
    for word in _LOGIN_WORDS:
        for at in _after(text, word, most):
            match = _LOGIN.match(text, at)
            if match is not None:
                found[match.start(1)] = Found(*match.span(1), "user-name")
    return iter(sorted(found.values()))


def _after(text: str, word: str, most: int) -> Iterator[int]:
    """Where `word` ends, the first `most` times."""
    at = text.find(word)
    while at >= 0 and most > 0:
        yield at + len(word)
        at, most = text.find(word, at + len(word)), most - 1


def _joined(text: str, first: Found, second: Found) -> Found | None:
    """A date and a clock beside each other are one timestamp; two pieces of a date one date."""
    if first.kind not in _TIMES or second.kind not in _TIMES:
        return None
    if not _BETWEEN.fullmatch(text, first.end, max(first.end, second.start)):
        return None
    both = first.kind if first.kind == second.kind else "timestamp"
    return Found(first.start, second.end, both)
