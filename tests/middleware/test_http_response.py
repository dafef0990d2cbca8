"""One response, however its bytes are cut."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.http_client.errors import Garbage, Lost
from trivet.middleware.http_client.response import MAX_HEAD, Incoming

BODY = b"".join(b"piece %d, " % number for number in range(40))
FIXED = b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


def chunked(body: bytes, sizes: list[int], trailers: bytes = b"") -> bytes:
    parts, at = [], 0
    for size in sizes:
        piece = body[at : at + size]
        at += size
        if piece:
            parts.append(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
    if body[at:]:
        parts.append(b"%X\r\n%b\r\n" % (len(body[at:]), body[at:]))
    return (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"".join(parts)
        + b"0\r\n%b\r\n" % trailers
    )


def fed(*pieces: bytes, bodiless: bool = False) -> Incoming:
    incoming = Incoming(bodiless=bodiless)
    for piece in pieces:
        incoming.feed(piece)
    return incoming


def feed_many(incoming: Incoming, piece: bytes) -> None:
    for _ in range(2 * MAX_HEAD // len(piece)):
        incoming.feed(piece)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if end > start]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_body_of_known_length_is_the_same_however_it_is_cut(places: list[int]) -> None:
    incoming = fed(*cut(FIXED, places))
    assert (incoming.status, incoming.complete, incoming.reusable) == (200, True, True)
    assert incoming.take() == BODY
    assert incoming.headers[0] == (b"content-type", b"a/b")


@given(
    st.lists(st.integers(1, 60), max_size=12),
    st.sampled_from([b"", b"x: 1\r\n", b"x: 1\r\ny: 2\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_a_chunked_body_is_the_same_however_it_is_cut(
    sizes: list[int], trailers: bytes, places: list[int]
) -> None:
    incoming = Incoming(bodiless=False)
    taken = []
    for piece in cut(chunked(BODY, sizes, trailers), places):
        assert not incoming.complete
        incoming.feed(piece)
        taken.append(incoming.take())
    assert (incoming.complete, incoming.reusable) == (True, True)
    assert b"".join(taken) == BODY
    assert incoming.headers == [(b"transfer-encoding", b"chunked")]


@given(st.integers(0, 10_000), st.sampled_from([FIXED, chunked(BODY, [5, 9], b"x: 1\r\n")]))
def test_a_cut_response_is_never_complete(place: int, data: bytes) -> None:
    incoming = fed(*cut(data[: place % len(data)], []))
    assert not incoming.complete
    with pytest.raises(Lost) as caught:
        incoming.end()
    assert caught.value.begun is (place % len(data) > 0)
    assert not incoming.complete


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_at_all_are_read_or_refused(data: bytes, places: list[int]) -> None:
    incoming = Incoming(bodiless=False)
    try:
        for piece in cut(data, places):
            incoming.feed(piece)
        incoming.end()
    except (Garbage, Lost):
        assert not incoming.complete


@given(st.binary(min_size=1, max_size=50).filter(lambda data: data.strip(b"\r\n")))
def test_bytes_after_the_end_cost_the_connection_and_nothing_else(surplus: bytes) -> None:
    for incoming in (fed(FIXED + surplus), fed(FIXED, surplus)):
        assert incoming.complete
        assert not incoming.reusable
        assert incoming.take() == BODY


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    incoming = fed(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def")
    assert not incoming.complete
    incoming.end()
    assert incoming.complete
    assert not incoming.reusable
    assert incoming.take() == b"abcdef"


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    incoming = fed(b"HTTP/1.1 %d X\r\ncontent-length: 10\r\n\r\n" % status)
    assert (incoming.complete, incoming.reusable, incoming.held) == (True, True, 0)


@pytest.mark.parametrize("framing", [b"content-length: 10", b"transfer-encoding: chunked", b"x: y"])
def test_the_answer_to_head_has_no_body(framing: bytes) -> None:
    incoming = fed(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n", bodiless=True)
    assert (incoming.headed, incoming.complete, incoming.reusable) == (True, True, False)
    assert incoming.headers == [tuple(framing.split(b": "))]
    incoming.feed(b"surplus")
    assert incoming.take() == b""


def test_interim_responses_are_passed_over() -> None:
    incoming = fed(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nhi",
    )
    assert (incoming.status, incoming.headers) == (201, [(b"content-length", b"2")])
    assert (incoming.complete, incoming.take()) == (True, b"hi")


@pytest.mark.parametrize(
    ("version", "fields", "reusable"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"connection: close\r\n", False),
        (b"1.1", b"Connection: Keep-Alive, Close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"connection: keep-alive\r\n", False),
    ],
)
def test_a_connection_is_kept_only_where_both_sides_mean_it(
    version: bytes, fields: bytes, reusable: bool
) -> None:
    incoming = fed(b"HTTP/%b 200 OK\r\n%bcontent-length: 0\r\n\r\n" % (version, fields))
    assert (incoming.complete, incoming.reusable) == (True, reusable)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 99 X\r\n\r\n",
        b"HTTP/1.1 2000 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nanything",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(Garbage):
        fed(data)
    dribble = [data[at : at + 1] for at in range(len(data))]
    with pytest.raises(Garbage):
        fed(*dribble)


def test_garbage_within_a_body_leaves_what_came_before_it() -> None:
    incoming = Incoming(bodiless=False)
    with pytest.raises(Garbage):
        incoming.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n?\r\n")
    assert (incoming.take(), incoming.complete) == (b"ab", False)


@pytest.mark.parametrize(
    "endless",
    [
        b"x: y\r\n",
        b"z",
        b"a: b\r\n\r\nHTTP/1.1 103 Early Hints\r\n",
    ],
)
def test_a_head_without_end_is_refused(endless: bytes) -> None:
    incoming = fed(b"HTTP/1.1 103 Early Hints\r\n" if b"103" in endless else b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(Garbage, match="head"):
        feed_many(incoming, endless)


def test_a_large_head_is_refused_even_in_one_piece() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: %b\r\n\r\n"
    assert fed(head % (b"a" * (MAX_HEAD - 100))).complete
    with pytest.raises(Garbage, match="head"):
        fed(head % (b"a" * MAX_HEAD))


def test_a_large_first_piece_of_body_is_no_large_head() -> None:
    body = b"a" * (4 * MAX_HEAD)
    incoming = fed(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert incoming.take() == body


@pytest.mark.parametrize("endless", [b"x: y\r\n", b"z"])
def test_trailers_without_end_are_refused(endless: bytes) -> None:
    incoming = fed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
    with pytest.raises(Garbage, match="between two pieces"):
        feed_many(incoming, endless)


def test_a_read_response_is_freed_without_the_garbage_collector() -> None:
    class Watched(Incoming):
        __slots__ = ("__weakref__",)

    gc.disable()
    try:
        incoming = Watched(bodiless=False)
        incoming.feed(FIXED)
        gone = weakref.ref(incoming)
        del incoming
        assert gone() is None
    finally:
        gc.enable()
