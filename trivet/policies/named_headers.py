"""Findings about the headers that a policy puts into the key, or leaves out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trivet.errors import Problem
from trivet.policies.header_names import is_identity, is_steering
from trivet.policies.model import ExactPolicy, ExactRule
from trivet.policies.nodes import Position, Source

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A field name (RFC 9110, section 5.1)."""


def header_problems(source: Source, exact: ExactPolicy) -> list[Problem]:
    """What is wrong with `key_headers` and `ignore_headers`, in the section and in its rules."""
    sections: list[tuple[Position, ExactPolicy | ExactRule]] = [(("exact",), exact)]
    sections += [(("exact", "rules", at), rule) for at, rule in enumerate(exact.rules)]
    return [
        source.problem((*where, field, index), said)
        for where, section in sections
        for field, index, said in _said(section)
    ]


def _said(section: ExactPolicy | ExactRule) -> Iterator[tuple[str, int, str]]:
    keyed = section.key_headers or ()
    for index, name in enumerate(keyed):
        if not _TOKEN.fullmatch(name):
            yield "key_headers", index, f"{name!r} is not the name of a header."
    named = {name.lower() for name in keyed}
    for index, name in enumerate(section.ignore_headers or ()):
        said = _refused(name) or (f"{name} is in key_headers too." if name in named else None)
        if said:
            yield "ignore_headers", index, said


def _refused(name: str) -> str | None:
    """Why a header of that name cannot be left out of the key; None where it can."""
    if not _TOKEN.fullmatch(name):
        return f"{name!r} is not the name of a header."
    raw = name.encode()
    if is_steering(raw):
        return f"{name} is known to shape answers; it stays in the key."
    if is_identity(raw):
        return f"{name} may tell callers apart; it stays in the key."
    return None
