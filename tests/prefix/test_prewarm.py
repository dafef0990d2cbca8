"""The body of a ping."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trivet.prefix.markers.prewarm import ping_of

BODY: dict[str, Any] = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"a": 1.50}]}


def test_nothing_is_generated_and_nothing_streamed() -> None:
    made = ping_of(json.dumps(BODY).encode())
    assert made is not None
    assert json.loads(made) == {"model": "m", "max_tokens": 0, "messages": [{"a": 1.5}]}


@pytest.mark.parametrize(
    "given",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "t"}},
        {"output_config": {"format": {"type": "json_schema"}}},
    ],
)
def test_what_needs_an_answer_is_not_pinged(given: dict[str, Any]) -> None:
    assert ping_of(json.dumps({**BODY, **given}).encode()) is None


@pytest.mark.parametrize(
    "given",
    [
        {"thinking": {"type": "disabled"}},
        {"tool_choice": {"type": "auto"}},
        {"output_config": {"effort": "low"}},
    ],
)
def test_what_does_not_stays_as_it_is(given: dict[str, Any]) -> None:
    made = ping_of(json.dumps({**BODY, **given}).encode())
    assert made is not None
    assert json.loads(made).items() >= given.items()


@pytest.mark.parametrize("raw", [b"", b"[]", b"{"])
def test_what_is_no_request_has_no_ping(raw: bytes) -> None:
    assert ping_of(raw) is None
