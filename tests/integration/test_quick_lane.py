"""Hits on known requests, over real sockets: what the usual path promises holds for them too.

Whether a reply was quick cannot be seen from outside, which is the point. A request whose body
comes in a packet of its own goes the usual way, so the two can be compared.
"""

from __future__ import annotations

import asyncio
import re
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, serving
from quick_line import (
    Line,
    split,
    status,
    talk,
    teach,
    whole,
)
from raw_http import Answer, connect


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving(None, "--log-requests", "--log-format", "json") as running:
        yield running


class TestFraming:
    @pytest.mark.parametrize("text", ["framed", "framed stream"])
    def test_one_packet_and_two_get_the_same_answer(self, proxy: Proxy, text: str) -> None:
        request = whole(proxy, text)
        teach(proxy, request)

        async def ask(line: Line) -> list[Answer]:
            return [await line.ask(request), await line.ask(*split(request))]

        quick, usual = talk(proxy, ask)
        assert status(quick) == status(usual) == "hit"
        assert list(quick.headers) == list(usual.headers)
        for name in set(quick.headers) - {"x-request-id", "date", "age", "content-length"}:
            # The lifetime may have lost a second in between.
            seconds = re.compile(r"ttl=\d+")
            one, two = (seconds.sub("ttl", answer.headers[name]) for answer in (quick, usual))
            assert one == two
        ids = re.compile(rb'"id":"[^"]+"')
        assert ids.sub(b"", quick.body) == ids.sub(b"", usual.body)
        assert quick.body != usual.body
        assert quick.headers["x-request-id"] != usual.headers["x-request-id"]

    @pytest.mark.parametrize(
        ("texts", "outcomes"),
        [
            (("known", "known"), ["hit", "hit"]),
            (("known", "new 1"), ["hit", "fwd=miss"]),
            (("new 2", "known"), ["fwd=miss", "hit"]),
            (("known", "new 3", "known", "known"), ["hit", "fwd=miss", "hit", "hit"]),
        ],
    )
    def test_pipelined_answers_keep_their_order(
        self, proxy: Proxy, texts: tuple[str, ...], outcomes: list[str]
    ) -> None:
        teach(proxy, whole(proxy, "known"))

        async def ask(line: Line) -> list[str]:
            line.writer.write(b"".join(whole(proxy, text) for text in texts))
            return [status(await line.read()) for _ in texts]

        assert talk(proxy, ask) == outcomes

    def test_a_connection_is_kept_through_many_hits(self, proxy: Proxy) -> None:
        request = whole(proxy, "kept")
        teach(proxy, request)

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(request)) for _ in range(50)]

        assert talk(proxy, ask) == ["hit"] * 50

    @pytest.mark.parametrize("how", ["close", "1.0"])
    def test_who_asks_for_an_end_of_the_connection_gets_it(self, proxy: Proxy, how: str) -> None:
        request = whole(proxy, "ending")
        if how == "close":
            request = request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
        else:
            request = request.replace(b"HTTP/1.1", b"HTTP/1.0", 1)

        async def ask(line: Line) -> tuple[Answer, bool]:
            return await line.ask(request), await line.ended()

        for _ in range(3):
            answer, ended = talk(proxy, ask)
            assert (answer.headers["connection"], ended) == ("close", True)
        assert status(answer) == "hit"

    def test_who_waits_for_a_100_gets_it_first(self, proxy: Proxy) -> None:
        request = whole(proxy, "expecting", expect="100-continue")
        start, _, body = request.partition(b"\r\n\r\n")

        async def ask(line: Line) -> str:
            line.writer.write(start + b"\r\n\r\n")
            async with asyncio.timeout(20):
                assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            return status(await line.ask(body))

        assert [talk(proxy, ask) for _ in range(3)] == ["fwd=miss", "hit", "hit"]

    def test_a_chunked_body_is_the_same_question(self, proxy: Proxy) -> None:
        request = whole(proxy, "in chunks")
        teach(proxy, request)
        start, _, body = request.partition(b"\r\n\r\n")
        start = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", start)
        chunks = b"3\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:3], len(body) - 3, body[3:])

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(start + b"\r\n\r\n" + chunks)) for _ in range(3)]

        assert talk(proxy, ask) == ["hit"] * 3

    def test_other_methods_on_the_path_are_not_answered_as_hits(self, proxy: Proxy) -> None:
        request = whole(proxy, "methods")
        teach(proxy, request)

        async def ask(line: Line) -> list[Any]:
            found: list[Any] = [status(await line.ask(request))]
            found.append((await line.ask(request.replace(b"POST", b"PUT", 1))).status)
            found.append((await line.ask(request.replace(b"POST", b"GET", 1))).status)
            found.append(status(await line.ask(request)))
            line.writer.write(request.replace(b"POST", b"HEAD", 1))
            async with asyncio.timeout(20):
                found.append((await line.reader.readuntil(b"\r\n\r\n")).split()[1])
            return [*found, status(await line.ask(request))]

        assert talk(proxy, ask) == ["hit", 405, 405, "hit", b"405", "hit"]

    def test_no_number_of_pipelined_requests_grows_the_process(self, proxy: Proxy) -> None:
        request = whole(proxy, "flood stream")
        teach(proxy, request)
        before = _resident(proxy)
        lines = [_unread(proxy) for _ in range(4)]
        try:
            for line in lines:
                _flood(line, request * 40)
            grown = _resident(proxy) - before
        finally:
            for line in lines:
                line.close()
        assert grown < 64 << 20
        assert proxy.chat("flood stream", stream=True).exact["hit"] is True

    def test_who_never_reads_is_not_written_to_without_end(self, proxy: Proxy) -> None:
        request = whole(proxy, "unread stream")
        teach(proxy, request)
        before = _resident(proxy)
        lines = [_unread(proxy) for _ in range(8)]
        try:
            for _ in range(400):
                for line in lines:
                    with suppress(OSError):
                        line.send(request)
            grown = _resident(proxy) - before
        finally:
            for line in lines:
                line.close()
        assert grown < 32 << 20
        assert proxy.chat("unread stream", stream=True).exact["hit"] is True


