"""How a request is written, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trivet.middleware.http_client.errors import ConnectFailed, Unsendable
from trivet.middleware.http_client.request import Fields, Origin, root_of, write_request
from trivet.middleware.running.config import UpstreamConfig

ROOT = root_of("http://api.test")


def head(method: str = "POST", fields: Fields | None = None, body: bytes = b"") -> bytes:
    return write_request(ROOT, method, "/v1/x?a=b", fields or [], body).head


async def nothing() -> object:
    return
    yield b""


def test_fields_are_written_in_their_order_and_their_case() -> None:
    fields = [(b"X-B", b"1"), (b"x-a", b" two "), (b"X-B", b"3"), (b"empty", b"")]
    assert head(fields=fields, body=b"hi") == (
        b"POST /v1/x?a=b HTTP/1.1\r\nhost: api.test\r\n"
        b"X-B: 1\r\nx-a:  two \r\nX-B: 3\r\nempty: \r\ncontent-length: 2\r\n\r\n"
    )


def test_framing_fields_of_the_caller_are_not_believed() -> None:
    fields = [
        (b"Host", b"evil.test"),
        (b"Content-Length", b"999"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"close"),
    ]
    assert head(fields=fields, body=b"hi") == (
        b"POST /v1/x?a=b HTTP/1.1\r\nhost: api.test\r\ncontent-length: 2\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "length"),
    [("POST", True), ("PUT", True), ("PATCH", True), ("GET", False), ("DELETE", False)],
)
def test_an_empty_body_is_announced_where_one_is_expected(method: str, length: bool) -> None:
    assert (b"content-length: 0\r\n" in head(method)) is length


def test_an_iterated_body_goes_in_chunks_unless_its_length_is_given() -> None:
    body = nothing()
    chunked = write_request(ROOT, "POST", "/", [], body)  # type: ignore[arg-type]
    assert chunked.length is None
    assert chunked.head.endswith(b"transfer-encoding: chunked\r\n\r\n")
    fields = [(b"Content-Length", b"12")]
    known = write_request(ROOT, "POST", "/", fields, body)  # type: ignore[arg-type]
    assert known.length == 12
    assert known.head.endswith(b"host: api.test\r\ncontent-length: 12\r\n\r\n")


@pytest.mark.parametrize("lengths", [[b"1", b"1"], [b"-1"], [b"1 "], [b"x"], [b""], [b"1,1"]])
def test_a_content_length_that_is_not_one_number_is_refused(lengths: list[bytes]) -> None:
    fields = [(b"content-length", value) for value in lengths]
    with pytest.raises(Unsendable):
        write_request(ROOT, "POST", "/", fields, nothing())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "field",
    [
        (b"x", b"a\r\nevil: 1"),
        (b"x", b"a\nevil: 1"),
        (b"x", b"a\rb"),
        (b"x", b"a\x00b"),
        (b"x\r\nevil", b"1"),
        (b"x\n", b"1"),
        (b"x:evil", b"1"),
        (b"x y", b"1"),
        (b"", b"1"),
        (b"\x00", b"1"),
        (b"\xc3\xa4", b"1"),
    ],
)
def test_a_header_that_would_break_out_is_refused(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(Unsendable):
        head(fields=[(b"ok", b"ok"), field])


@pytest.mark.parametrize(
    "target",
    ["", "v1", "/a b", "/a\r\nx: y", "/a\nb", "/a\x00", "/a\tb", "http://other.test/", "/\u2028"],
)
def test_a_target_that_would_break_out_is_refused(target: str) -> None:
    with pytest.raises(Unsendable):
        write_request(ROOT, "GET", target, [], b"")


@pytest.mark.parametrize("method", ["", "GET /", "G\r\n", "GET\x00", "GÉT"])
def test_a_method_that_would_break_out_is_refused(method: str) -> None:
    with pytest.raises(Unsendable):
        write_request(ROOT, method, "/", [], b"")


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4))
def test_no_field_can_add_a_line(fields: Fields) -> None:
    try:
        written = head(fields=fields)
    except Unsendable:
        return
    kept = [item for item in fields if item[0].lower() not in (b"host", b"connection")]
    lines = written.split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    assert lines[2:-3] == [name + b": " + value for name, value in kept]
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)|\x00", written)


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"),
    [
        ("http://api.test", Origin(False, "api.test", 80), b"api.test", ""),
        ("http://api.test:80/base", Origin(False, "api.test", 80), b"api.test", "/base"),
        ("https://API.test", Origin(True, "api.test", 443), b"api.test", ""),
        ("https://api.test:80", Origin(True, "api.test", 80), b"api.test:80", ""),
        ("http://[::1]:9000/v2", Origin(False, "::1", 9000), b"[::1]:9000", "/v2"),
        ("http://[2001:db8::1]", Origin(False, "2001:db8::1", 80), b"[2001:db8::1]", ""),
        (
            "http://b\u00fccher.test",
            Origin(False, "xn--bcher-kva.test", 80),
            b"xn--bcher-kva.test",
            "",
        ),
    ],
)
def test_a_base_url_names_an_origin_and_a_host_field(
    url: str, origin: Origin, authority: bytes, path: str
) -> None:
    root = root_of(url)
    assert (root.origin, root.authority, root.path) == (origin, authority, path)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://api.test",
        "api.test",
        "http://",
        "http://:80",
        "http://api.test:0x50",
        "http://api.test:99999",
        "http://user:secret@api.test",
        "http://api .test",
        "http://" + "\u00e4" * 80 + ".test",
    ],
)
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ConnectFailed):
        root_of(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@api.test",
        "http://user@api.test",
        "http://:9",
        "http://a:b",
        "http://a:0",
    ],
)
def test_the_config_refuses_userinfo_and_what_is_no_server(url: str) -> None:
    with pytest.raises(ValidationError):
        UpstreamConfig(name="x", base_url=url)
