"""A pair that waits for a person: one JSON object a line. The proxy writes it, eval reads it.

It is a similar answer that was served, or that a shadow would have served, drawn at random
(`semantic.audit.share`), and what the model said to the new question.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, ValidationError

from trivet.policies.json_lines import wrong_line
from trivet.policies.model_base import Section


class QueuedPair(Section):
    """Two questions, their two answers, and by which numbers they were taken for the same."""

    a: str = Field(min_length=1)
    """The stored question."""
    b: str = Field(min_length=1)
    """The one that was asked."""
    answer_a: str
    answer_b: str
    """What the model said to `b`."""
    same: bool | None = None
    """For the person to say; the proxy leaves it empty."""
    tenant: str = ""
    context: str = ""
    """Digest of all that was equal in the two requests, in hex."""
    judge: str = ""
    """The policy's kind of judge."""
    judged: bool | None = None
    """What it said; None where nobody could tell yet."""
    intent: str = ""
    cosine: float | None = None
    score: float | None = None
    threshold: float | None = None
    id: str = ""
    """Of the record that `a` is: what feedback names."""
    draw: str = ""
    """Names the hit where a person judges, for `POST /trivet/verdicts`; empty where no verdict is
    waited for."""
    at: float = 0.0
    """When it was judged, in Unix seconds."""


def is_queued(raw: bytes) -> bool:
    """Whether a line looks like one of this kind."""
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return type(value) is dict and {"a", "b", "answer_a", "answer_b"} <= value.keys()


def read_queued(raw: bytes, file: str, line: int) -> QueuedPair:
    """Read one line. Raises `ConfigError` that names the file, the line, and each wrong field."""
    try:
        return QueuedPair.model_validate_json(raw)
    except ValidationError as error:
        raise wrong_line(error, file, line) from None
