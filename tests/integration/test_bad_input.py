"""A request that cannot be served gets an error in its own dialect that names the field."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from proxy import Proxy, chat_body, serving
from raw_http import connect, head, post, read_answer

QUICK = """\
upstreams:
  - name: mock
    base_url: {url}
max_body: 64KiB
body_timeout: 1
header_timeout: 1
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def strict(proxy: Proxy) -> Iterator[Proxy]:
    command = proxy.process.args
    assert isinstance(command, list)
    upstream = str(command[command.index("--upstream") + 1])
    with serving(config=QUICK.format(url=upstream)) as running:
        yield running


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b"[]", None, "JSON object"),
        (b'{"model":"m","model":"n","messages":[]}', "model", "twice"),
        (b'{"model":"m","temperature":NaN,"messages":[]}', None, "NaN"),
        (b'{"model":"m","temperature":1e999,"messages":[]}', None, "too large"),
        (b'{"messages":[{"role":"user","content":"x"}]}', "model", "model"),
        (b'{"model":7,"messages":[{"role":"user","content":"x"}]}', "model", "model"),
        (b'{"model":"m"}', "messages", "messages"),
        (b'{"model":"m","messages":"x"}', "messages", "messages"),
        (b'{"model":"m","messages":[{"role":"user"}],"stream":"yes"}', "stream", "stream"),
        (b'{"model":"m","messages":[{"role":"user"}],"n":0}', "n", "'n'"),
        (b"\xff\xfe", None, "UTF-8"),
    ],
)
def test_a_malformed_chat_request_is_a_400_that_names_the_field(
    proxy: Proxy, raw: bytes, field: str | None, words: str
) -> None:
    reply = proxy.post("/v1/chat/completions", raw)
    assert reply.status == 400
    error = reply.json["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert words in error["message"]


def test_a_malformed_messages_request_is_told_in_anthropics_shape(proxy: Proxy) -> None:
    reply = proxy.post("/v1/messages", b'{"model":"m"}', anthropic_version="2023-06-01")
    assert reply.status == 400
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert "messages" in reply.json["error"]["message"]
    assert "request-id" in reply.headers


def test_deep_nesting_is_refused_beyond_the_limit(proxy: Proxy) -> None:
    deep = (
        b'{"model":"m","messages":[{"role":"user","content":' + b"[" * 9000 + b"]" * 9000 + b"}]}"
    )
    reply = proxy.post("/v1/chat/completions", deep)
    assert reply.status == 400
    assert "nested" in reply.json["error"]["message"]


def test_a_hundred_levels_are_served(proxy: Proxy) -> None:
    inner = b'{"a":' * 100 + b"1" + b"}" * 100
    body = (
        b'{"model":"mock","temperature":0,"messages":[{"role":"user","content":"x"}],"x":' + inner
    )
    assert proxy.post("/v1/chat/completions", body + b"}").exact == {"fwd": "miss", "stored": True}
    assert proxy.post("/v1/chat/completions", body + b"}").exact["hit"] is True


@pytest.mark.parametrize("odd", [b'"\\ud83d"', b"18446744073709551616", b'"a\\u0000b"'])
def test_odd_but_valid_json_is_cached_exactly(proxy: Proxy, odd: bytes) -> None:
    def body(value: bytes) -> bytes:
        start = b'{"model":"mock","temperature":0,"messages":[{"role":"user","content":"odd"}],"x":'
        return start + value + b"}"

    assert proxy.post("/v1/chat/completions", body(odd)).exact == {"fwd": "miss", "stored": True}
    assert proxy.post("/v1/chat/completions", body(odd)).exact["hit"] is True
    near = {b'"\\ud83d"': b'"\\ud83e"', b"18446744073709551616": b"18446744073709551617"}
    other = near.get(odd, b'"ab"')
    assert proxy.post("/v1/chat/completions", body(other)).exact["fwd"] == "miss"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/messages"), ("PUT", "/v1/chat/completions"), ("GET", "/v1/embeddings")],
)
def test_a_wrong_method_is_a_405_in_the_dialect_of_the_path(
    proxy: Proxy, method: str, path: str
) -> None:
    from proxy import request

    data = b"{}" if method == "PUT" else None
    reply = request(method, proxy.url + path, data, {"authorization": "Bearer k"}, 10)
    assert reply.status == 405
    assert "POST" in reply.json["error"]["message"]
    assert (reply.json.get("type") == "error") is (path == "/v1/messages")


def test_a_twenty_megabyte_body_is_served_and_cached(proxy: Proxy) -> None:
    body = chat_body("x" * 20_000_000)
    assert proxy.chat("x" * 20_000_000, timeout=60).exact == {"fwd": "miss", "stored": True}
    assert proxy.post("/v1/chat/completions", body, timeout=60).exact["hit"] is True


def test_a_body_over_the_limit_is_a_413_before_it_is_read(strict: Proxy) -> None:
    async def announce() -> tuple[int, bytes]:
        reader, writer = await connect(strict.url)
        writer.write(head(strict.url, b"", content_length="70000"))
        answer = await read_answer(reader)
        writer.close()
        return answer.status, answer.body

    status, body = asyncio.run(announce())
    assert status == 413
    assert b"65536" in body


