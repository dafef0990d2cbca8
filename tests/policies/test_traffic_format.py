"""Recorded traffic: what is written reads back, and what is wrong is named by line and field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.messages import Api
from trivet.policies.traffic import RecordedAnswer, RecordedExact, Traffic, read_line, write_line

ROW = Traffic(
    at=1.5,
    tenant="t",
    api=Api.CHAT,
    model="m",
    key="0" * 64,
    exact=RecordedExact(store=True, ttl=60.0),
    answer=RecordedAnswer(tier="model", plain=True),
)


def read(**changed: Any) -> Traffic:
    value = {**json.loads(write_line(ROW)), **changed}
    return read_line(json.dumps(value).encode(), "log.jsonl", 7)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    at=st.floats(0, 1e12),
    price=st.none() | st.floats(0, 1e6),
)
def test_a_row_is_one_line_and_reads_back(text: str, at: float, price: float | None) -> None:
    answer = ROW.answer.model_copy(update={"price": price, "text": text})
    row = ROW.model_copy(update={"at": at, "text": text, "answer": answer})
    raw = write_line(row)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert read_line(raw, "f", 1) == row


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"key": "xyz"}, "log.jsonl:7:1: key: "),
        ({"exact": {"pool": 10**12}}, "log.jsonl:7:1: exact.pool: "),
        ({"answer": {"tier": "model"}}, "log.jsonl:7:1: answer.plain: Field required"),
        ({"more": 1}, "log.jsonl:7:1: more: Extra inputs"),
        ({"at": -1}, "log.jsonl:7:1: at: "),
        ({"format": 2}, "log.jsonl:7:1: format: has to be 1"),
        ({"format": True}, "log.jsonl:7:1: format: has to be 1"),
        ({"format": None}, "log.jsonl:7:1: format: has to be 1"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**changed)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("raw", [b"{", b"[1]", b"\xff", b"", b"[" * 100_000])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^f:3:1: "):
        read_line(raw, "f", 3)
