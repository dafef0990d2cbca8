"""The engine's lines, for people and for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from trivet.prefix.engine.log_lines import Format, configure, say


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """Logging as it was; servers that other tests ran in this process left theirs to uvicorn's."""
    one, ours = logging.getLogger(), logging.getLogger("trivet.engine")
    theirs = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error")]
    before = one.handlers[:], one.level, ours.level
    left = [(each, each.level, each.disabled, each.propagate) for each in theirs]
    for each in theirs:
        each.setLevel(logging.NOTSET)
        each.disabled, each.propagate = False, True
    yield
    for each, level, disabled, propagate in left:
        each.setLevel(level)
        each.disabled, each.propagate = disabled, propagate
    logging.captureWarnings(False)
    one.handlers[:] = before[0]
    one.setLevel(before[1])
    ours.setLevel(before[2])


def lines(format: Format) -> list[str]:
    out = io.StringIO()
    configure(format, out)
    say("engine-loaded", "loaded in 2 s", seconds=2)
    logging.getLogger("uvicorn.error").warning("a %s", "word")
    logging.getLogger("uvicorn.error").info("noise")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("trivet.engine").exception("a step failed")
    return out.getvalue().splitlines()


def test_json_lines_have_the_proxys_fields() -> None:
    first, second, third = (json.loads(line) for line in lines("json"))
    shown: list[dict[str, Any]] = []
    for line in (first, second, third):
        assert line.pop("timestamp").endswith("Z")
        shown.append({name: line[name] for name in line if name != "exception"})
    assert shown == [
        {"level": "info", "event": "engine-loaded", "seconds": 2},
        {"level": "warning", "event": "a word", "logger": "uvicorn.error"},
        {"level": "error", "event": "a step failed", "logger": "trivet.engine"},
    ]
    assert third["exception"].endswith("ValueError: no")


def test_console_lines_are_sentences() -> None:
    told = lines("console")
    assert told[:3] == [
        "trivet engine: loaded in 2 s",
        "trivet engine: warning: a word",
        "trivet engine: error: a step failed",
    ]
    assert told[-1] == "ValueError: no"
