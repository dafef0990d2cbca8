"""A byte stream is cut into whole events, however it arrives."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.dialects.sse import Splitter, data_of, fault_of, frame, split

LINES = st.sampled_from(
    [b"data: a", b"data:", b":", b"x", b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"]
)


def pushed(stream: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    splitter = Splitter()
    places = sorted({min(cut, len(stream)) for cut in cuts})
    events = []
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        events += splitter.push(stream[start:end])
    return events, splitter.rest


@given(st.lists(LINES, max_size=20).map(b"".join), st.lists(st.integers(0, 60), max_size=20))
def test_the_events_are_the_same_however_the_stream_was_cut(stream: bytes, cuts: list[int]) -> None:
    whole = pushed(stream, [])
    assert pushed(stream, cuts) == whole
    assert pushed(stream, list(range(len(stream)))) == whole
    assert b"".join(whole[0]) + whole[1] == stream


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_every_kind_of_blank_line_ends_an_event(end: bytes) -> None:
    assert split(b"data: a" + end + b"data: b" + end + b"data: c") == [
        b"data: a" + end,
        b"data: b" + end,
    ]


def test_what_follows_the_last_blank_line_is_kept() -> None:
    splitter = Splitter()
    assert splitter.push(b"data: a\n\nda") == [b"data: a\n\n"]
    assert splitter.push(b"ta: b") == []
    assert splitter.rest == b"data: b"
    assert splitter.push(b"\n") == []
    assert splitter.push(b"\n") == [b"data: b\n\n"]
    assert splitter.rest == b""


def test_an_event_without_end_costs_time_in_proportion_to_its_size() -> None:
    def seconds(pieces: int) -> float:
        splitter, piece = Splitter(), b"x" * 4096
        began = time.perf_counter()
        for _ in range(pieces):
            splitter.push(piece)
        return time.perf_counter() - began

    seconds(100)
    # In proportion it is 10 times; looking through it anew at each piece would make 100.
    assert seconds(5000) < 40 * min(seconds(500) for _ in range(5))


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"event: x\r\ndata: a\r\n\r\n", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b": comment\n\n", b""),
        (b"data\n\n", b""),
        (b"data:\n\n", b""),
    ],
)
def test_the_data_of_an_event_are_its_data_lines(event: bytes, data: bytes) -> None:
    assert data_of(event) == data


def test_a_frame_reads_back() -> None:
    assert frame(b"x") == b"data: x\n\n"
    assert split(frame(b"x", "name")) == [b"event: name\ndata: x\n\n"]
    assert data_of(frame(b"x", "name")) == b"x"


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (b'data: {"a":"event: error"}\n\n', None),
        (b"data: x\r\n\r\n", None),
        (b": ping\n\n", None),
        (b"\n\n", None),
        (b"event: message\nid: 1\nretry: 5\ndata\n\n", None),
        (b"event: error\ndata: x\n\n", "upstream-error"),
        (b"data: x\nevent:ERROR\n\n", "upstream-error"),
        (b"data: x\revent: error\n\n", "upstream-error"),
        (b"junk\nevent: api_error\n\n", "upstream-error"),
        (b'{"error":{}}\n\n', "malformed-stream"),
        (b" data: x\n\n", "malformed-stream"),
        (b"Data: x\n\n", "malformed-stream"),
        (b"\xef\xbb\xbfdata: x\n\n", "malformed-stream"),
    ],
)
def test_the_fields_of_an_event_tell_a_failure(event: bytes, fault: str | None) -> None:
    assert fault_of(event) == fault
