"""Validation errors of pydantic, said as sentences that tell what to do."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from trivet.errors import Problem
from trivet.policies.model import TenantPolicy
from trivet.policies.nodes import Position, Source

_SENTENCES = {
    "tuple_type": "has to be a list: [a, b], or one item a line behind dashes.",
    "dict_type": "has to be name: value pairs.",
    "model_type": "has to be a section: name: value pairs, indented below it.",
    "string_type": "has to be text.",
    "bool_parsing": "has to be true or false.",
    "bool_type": "has to be true or false.",
    "int_parsing": "has to be a whole number.",
    "int_type": "has to be a whole number.",
    "int_from_float": "has to be a whole number.",
    "float_parsing": "has to be a number.",
    "float_type": "has to be a number.",
    "finite_number": "has to be a finite number.",
}
_MISSING = {
    "tenant": "is missing; every policy file names its tenant.",
    "match": "is missing; say which requests the rule is for, or {} for all.",
}
_PATTERNS = {
    "tenant": "has to begin with a letter or digit and hold letters, digits, dots, dashes and "
    "underscores only, at most 64.",
    "sha256": "has to be the SHA-256 of an API key, 64 hex digits in lower case: run "
    "`trivet keygen` and put the sha256 that it prints here.",
    "prefix": "has to be a path: it begins with a slash and has no spaces.",
    "kv_events": "has to be the ZeroMQ address that the server publishes at: tcp://HOST:PORT.",
    "user_from": "has to be `body`, or `header:` and the name of a header.",
}
_SECRETIVE = frozenset({"base_url", "url"})
"""Fields whose value may hold a password: it is not repeated."""


def problem_of(source: Source, error: Mapping[str, Any]) -> Problem:
    """The finding for one entry of `ValidationError.errors()` of a policy file."""
    return source.problem(error["loc"], sentence_of(error, TenantPolicy))


def nearest(name: str, known: Collection[str]) -> str:
    """` Did you mean ...?` where one of `known` is like `name`, else nothing."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean `{found[0]}`?" if found else ""


def sentence_of(error: Mapping[str, Any], model: type[BaseModel]) -> str:
    """What one entry of `ValidationError.errors()` of `model` says."""
    kind, context, position = error["type"], error.get("ctx", {}), error["loc"]
    if kind == "extra_forbidden":
        return _unknown(position, model)
    if kind == "missing":
        return _MISSING.get(str(position[-1]), "is missing.")
    if kind == "literal_error" or kind == "enum":
        return f"has to be {context['expected']}{_got(error)}."
    if kind == "value_error":
        return f"{context['error']}{_got(error)}."
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(position[-1]), f"has to match {context['pattern']}.")
    if kind == "greater_than_equal":
        return f"has to be {context['ge']} or more."
    if kind == "less_than_equal":
        return f"has to be {context['le']} or less."
    return _SENTENCES.get(kind, f"{error['msg'].rstrip('.')}.")


def _got(error: Mapping[str, Any]) -> str:
    value = None if error["loc"][-1] in _SECRETIVE else error.get("input")
    return f", not {value!r:.60}" if isinstance(value, str | int | float) else ""


def _unknown(position: Position, model: type[BaseModel]) -> str:
    known = _fields_at(position[:-1], model)
    meant = nearest(str(position[-1]), known)
    return "is not a known field." + (meant or f" Known here: {', '.join(known)}.")


def _fields_at(position: Position, model: type[BaseModel]) -> list[str]:
    for part in position:
        if isinstance(part, str):
            model = _section(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_section(part) for part in typing.get_args(annotation))
    return next((section for section in found if section), None)
