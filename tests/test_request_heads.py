"""Request heads: a body ends where its head says, whatever protocol the head offers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from trivet.request_heads import MOST_FIELDS, MOST_HEAD, MOST_NAME, CheckedHeads, Fault

NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.out += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    """Is never called."""


class Line(CheckedHeads):
    """One connection: what was asked on it, each as method, path, fields and body."""

    def __init__(self) -> None:
        config = uvicorn.Config(nobody, lifespan="off", log_config=None)
        super().__init__(config, ServerState(), {}, asyncio.new_event_loop())
        self.loop.close()
        self.cycles: list[RequestResponseCycle] = []
        self.told: list[Fault] = []
        self.lingering: list[float] = []
        self.loop = self  # type: ignore[assignment]
        self.connection_made(Transport())

    def call_later(self, seconds: float, close: Any) -> None:
        self.lingering.append(seconds)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.cycles.append(self.cycle)

    def refused(self, fault: Fault) -> None:
        self.told.append(fault)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        pass

    @property
    def asked(self) -> list[tuple[str, str, list[tuple[bytes, bytes]], bytes]]:
        scopes: list[Any] = [cycle.scope for cycle in self.cycles]
        return [
            (scope["method"], scope["path"], scope["headers"], bytes(cycle.body))
            for scope, cycle in zip(scopes, self.cycles, strict=True)
        ]

    @property
    def out(self) -> bytes:
        assert isinstance(self.transport, Transport)
        return self.transport.out

    @property
    def shut(self) -> bool:
        return self.transport.is_closing() or bool(self.lingering)


def taken(*reads: bytes) -> Line:
    line = Line()
    for data in reads:
        line.data_received(data)
    return line


def post(*fields: tuple[bytes, bytes], body: bytes = b"") -> bytes:
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    head = b"POST /a HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (lines, len(body))
    return head + body


OFFER = ((b"Connection", b"Upgrade"), (b"Upgrade", b"h2c"))


@pytest.mark.parametrize("connection", [b"Upgrade", b"upgrade, HTTP2-Settings", b"keep-alive"])
def test_a_body_behind_an_offer_of_another_protocol_is_that_requests_body(
    connection: bytes,
) -> None:
    data = post((b"Connection", connection), (b"UPGRADE", b"h2c"), body=NEXT)
    line = taken(data + NEXT)
    assert [(method, path, body) for method, path, _, body in line.asked] == [
        ("POST", "/a", NEXT),
        ("GET", "/next", b""),
    ]
    assert b"upgrade" not in [name for name, _ in line.asked[0][2]]
    assert line.out == b""


def test_the_offer_is_cut_out_wherever_the_head_is_cut_in_two() -> None:
    data = post(*OFFER, body=NEXT)
    whole = taken(data).asked
    for at in range(1, len(data)):
        assert taken(data[:at], data[at:]).asked == whole


def test_the_offer_is_cut_out_of_a_head_that_comes_byte_by_byte() -> None:
    data = post(*OFFER, body=NEXT)
    assert taken(*(data[at : at + 1] for at in range(len(data)))).asked == taken(data).asked


def test_a_chunked_body_behind_an_offer_is_that_requests_body() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n"
    sent = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT)
    assert [body for *_, body in taken(head + sent).asked] == [NEXT]


def test_an_offer_in_trailers_is_dropped_with_them() -> None:
    sent = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    line = taken(sent + b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n" + NEXT)
    assert [path for _, path, *_ in line.asked] == ["/a", "/next"]


FIELDS = st.sampled_from(
    [
        *OFFER,
        (b"connection", b"upgrade, HTTP2-Settings"),
        (b"UpGrAdE", b"x"),
        (b"Upgrade-Insecure-Requests", b"1"),
        (b"Upgrad", b"1"),
        (b"Upgradee", b"1"),
        (b"X", b"Upgrade: x"),
    ]
)
BODIES = st.sampled_from(
    [b"", b"a\nUpgrade: b\r\nc", b"\nupgrade", b"}\r\n\r\nUpgrade: x\r\n", b"\n" + NEXT]
)
REQUESTS = st.lists(st.tuples(st.lists(FIELDS, max_size=5), BODIES), min_size=1, max_size=3)


@given(REQUESTS, st.lists(st.integers(1, 40), min_size=1))
def test_only_the_offer_is_cut_however_requests_arrive(
    requests: list[tuple[list[tuple[bytes, bytes]], bytes]], sizes: list[int]
) -> None:
    wire = b"".join(post(*fields, body=body) for fields, body in requests)
    line, at = Line(), 0
    while at < len(wire):
        size = sizes[at % len(sizes)]
        line.data_received(wire[at : at + size])
        at += size
    expected = [
        (
            [(b"host", b"x")]
            + [(name.lower(), value) for name, value in fields if name.lower() != b"upgrade"]
            + [(b"content-length", b"%d" % len(body))],
            body,
        )
        for fields, body in requests
    ]
    assert [(fields, body) for _, _, fields, body in line.asked] == expected


def test_a_head_that_the_parser_takes_for_an_upgrade_all_the_same_is_refused() -> None:
    body = b"\nUpgrade" * 100
    line = taken(post(body=body) + post(*OFFER, body=NEXT) + NEXT)
    assert [path for _, path, *_ in line.asked] == ["/a"]
    assert [fault.reason for fault in line.told] == ["upgrade"]
    assert line.out.startswith(b"HTTP/1.1 400 ")
    assert line.shut


def test_connect_is_refused_and_what_follows_is_no_request() -> None:
    line = taken(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n" + NEXT, NEXT)
    assert line.asked == []
    assert [fault.reason for fault in line.told] == ["connect"]
    assert line.out.startswith(b"HTTP/1.1 405 ")
    assert b"connection: close" in line.out
    assert line.shut


def test_as_many_fields_as_are_allowed_are_taken() -> None:
    fields = [(b"a", b"")] * (MOST_FIELDS - 2)
    assert len(taken(post(*fields)).asked[0][2]) == MOST_FIELDS


def test_one_field_too_many_is_answered_431_before_the_head_ends() -> None:
    line = taken(b"GET / HTTP/1.1\r\nHost: x\r\n", b"a:\r\n" * MOST_FIELDS + b"b")
    assert line.asked == []
    assert [fault.reason for fault in line.told] == ["fields"]
    assert line.out.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in line.out
    assert line.lingering == [1.0]


@pytest.mark.parametrize("more", [1, 5000])
def test_one_field_too_many_in_a_head_that_comes_at_once_is_answered_431(more: int) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * (MOST_FIELDS - 1 + more) + b"\r\n"
    line = taken(head + NEXT)
    assert line.asked == []
    assert [fault.reason for fault in line.told] == ["fields"]
    assert line.shut


def test_the_rest_of_a_refused_head_is_read_and_dropped() -> None:
    line = taken(b"GET / HTTP/1.1\r\nHost: x\r\n", b"a:\r\n" * MOST_FIELDS + b"b")
    before = line.out
    line.data_received(b":\r\n\r\n" + NEXT)
    assert line.out == before
    assert line.asked == []


def test_a_long_field_name_is_answered_431() -> None:
    assert taken(post((b"a" * MOST_NAME, b"1"))).told == []
    line = taken(post((b"a" * (MOST_NAME + 1), b"1")))
    assert [fault.status for fault in line.told] == [431]


def test_a_head_without_end_is_closed() -> None:
    line = taken(b"GET / HTTP/1.1\r\nHost: x\r\nA: ", *[b"a" * 4096] * (MOST_HEAD // 4096))
    assert line.transport.is_closing()


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "host"),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer-encoding"),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "malformed"),
    ],
)
def test_a_head_that_readers_could_disagree_about_is_refused(head: bytes, reason: str) -> None:
    line = taken(head + NEXT)
    assert line.asked == []
    assert [fault.reason for fault in line.told] == [reason]
    assert line.out.startswith(b"HTTP/1.1 400 ")
    assert line.shut
