"""The data plane's HTTP client against raw sockets, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from raw_upstream import Upstream, answering, both_loops, opened, serving, until

from trivet.errors import UpstreamError
from trivet.middleware.http_client.connection import HELD, Connection
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse

HI = b"HTTP/1.1 200 OK\r\ncontent-type: Text/Plain; charset=x\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def ask(
    client: UpstreamClient, upstream: UpstreamConfig, body: Any = b"{}", method: str = "POST"
) -> UpstreamResponse:
    return await client.send(upstream, method, "/v1/x", [(b"x-a", b"1")], body)


async def refused(client: UpstreamClient, upstream: UpstreamConfig, body: Any = b"{}") -> str:
    """The reason and the status with which a request fails, wherever it does."""
    with pytest.raises(UpstreamError) as caught:
        await read(client, upstream, body)
    assert caught.value.message.endswith(".")
    return f"{caught.value.reason} {caught.value.status}"


async def read(client: UpstreamClient, upstream: UpstreamConfig, body: Any = b"{}") -> bytes:
    response = await ask(client, upstream, body)
    try:
        return await response.read()
    finally:
        response.close()


# The plain case.


@both_loops
async def test_a_request_goes_out_as_given_and_its_answer_comes_back() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        response = await ask(client, upstream.config("/base"))
        assert (response.status, response.media_type, response.coded) == (200, "text/plain", False)
        assert response.headers[1] == (b"content-length", b"2")
        assert await response.read() == b"hi"
        response.close()
        response.close()
        host = b"127.0.0.1:%d" % upstream.port
        assert upstream.requests == [
            (
                b"POST /base/v1/x HTTP/1.1\r\nhost: %b\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n"
                % host,
                b"{}",
            )
        ]


@both_loops
async def test_a_coded_answer_says_so() -> None:
    coded = HI.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    async with serving(answering(coded)) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        assert response.coded
        response.close()


@both_loops
async def test_a_socket_sends_small_writes_at_once() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        await read(client, upstream.config())
        (connection,) = client._client.pool._all
        assert connection._transport is not None
        made = connection._transport.get_extra_info("socket")
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@both_loops
async def test_an_ipv6_literal_is_asked() -> None:
    async with serving(answering(HI), host="::1") as upstream, opened() as client:
        assert await read(client, upstream.config()) == b"hi"
        assert b"\r\nhost: [::1]:%d\r\n" % upstream.port in upstream.requests[0][0]


@both_loops
async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with serving(answering(HI)) as upstream, opened() as client:
        assert await read(client, upstream.config()) == b"hi"


@both_loops
async def test_what_would_inject_a_header_is_not_sent() -> None:
    async with serving(answering(HI)) as upstream, opened() as client:
        for target, name, value in [
            ("/a b", b"x", b"1"),
            ("/a", b"x: 1\r\ny", b"1"),
            ("/a", b"x", b"1\r\nevil: 1"),
        ]:
            with pytest.raises(UpstreamError) as caught:
                await client.send(upstream.config(), "GET", target, [(name, value)], b"")
            assert (caught.value.reason, caught.value.status) == ("upstream-unsendable", 400)
        assert upstream.connections == 0


# Bodies of requests.


async def pieces(*items: bytes, pause: float = 0.0) -> AsyncIterator[bytes]:
    for item in items:
        yield item
        await asyncio.sleep(pause)


@both_loops
async def test_an_iterated_body_goes_in_chunks() -> None:
    async with serving(answering(HI)) as upstream, opened() as client:
        body = pieces(b"one", b"", b"two", pause=0.01)
        assert await read(client, upstream.config(), body) == b"hi"
        assert upstream.requests[0][1] == b"onetwo"


@both_loops
async def test_an_iterated_body_of_known_length_goes_plain() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        fields = [(b"content-length", b"6")]
        for _ in range(2):
            body = pieces(b"one", b"two", pause=0.01)
            response = await client.send(upstream.config(), "PUT", "/v1/x", fields, body)
            assert await response.read() == b"hi"
        head, body_sent = upstream.requests[1]
        assert body_sent == b"onetwo"
        assert b"content-length: 6\r\n" in head
        assert b"chunked" not in head
        assert upstream.connections == 1


@both_loops
@pytest.mark.parametrize("length", [b"5", b"7"])
async def test_a_body_that_is_not_as_long_as_announced_breaks_the_request(length: bytes) -> None:
    async with serving(answering(HI)) as upstream, opened() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(
                upstream.config(),
                "PUT",
                "/v1/x",
                [(b"content-length", length)],
                pieces(b"one", b"two"),
            )
        assert caught.value.reason == "upstream-unsendable"
        await until(lambda: not client._client.pool.size)
        assert upstream.requests == []


@both_loops
async def test_an_iterator_that_fails_breaks_the_request_and_its_error_comes_back() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    async with serving(answering(HI)) as upstream, opened() as client:
        with pytest.raises(ZeroDivisionError):
            await ask(client, upstream.config(), failing())
        await until(lambda: not client._client.pool.size)
        assert upstream.requests == []


@both_loops
async def test_a_large_body_does_not_hold_the_loop() -> None:
    async with serving(answering(HI)) as upstream, opened() as client:
        body = b"0123456789" * 1_000_000
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        assert await read(client, upstream.config(), body) == b"hi"
        counter.cancel()
        await asyncio.wait([counter])
        assert upstream.requests[0][1] == body
        assert turns > 20


@both_loops
@pytest.mark.parametrize("iterated", [False, True])
async def test_a_response_before_the_end_of_the_request_is_delivered(iterated: bool) -> None:
    """The body goes no further, and the connection is not used again."""
    too_large = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(too_large)
        await writer.drain()
        await asyncio.sleep(60)

    endless = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal endless
        try:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0.001)
        finally:
            endless = True

    async with serving(handler, limit=1 << 14) as upstream, opened() as client:
        given: Any = body() if iterated else b"x" * 30_000_000
        response = await ask(client, upstream.config(), given)
        assert response.status == 413
        assert endless is iterated
        assert await response.read() == b"no"
        response.close()
        assert client._client.pool.idle == 0
        await until(lambda: not client._client.pool.size)


@both_loops
async def test_an_early_response_survives_the_close_that_follows_it() -> None:
    too_large = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(too_large)
        await writer.drain()
        await asyncio.sleep(0.1)

    async with serving(handler, limit=1 << 14) as upstream, opened() as client:
        assert await read(client, upstream.config(), b"x" * 30_000_000) == b"no"


# Bodies of responses.


@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        HI,
        CHUNKED + b"1\r\nh\r\n1;e=1\r\ni\r\n0\r\nx-trailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + HI,
    ],
)
async def test_a_response_may_come_byte_by_byte(answer: bytes) -> None:
    dribble = [answer[at : at + 1] for at in range(len(answer))]
    async with serving(answering(*dribble, pause=0.0005)) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        assert response.status == 200
        assert await response.read() == b"hi"
        response.close()


@both_loops
async def test_each_chunk_is_handed_over_as_soon_as_it_is_there() -> None:
    step = asyncio.Event()

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await upstream.read(reader)
        writer.write(CHUNKED)
        for number in range(5):
            await step.wait()
            step.clear()
            writer.write(b"1\r\n%d\r\n" % number)
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with serving(handler) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        seen = []
        step.set()
        async for chunk in response.chunks():
            seen.append(chunk)
            step.set()
        assert seen == [b"0", b"1", b"2", b"3", b"4"]


@both_loops
@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 10"),
        ("HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"),
        ("GET", b"HTTP/1.1 204 No Content"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10"),
    ],
)
async def test_some_responses_have_no_body(method: str, head: bytes) -> None:
    async with (
        serving(answering(head + b"\r\n\r\n", close=False)) as upstream,
        opened() as client,
    ):
        for _ in range(2):
            response = await ask(client, upstream.config(), b"", method)
            assert await response.read() == b""
            response.close()


@both_loops
async def test_a_slow_reader_slows_the_upstream_down() -> None:
    size = 40_000_000
    sent = 0

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal sent
        await upstream.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(100_000))
            sent += 100_000
            await writer.drain()
        await reader.read()

    async with serving(handler) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        incoming = cast(Any, response._response)._incoming
        await until(lambda: incoming.held > HELD)
        await asyncio.sleep(0.2)
        # What is held, one read more, and what fits into the sockets of both sides.
        assert incoming.held <= 3 * HELD
        assert sent < size
        got = 0
        async for chunk in response.chunks():
            got += len(chunk)
            assert incoming.held <= 3 * HELD
        assert got == size
        response.close()


# The pool.


@both_loops
async def test_a_read_response_gives_its_connection_back() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        for _ in range(5):
            assert await read(client, upstream.config()) == b"hi"
        assert (upstream.connections, client._client.pool.idle) == (1, 1)


@both_loops
async def test_a_response_that_is_given_up_half_read_closes_its_socket() -> None:
    ended = asyncio.Event()

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await upstream.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst")
        try:
            await reader.read()
        finally:
            ended.set()

    async with serving(handler) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        async for chunk in response.chunks():
            assert chunk == b"first"
            break
        response.close()
        response.close()
        await asyncio.wait_for(ended.wait(), 5)
        await until(lambda: not client._client.pool.size)
        with pytest.raises(UpstreamError) as caught:
            await response.read()
        assert caught.value.reason == "upstream-cut"


@both_loops
async def test_the_number_of_connections_has_no_bound_and_the_last_used_is_used_first() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        config = upstream.config()
        responses = await asyncio.gather(*(ask(client, config) for _ in range(50)))
        for response in responses:
            await response.read()
        pool = client._client.pool
        assert (upstream.connections, pool.idle) == (50, 50)
        (resting,) = pool._idle.values()
        last = list(resting)[-1]
        for _ in range(3):
            await read(client, config)
            assert list(resting)[-1] is last
        assert upstream.connections == 50


@both_loops
async def test_connections_are_kept_by_origin() -> None:
    async with (
        serving(answering(HI, close=False)) as one,
        serving(answering(HI, close=False)) as other,
        opened() as client,
    ):
        for upstream in (one, other, one, other):
            await read(client, upstream.config())
        assert (one.connections, other.connections) == (1, 1)


@both_loops
async def test_idle_connections_are_let_go_of() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        client._client.pool._idle_s = 0.15
        await asyncio.gather(*(read(client, upstream.config()) for _ in range(3)))
        assert client._client.pool.idle == 3
        await asyncio.sleep(0.1)
        await read(client, upstream.config())
        await until(lambda: client._client.pool.idle == 1)
        await until(lambda: client._client.pool.size == 0)
        await read(client, upstream.config())
        await until(lambda: client._client.pool.size == 0)


@both_loops
async def test_an_idle_connection_that_the_peer_closes_is_dropped_at_once() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        await read(client, upstream.config())
        upstream.writers[0].close()
        await until(lambda: client._client.pool.size == 0)
        assert client._client.pool._idle == {}
        assert await read(client, upstream.config()) == b"hi"
        assert upstream.connections == 2


@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        HI.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        HI.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HI.replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK\r\nconnection: keep-alive"),
        HI + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
        HI + b"garbage",
    ],
)
async def test_some_connections_are_not_used_again(answer: bytes) -> None:
    async with serving(answering(answer, close=False)) as upstream, opened() as client:
        for _ in range(2):
            assert await read(client, upstream.config()) == b"hi"
            assert client._client.pool.idle == 0
        assert upstream.connections == 2


@both_loops
async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with serving(answering(HI, close=False)) as upstream, opened() as client:
        await read(client, upstream.config())
        upstream.writers[0].write(HI.replace(b"hi", b"no"))
        await until(lambda: client._client.pool.size == 0)
        assert await read(client, upstream.config()) == b"hi"
        assert upstream.connections == 2


@both_loops
async def test_bytes_after_an_answer_that_is_still_read_close_the_connection() -> None:
    async with serving(answering(HI, HI, pause=0.02, close=False)) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        await until(lambda: client._client.pool.size == 0)
        assert await response.read() == b"hi"
        assert client._client.pool.idle == 0


# Replays.


def closing_at_reuse(kept: int, after: bytes = b"") -> Any:
    """Answers the first request of its first `kept` connections, and no other of theirs."""

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        mine = upstream.connections
        await upstream.read(reader)
        writer.write(HI)
        await upstream.read(reader)
        if mine > kept:
            writer.write(HI)
        writer.write(after)

    return handler


@both_loops
@pytest.mark.parametrize("second", [b"second", bytes(3_000_000)])
async def test_a_kept_connection_that_closes_without_an_answer_is_replaced_once(
    second: bytes,
) -> None:
    async with serving(closing_at_reuse(1)) as upstream, opened() as client:
        assert await read(client, upstream.config(), b"first") == b"hi"
        assert await read(client, upstream.config(), second) == b"hi"
        assert [body for _, body in upstream.requests] == [b"first", second, second]
        assert upstream.connections == 2


@both_loops
async def test_there_is_no_second_replay_even_if_other_connections_are_kept() -> None:
    closing = False

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await upstream.read(reader)
            if closing:
                return
            writer.write(HI)

    async with serving(handler) as upstream, opened() as client:
        config = upstream.config()
        for response in await asyncio.gather(*(ask(client, config) for _ in range(3))):
            await response.read()
        closing = True
        assert await refused(client, config) == "upstream-cut 502"
        assert len(upstream.requests) == 5
        assert upstream.connections == 4


@both_loops
async def test_a_new_connection_that_closes_without_an_answer_is_not_replaced() -> None:
    async with serving(answering()) as upstream, opened() as client:
        assert await refused(client, upstream.config()) == "upstream-cut 502"
        assert len(upstream.requests) == 1


@both_loops
async def test_an_iterated_body_is_not_replayed() -> None:
    async with serving(closing_at_reuse(1)) as upstream, opened() as client:
        await read(client, upstream.config())
        assert await refused(client, upstream.config(), pieces(b"once")) == "upstream-cut 502"
        assert upstream.connections == 1


@both_loops
async def test_nothing_is_replayed_once_a_byte_of_the_answer_came() -> None:
    async with serving(closing_at_reuse(1, b"H")) as upstream, opened() as client:
        await read(client, upstream.config())
        assert await refused(client, upstream.config()) == "upstream-cut 502"
        assert upstream.connections == 1


# Trouble.


@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        CHUNKED + b"5\r\n12345\r\n",
        CHUNKED + b"5\r\n12345\r\n0\r\n",
        CHUNKED + b"5\r\n123",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_an_answer_that_is_cut_off_is_never_whole(answer: bytes) -> None:
    async with serving(answering(answer)) as upstream, opened() as client:
        assert await refused(client, upstream.config()) == "upstream-cut 502"


@both_loops
async def test_what_came_before_a_cut_is_still_handed_over() -> None:
    async with serving(answering(CHUNKED + b"5\r\n12345\r\n")) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        await until(lambda: client._client.pool.size == 0)
        chunks = response.chunks()
        assert await anext(chunks) == b"12345"
        with pytest.raises(UpstreamError) as caught:
            await anext(chunks)
        assert caught.value.reason == "upstream-cut"


@both_loops
async def test_a_reset_in_a_body_without_length_is_a_cut() -> None:
    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await upstream.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await asyncio.sleep(0.05)
        made = writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with serving(handler) as upstream, opened() as client:
        assert await refused(client, upstream.config()) == "upstream-cut 502"


@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        CHUNKED + b"2\r\nab\r\nzz\r\n",
    ],
)
async def test_garbage_is_called_garbage(answer: bytes) -> None:
    async with serving(answering(answer, close=False)) as upstream, opened() as client:
        assert await refused(client, upstream.config()) == "upstream-garbage 502"
        await until(lambda: client._client.pool.size == 0)


@both_loops
async def test_a_port_that_nobody_listens_on_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = UpstreamConfig(name="raw", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        async with opened() as client:
            with pytest.raises(UpstreamError) as caught:
                await ask(client, config)
    assert caught.value.reason == "upstream-refused"
    assert caught.value.message == "The upstream 'raw' cannot be reached: Connection refused."


@both_loops
async def test_a_name_that_does_not_resolve_is_refused() -> None:
    config = UpstreamConfig(name="raw", base_url="http://nowhere.invalid")
    async with opened() as client:
        assert await refused(client, config) == "upstream-refused 502"


@both_loops
async def test_a_peer_that_accepts_no_connection_is_given_up_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        config = UpstreamConfig(name="raw", base_url=url, connect_timeout=0.2)
        async with opened() as client:
            assert await refused(client, config) == "upstream-connect 504"
        for filler in fillers:
            filler.close()


@both_loops
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 20", b"HTTP/1.1 100 Continue\r\n\r\n", HI[:-1], CHUNKED]
)
async def test_silence_is_given_up_in_time(said: bytes) -> None:
    async with serving(answering(said, close=False)) as upstream, opened() as client:
        config = upstream.config(read_timeout=0.2)
        assert await refused(client, config) == "upstream-timeout 504"
        await until(lambda: client._client.pool.size == 0)


@both_loops
async def test_an_upstream_that_takes_no_more_of_the_body_is_silent_too() -> None:
    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await asyncio.sleep(60)

    async with serving(handler, limit=1 << 14) as upstream, opened() as client:
        config = upstream.config(read_timeout=0.2)
        assert await refused(client, config, b"x" * 30_000_000) == "upstream-timeout 504"
        assert await refused(client, config, pieces(b"x" * 30_000_000)) == "upstream-timeout 504"


@both_loops
async def test_slow_progress_is_no_silence() -> None:
    pieces_of = [HI[at : at + 10] for at in range(0, len(HI), 10)]
    async with (
        serving(answering(*pieces_of, pause=0.1, close=False)) as upstream,
        opened() as client,
    ):
        config = upstream.config(read_timeout=0.3)
        for _ in range(2):
            assert await read(client, config) == b"hi"
        assert upstream.connections == 1


@both_loops
async def test_a_caller_who_is_slow_is_not_the_upstreams_silence() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n" + bytes(900_000)
    async with serving(answering(answer, close=False)) as upstream, opened() as client:
        config = upstream.config(read_timeout=0.1)
        response = await ask(client, config, pieces(b"one", b"two", pause=0.3))
        size = 0
        async for chunk in response.chunks():
            size += len(chunk)
            await asyncio.sleep(0.25)
        assert size == 900_000


# Cancellation.


@both_loops
@pytest.mark.parametrize("body", ["bytes", "large", "iterated"])
async def test_a_cancelled_request_closes_its_connection(body: str) -> None:
    ended = asyncio.Event()

    async def handler(
        upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            while body == "large" and not ended.is_set():
                await asyncio.sleep(0.01)
            await reader.read()
        finally:
            ended.set()

    given: Any = {
        "bytes": b"{}",
        "large": bytes(30_000_000),
        "iterated": pieces(b"1", b"2", pause=30),
    }[body]
    async with serving(handler, limit=1 << 14) as upstream, opened() as client:
        task = asyncio.create_task(ask(client, upstream.config(), given))
        await until(lambda: upstream.connections == 1)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: client._client.pool.size == 0)


@both_loops
async def test_a_cancelled_reader_closes_the_connection() -> None:
    async with serving(answering(CHUNKED, close=False)) as upstream, opened() as client:
        response = await ask(client, upstream.config())
        task = asyncio.create_task(response.read())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: client._client.pool.size == 0)
        response.close()


@both_loops
async def test_a_request_may_be_cancelled_at_any_step() -> None:
    async with serving(answering(HI, pause=0.001, close=False)) as upstream, opened() as client:
        config = upstream.config()
        for steps in range(12):
            task = asyncio.create_task(read(client, config))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert await read(client, config) == b"hi"
        await until(lambda: client._client.pool.size == client._client.pool.idle)


@both_loops
async def test_a_connection_that_is_made_while_its_request_is_cancelled_is_forgotten() -> None:
    async with serving(answering(HI)) as upstream, opened() as client:
        pool = client._client.pool
        tell = pool.opened

        def opened_too_late(connection: Connection, /) -> None:
            tell(connection)
            task.cancel()

        pool.opened = opened_too_late  # type: ignore[method-assign]
        task = asyncio.create_task(read(client, upstream.config()))
        await asyncio.wait([task])
        assert task.cancelled()
        await until(lambda: pool.size == 0)


@both_loops
async def test_closing_the_client_breaks_off_what_is_open() -> None:
    async with serving(answering(CHUNKED + b"1\r\na\r\n", close=False)) as upstream:
        async with opened() as client:
            response = await ask(client, upstream.config())
            waiting = asyncio.create_task(response.read())
            await asyncio.sleep(0.02)
        with pytest.raises(UpstreamError) as caught:
            await waiting
        assert caught.value.reason == "upstream-cut"
        await client.close()