def _resident(proxy: Proxy) -> int:
    """Bytes of memory that the process holds."""
    pages = Path(f"/proc/{proxy.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def _unread(proxy: Proxy) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host, port = proxy.url.removeprefix("http://").split(":")
    made.connect((host, int(port)))
    made.settimeout(0.5)
    return made


def _flood(line: socket.socket, data: bytes) -> None:
    """Send for as long as the other side takes it, 40 MB at most."""
    with suppress(OSError):
        for _ in range((40 << 20) // len(data)):
            line.sendall(data)


@pytest.mark.parametrize("store", ["memory", "sqlite:"])
def test_a_shutdown_cuts_no_quick_answer_short(store: str) -> None:
    with serving(store=store) as ending:
        request = whole(ending, "ending")
        teach(ending, request)
        hits = 0
        cut_short: list[bytes] = []

        async def ask_on(line: Line) -> None:
            nonlocal hits
            while True:
                line.writer.write(request)
                try:
                    answer = await line.read()
                except (asyncio.IncompleteReadError, ConnectionError) as error:
                    cut_short.append(getattr(error, "partial", b""))
                    return
                assert (answer.status, status(answer)) == (200, "hit")
                hits += 1
                if answer.headers.get("connection") == "close":
                    return

        async def run() -> None:
            lines = [Line(*await connect(ending.url)) for _ in range(8)]
            asking = [asyncio.create_task(ask_on(line)) for line in lines]
            while hits < 100:
                await asyncio.sleep(0.01)
            ending.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*asking)
            for line in lines:
                line.writer.close()

        asyncio.run(run())
        assert not any(cut_short)
        assert ending.process.wait(20) == 0