def test_a_chunked_body_over_the_limit_is_a_413(strict: Proxy) -> None:
    async def send() -> int:
        reader, writer = await connect(strict.url)
        start = head(strict.url, b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
        piece = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        writer.write(start + piece * 5 + b"0\r\n\r\n")
        answer = await read_answer(reader)
        writer.close()
        return answer.status

    assert asyncio.run(send()) == 413


def test_a_body_that_stalls_is_a_408(strict: Proxy) -> None:
    async def stall() -> tuple[int, bytes]:
        reader, writer = await connect(strict.url)
        writer.write(head(strict.url, b"x" * 100) + b'{"model"')
        answer = await read_answer(reader)
        writer.close()
        return answer.status, answer.body

    status, body = asyncio.run(stall())
    assert status == 408
    assert b"stalled" in body


def test_a_head_that_stalls_is_closed(strict: Proxy) -> None:
    async def stall() -> bytes:
        reader, writer = await connect(strict.url)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        rest = await reader.read(-1)
        writer.close()
        return rest

    assert asyncio.run(stall()) == b""


def test_a_head_that_does_not_end_is_closed(proxy: Proxy) -> None:
    async def flood() -> int:
        _, writer = await connect(proxy.url)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 64 << 20:
                writer.write(b"x-filler: " + b"x" * 8000 + b"\r\n")
                await writer.drain()
                sent += 8012
        except ConnectionError:
            pass
        writer.close()
        return sent

    assert asyncio.run(flood()) < 32 << 20
    assert proxy.chat("after the flood").status == 200


def test_two_authorization_headers_are_refused(proxy: Proxy) -> None:
    data = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'

    async def twice() -> tuple[int, bytes]:
        reader, writer = await connect(proxy.url)
        first = head(proxy.url, data).replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer b\r\n\r\n")
        writer.write(first + data)
        answer = await read_answer(reader)
        writer.close()
        return answer.status, answer.body

    status, body = asyncio.run(twice())
    assert status == 400
    assert b"authorization" in body


def test_a_slow_body_delays_nobody_else(proxy: Proxy) -> None:
    async def slow_and_quick() -> int:
        _, slow = await connect(proxy.url)
        slow.write(head(proxy.url, b"x" * 50) + b"{")
        await slow.drain()
        answer = await post(proxy.url, chat_body("quick one"))
        slow.close()
        return answer.status

    assert asyncio.run(slow_and_quick()) == 200


def test_bytes_that_begin_no_request_do_not_keep_a_connection_open(strict: Proxy) -> None:
    async def after_an_answer() -> bytes:
        reader, writer = await connect(strict.url)
        data = b'{"model":"mock","messages":[{"role":"user","content":"x"}]}'
        writer.write(head(strict.url, data) + data)
        await read_answer(reader)
        writer.write(b"\r\n")
        rest = await reader.read(-1)
        writer.close()
        return rest

    async def after_a_refusal() -> bytes:
        reader, writer = await connect(strict.url)
        writer.write(head(strict.url, b"", content_length="99999999"))
        await read_answer(reader)
        writer.write(b"x")
        rest = await reader.read(-1)
        writer.close()
        return rest

    assert asyncio.run(after_an_answer()) == b""
    assert asyncio.run(after_a_refusal()) == b""


_BODY = b'{"model":"mock","temperature":0,"messages":[{"role":"user","content":"heads"}]}'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"host: 127.0.0.1", b"x-host: 127.0.0.1", b"one Host header"),
        (b"host: 127.0.0.1", b"host: evil\r\nHost: 127.0.0.1", b"one Host header"),
        (
            b"HTTP/1.1\r\n",
            b"HTTP/1.0\r\ntransfer-encoding: chunked\r\n",
            b"Transfer-Encoding needs HTTP/1.1",
        ),
    ],
)
def test_a_head_that_two_servers_could_read_differently_is_refused_and_the_connection_closed(
    proxy: Proxy, old: bytes, new: bytes, said: bytes
) -> None:
    whole = head(proxy.url, _BODY)
    if b"transfer" in new:
        whole = whole.replace(f"content-length: {len(_BODY)}\r\n".encode(), b"")
    assert old in whole

    async def send() -> bytes:
        reader, writer = await connect(proxy.url)
        writer.write(whole.replace(old, new, 1) + _BODY)
        everything = await reader.read(-1)
        writer.close()
        return everything

    for _ in range(2):  # Known or not.
        answer = asyncio.run(send())
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert said in answer
        proxy.post("/v1/chat/completions", _BODY)


def test_pragma_no_cache_and_min_fresh_ask_for_a_new_answer(proxy: Proxy) -> None:
    def ask(**headers: Any) -> dict[str, str | int | bool]:
        return proxy.post("/v1/chat/completions", _BODY, **headers).exact

    ask()
    assert ask()["hit"] is True
    assert ask(pragma="no-cache")["fwd"] == "request"
    assert ask(pragma="no-cache", cache_control="max-age=600")["hit"] is True
    assert ask(cache_control="min-fresh=600")["hit"] is True
    assert ask(cache_control="min-fresh=90000") == {
        "fwd": "request",
        "stored": True,
        "detail": "min-fresh",
    }


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_without_messages_gets_the_providers_own_word_and_is_not_cached(
    proxy: Proxy, path: str, stream: bool
) -> None:
    body = {"model": "mock", "max_tokens": 5, "temperature": 0, "messages": [], "stream": stream}
    assert proxy.mock is not None
    before = proxy.mock.calls.total
    for _ in range(2):
        reply = proxy.post(path, body)
        assert reply.status == 400
        assert reply.headers["x-trivet-mock"] == "not-a-model"
        assert reply.json["error"]["message"]
        assert reply.exact == {"fwd": "bypass", "detail": "no-messages"}
    assert proxy.mock.calls.total == before + 2
