"""The server's protocol: bounded heads, and hits answered before a task is made."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn
from asgi_driver import Rig, Script, chat_body, json_script
from openai_bodies import call, calling, completion
from test_quick import Behind, Slow, lane_of
from uvicorn.server import ServerState

from trivet.errors import StoreError
from trivet.middleware.call import Whole
from trivet.middleware.running import guarded_protocol
from trivet.middleware.running.guarded_protocol import GuardedProtocol, Lane, guarded

PATH = "/v1/chat/completions"


class Transport(asyncio.Transport):
    """What the protocol writes, and what it asks of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closed = False
        self.aborted = False
        self.unread = 0
        self.reading = True
        self.high_water: int | None = None
        """Bytes after which the protocol is told to pause; nothing is ever taken off."""
        self.protocol: GuardedProtocol | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.out += data
        if self.high_water is not None and len(self.out) > self.high_water:
            assert self.protocol is not None
            self.protocol.pause_writing()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread


class Line:
    """One connection to a protocol that serves `rig`."""

    def __init__(self, rig: Rig, lane: Lane | None, header_timeout: float = 20.0) -> None:
        config = uvicorn.Config(
            rig.app, lifespan="off", date_header=False, server_header=False, log_config=None
        )
        self.transport = Transport()
        self.protocol = guarded(header_timeout, lane)(config, ServerState(), {})
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)

    @property
    def out(self) -> bytes:
        return self.transport.out

    def take(self, data: bytes) -> bytes:
        """Feed one read; what was written before the loop ran on."""
        before = len(self.out)
        self.protocol.data_received(data)
        return self.out[before:]

    async def settle(self) -> bytes:
        """Let every task end; all that was written."""
        await until(lambda: not self.protocol.tasks and not self.protocol.pipeline)
        return self.out

    def leave(self) -> None:
        self.transport.closed = True
        self.protocol.connection_lost(None)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def post(text: str = "hi", *, head: str = "", version: str = "1.1", **fields: Any) -> bytes:
    """A chat request as bytes. `head` holds whole header lines."""
    body = json.dumps(chat_body(text, **fields)).encode()
    lines = f"POST {PATH} HTTP/{version}\r\nhost: x\r\nauthorization: Bearer sk-acme\r\n"
    return f"{lines}{head}content-length: {len(body)}\r\n\r\n".encode() + body


def chunked(text: str = "hi", *, head: str = "", trailer: str = "") -> bytes:
    """The same with chunked coding, its body in two chunks."""
    _, _, body = post(text).partition(b"\r\n\r\n")
    lines = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-acme\r\n{head}"
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:9], body[9:]))
    end = f"0\r\n{trailer}\r\n".encode()
    return f"{lines}transfer-encoding: chunked\r\n\r\n".encode() + pieces + end


def masked(out: bytes) -> bytes:
    """Without ids and dates. Only call ids differ in length, and no answer here has any."""
    out = re.sub(rb"\r\n(date|x-request-id): [^\r]+", rb"\r\n\1: *", out)
    return re.sub(rb'"id":"[^"]+"', rb'"id":"*"', out)


async def teach(rig: Rig, *requests: bytes) -> None:
    """Ask the usual way, so that all of it is recalled."""
    for data in requests:
        line = Line(rig, None)
        line.take(data)
        await line.settle()
        line.leave()


async def knowing(*requests: bytes, **fields: Any) -> tuple[Rig, Lane]:
    rig = Rig(json_script(completion()), **fields)
    await teach(rig, *(requests or (post(),)))
    return rig, lane_of(rig).answer


class TestHit:
    @pytest.mark.parametrize(
        "data",
        [
            post(),
            post(stream=True),
            post(version="1.0"),
            post(head="connection: close\r\n"),
            post(head="connection: keep-alive\r\n"),
            chunked(),
        ],
    )
    async def test_the_answer_is_the_usual_one_byte_for_byte(self, data: bytes) -> None:
        rig, lane = await knowing(data)
        usual = Line(rig, None)
        usual.take(data)
        await usual.settle()
        quick = Line(rig, lane)
        out = quick.take(data)
        assert b"cache-status: trivet-exact; hit" in out
        assert masked(out) == masked(usual.out)
        assert quick.transport.closed == usual.transport.closed
        assert quick.protocol.cycle.response_complete
        assert not quick.protocol.tasks
        quick.leave()
        usual.leave()

    async def test_the_connection_is_kept_and_its_timer_armed(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        for _ in range(3):
            assert line.take(post()).startswith(b"HTTP/1.1 200 OK\r\n")
            assert line.protocol.timeout_keep_alive_task is not None
        assert line.protocol.server_state.total_requests == 3
        line.leave()
        assert line.protocol._head_alarm is None

    async def test_a_request_in_pieces_goes_the_usual_way(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        data = post()
        assert line.take(data[:-5]) == b""
        assert line.take(data[-5:]) == b""
        assert b"; hit" in await line.settle()
        line.leave()

    async def test_a_head_and_a_body_in_two_reads_go_the_usual_way(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        head, _, body = post().partition(b"\r\n\r\n")
        assert line.take(head + b"\r\n\r\n") == b""
        assert line.take(body) == b""
        assert b"; hit" in await line.settle()
        line.leave()

    async def test_who_waits_for_a_100_is_answered_100_first(self) -> None:
        rig, lane = await knowing(post(head="expect: 100-continue\r\n"))
        line = Line(rig, lane)
        line.take(post(head="expect: 100-continue\r\n"))
        out = await line.settle()
        assert out.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        line.leave()

    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
    async def test_other_methods_on_the_path_are_not_hits(self, method: str) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        assert line.take(post().replace(b"POST", method.encode(), 1)) == b""
        assert b"; hit" not in await line.settle()
        line.leave()

    async def test_two_keys_on_one_connection_are_two_callers(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        other = post().replace(b"sk-acme", b"sk-evil")
        assert b"; hit" in line.take(post())
        assert line.take(other) == b""
        assert b"fwd=miss" in (await line.settle())[-1000:]
        assert b"; hit" in line.take(other)
        assert b"; hit" in line.take(post())
        assert [done.tenant for done in rig.done[-4:]] == [
            rig.done[0].tenant,
            rig.done[-2].tenant,
            rig.done[-2].tenant,
            rig.done[0].tenant,
        ]
        assert rig.done[-1].tenant != rig.done[-2].tenant
        line.leave()


class TestPipelined:
    @pytest.mark.parametrize(
        ("texts", "outcomes"),
        [
            (("hi", "hi"), ["hit", "hit"]),
            (("hi", "new"), ["hit", "miss"]),
            (("new", "hi"), ["miss", "hit"]),
            (("hi", "new", "hi"), ["hit", "miss", "hit"]),
        ],
    )
    async def test_answers_keep_the_order_of_their_requests(
        self, texts: tuple[str, ...], outcomes: list[str]
    ) -> None:
        rig, lane = await knowing()
        reported = len(rig.done)
        line = Line(rig, lane)
        line.take(b"".join(map(post, texts)))
        out = await line.settle()
        found = ["hit" if b"; hit" in part else "miss" for part in out.split(b"HTTP/1.1 200")[1:]]
        assert found == outcomes
        assert [done.outcome for done in rig.done[reported:]] == outcomes
        line.leave()

    async def test_what_comes_while_an_answer_is_under_way_waits_for_it(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        line.take(post("new"))
        assert line.take(post()) == b""
        out = await line.settle()
        assert [b"; hit" in part for part in out.split(b"HTTP/1.1 200")[1:]] == [False, True]
        line.leave()

    async def test_a_hit_and_the_start_of_the_next_request_in_one_read(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        two = post() + post()
        assert line.take(two[: len(post()) + 30]).count(b"; hit") == 1
        assert line.take(two[len(post()) + 30 :]).count(b"; hit") == 1
        line.leave()

    async def test_garbage_behind_a_hit_ends_the_connection_without_a_crash(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        line.take(post() + b"\x00garbage\r\n\r\n")
        assert line.out.startswith(b"HTTP/1.1 400")
        assert line.transport.closed
        line.leave()
        await line.settle()

    async def test_a_queue_without_end_closes_the_connection(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        line.take(post("new") + post() * 5000)
        assert line.transport.closed
        assert len(line.protocol.pipeline) <= 256
        line.leave()
        await until(lambda: not line.protocol.tasks)


class TestUnreadAnswers:
    async def test_who_does_not_read_is_sent_no_more_than_a_buffer(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        line.transport.high_water = 10_000
        for _ in range(50):
            if not line.transport.reading:
                break
            line.take(post())
            await asyncio.sleep(0)
        assert not line.transport.reading
        assert len(line.out) < 12_000
        line.transport.high_water = None
        written = line.out.count(b"; hit")
        line.protocol.resume_writing()
        out = await line.settle()
        assert out.count(b"; hit") > written
        line.leave()

    async def test_who_does_not_read_on_is_cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guarded_protocol, "WRITE_STALL_S", 0.01)
        line = Line(Rig(), None)
        line.protocol.pause_writing()
        await until(lambda: line.transport.aborted)
        line.leave()

    async def test_who_reads_on_in_time_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guarded_protocol, "WRITE_STALL_S", 0.01)
        line = Line(Rig(), None)
        line.protocol.pause_writing()
        line.protocol.resume_writing()
        other = Line(Rig(), None)
        other.protocol.pause_writing()
        await until(lambda: other.transport.aborted)  # A timer of the same length, set later.
        assert not line.transport.aborted
        line.leave()
        other.leave()

    async def test_a_second_pause_does_not_put_the_end_off(self) -> None:
        line = Line(Rig(), None)
        line.protocol.pause_writing()
        alarm = line.protocol._stall_alarm
        line.protocol.pause_writing()
        assert line.protocol._stall_alarm is alarm
        line.leave()

    async def test_no_timer_outlives_its_connection(self) -> None:
        line = Line(Rig(), None)
        line.protocol.pause_writing()
        line.leave()
        assert line.protocol._stall_alarm is None

    async def test_what_an_idle_caller_has_not_read_is_dropped(self) -> None:
        line = Line(Rig(), None)
        line.transport.unread = 1
        line.protocol.timeout_keep_alive_handler()
        assert line.transport.aborted
        line.leave()

    async def test_an_idle_caller_who_has_read_all_is_let_go_in_order(self) -> None:
        line = Line(Rig(), None)
        line.protocol.timeout_keep_alive_handler()
        assert (line.transport.closed, line.transport.aborted) == (True, False)
        line.leave()

    async def test_over_a_real_socket_the_call_of_a_caller_who_does_not_read_ends(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(guarded_protocol, "WRITE_STALL_S", 0.05)
        ended = asyncio.Event()

        async def endless(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            gone = asyncio.create_task(receive())
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
            ended.set()

        config = uvicorn.Config(endless, lifespan="off", log_config=None)
        state = ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: guarded(20.0)(config, state, {}), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(10):
                await ended.wait()
        server.close()
        await until(lambda: not state.tasks)


class TestTrailers:
    async def test_a_trailer_is_no_header(self) -> None:
        rig, _ = await knowing()
        line = Line(rig, None)
        line.take(chunked(trailer="trivet-version: a=1\r\nauthorization: Bearer sk-evil\r\n"))
        out = await line.settle()
        assert b"; hit" in out
        line.leave()

    async def test_a_trailer_that_comes_late_is_no_header_either(self) -> None:
        rig, lane = await knowing()
        data = chunked("other", trailer="trivet-version: a=1\r\n")
        cut = data.index(b"0\r\ntrivet")
        line = Line(rig, lane)
        line.take(data[:cut])
        await asyncio.sleep(0)
        line.take(data[cut:])
        await line.settle()
        named = Line(rig, lane)
        as_header = chunked("other").replace(b"\r\n\r\n", b"\r\ntrivet-version: a=1\r\n\r\n", 1)
        assert named.take(as_header) == b""
        assert b"fwd=miss" in await named.settle()
        line.leave()
        named.leave()

    @pytest.mark.parametrize("start", [b"0\r\nx: ", b"5;ext="])
    async def test_trailers_and_chunk_extensions_end_or_the_connection_does(
        self, start: bytes
    ) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        head, _, _ = chunked().partition(b"\r\n\r\n")
        line.take(head + b"\r\n\r\n" + b"3\r\n{  \r\n")
        line.take(start)
        for _ in range(70):
            if line.transport.closed:
                break
            line.take(b"y" * 1024)
        assert line.transport.closed
        line.leave()
        await until(lambda: not line.protocol.tasks)

    async def test_a_long_body_is_no_long_head(self) -> None:
        rig = Rig(json_script(completion()))
        line = Line(rig, None)
        data = post("x" * 300_000)
        for start in range(0, len(data), 1000):
            line.take(data[start : start + 1000])
            await asyncio.sleep(0)
        assert b"HTTP/1.1 200" in await line.settle()
        assert not line.transport.closed
        line.leave()


class TestHead:
    async def test_a_head_without_end_closes_the_connection(self) -> None:
        line = Line(Rig(), None)
        line.take(b"POST / HTTP/1.1\r\nx: ")
        for _ in range(70):
            line.take(b"y" * 1024)
        assert line.transport.closed
        line.leave()

    async def test_a_head_that_does_not_come_closes_the_connection(self) -> None:
        line = Line(Rig(), None, header_timeout=0.01)
        await until(lambda: line.transport.closed)
        line.leave()

    @pytest.mark.parametrize(
        ("head", "said"),
        [
            ("POST / HTTP/1.1\r\n", "A request has one Host header."),
            ("POST / HTTP/1.1\r\nhost: a\r\nHost: a\r\n", "A request has one Host header."),
            ("POST / HTTP/1.0\r\nhost: a\r\nhost: b\r\n", "A request has one Host header."),
            (
                "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n",
                "Transfer-Encoding needs HTTP/1.1.",
            ),
        ],
    )
    async def test_a_head_that_servers_could_read_differently_is_a_400_and_the_end(
        self, head: str, said: str
    ) -> None:
        rig = Rig()
        line = Line(rig, None)
        line.take(f"{head}\r\n0\r\n\r\n".encode())
        assert line.out.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert line.out.endswith(said.encode())
        assert line.transport.closed
        assert rig.done == []
        line.leave()

    async def test_such_a_head_is_refused_before_a_quick_hit_too(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        assert line.take(post().replace(b"host: x\r\n", b"", 1)).startswith(b"HTTP/1.1 400")
        line.leave()

    async def test_http_1_0_needs_no_host(self) -> None:
        rig = Rig(json_script(completion()))
        line = Line(rig, None)
        line.take(post(version="1.0").replace(b"host: x\r\n", b"", 1))
        assert (await line.settle()).startswith(b"HTTP/1.1 200")
        line.leave()

    async def test_a_request_after_one_that_was_fine_is_looked_at_too(self) -> None:
        rig, lane = await knowing()
        line = Line(rig, lane)
        line.take(post())
        assert b"HTTP/1.1 400" in line.take(post().replace(b"host: x", b"host: x\r\nhost: y", 1))
        line.leave()


class TestDefects:
    async def test_a_defect_in_the_lane_is_the_usual_paths_to_report(self) -> None:
        rig, _ = await knowing()

        def broken(scope: dict[str, Any], body: bytes, began: float) -> Whole | None:
            raise KeyError("x")

        line = Line(rig, broken)
        assert line.take(post()) == b""
        assert b"; hit" in await line.settle()
        line.leave()

    async def test_a_defect_while_the_store_is_asked_is_too(self) -> None:
        rig, _ = await knowing()

        async def breaking() -> Whole | None:
            raise KeyError("x")

        line = Line(rig, lambda scope, body, began: breaking())
        line.take(post())
        assert b"; hit" in await line.settle()
        line.leave()

    async def test_a_caller_who_left_is_not_written_to(self) -> None:
        rig, _ = await knowing()
        ready = asyncio.Event()

        async def waiting() -> Whole | None:
            await ready.wait()
            return Whole(200, [], b"x")

        line = Line(rig, lambda scope, body, began: waiting())
        line.take(post())
        line.leave()
        ready.set()
        await until(lambda: not line.protocol.tasks)
        assert line.out == b""


class TestBehindALine:
    @staticmethod
    async def lines(data: bytes) -> tuple[Rig, Slow, Line]:
        slow = Slow()
        rig = Rig(json_script(calling(call(0))), store=Behind(slow))
        await teach(rig, data)
        slow.gets = 0
        return rig, slow, Line(rig, lane_of(rig).answer)

    async def test_a_hit_is_answered_by_one_question(self) -> None:
        rig, slow, line = await self.lines(post())
        assert line.take(post()) == b""
        assert b"; hit" in await line.settle()
        assert (slow.gets, rig.done[-1].outcome) == (1, "hit")
        line.leave()

    async def test_a_miss_goes_on_the_usual_way(self) -> None:
        rig, slow, line = await self.lines(post())
        await slow.purge(rig.done[0].tenant, None, 1e12)
        line.take(post())
        assert b"fwd=miss" in await line.settle()
        assert slow.gets == 1
        line.leave()

    async def test_pipelined_answers_keep_their_order(self) -> None:
        _, _, line = await self.lines(post())
        line.take(post() + post("new") + post())
        out = await line.settle()
        assert [b"; hit" in part for part in out.split(b"HTTP/1.1 200")[1:]] == [True, False, True]
        line.leave()

    async def test_a_store_in_trouble_fails_nothing(self) -> None:
        _, slow, line = await self.lines(post())
        slow.trouble = StoreError("timeout")
        line.take(post())
        assert b"detail=store-timeout" in await line.settle()
        assert slow.gets == 1
        line.leave()

    async def test_a_shutdown_meanwhile_lets_the_answer_out_and_closes(self) -> None:
        _, _, line = await self.lines(post())
        line.take(post())
        line.protocol.shutdown()
        out = await line.settle()
        assert b"connection: close\r\n" in out
        assert line.transport.closed
        line.leave()


async def test_a_shutdown_between_quick_hits_closes_at_once() -> None:
    rig, lane = await knowing()
    line = Line(rig, lane)
    line.take(post())
    line.protocol.shutdown()
    assert line.transport.closed
    line.leave()


class TestDirect:
    """What a request that came whole has beside ASGI."""

    async def test_a_miss_is_written_in_one_piece_with_what_asgi_would_send(self) -> None:
        rig, lane = await knowing(post("other"))
        rig.upstream.scripts += [json_script(completion())] * 2
        usual, direct = Line(rig, None), Line(rig, lane)
        for line, text in ((usual, "one"), (direct, "two")):
            line.take(post(text))
            await line.settle()
        assert b"fwd=miss" in direct.out
        assert masked(direct.out) == masked(usual.out)

    async def test_a_caller_who_leaves_ends_the_call_that_nobody_else_waits_for(self) -> None:
        rig, lane = await knowing(post("other"))
        line = Line(rig, lane)
        rig.upstream.scripts[:] = [Script(asyncio.Event())]
        line.take(post("slow"))
        await until(lambda: rig.collapser.flights == 1)
        line.leave()
        await line.settle()
        await until(lambda: rig.collapser.flights == 0)
        assert rig.done[-1].reason == "client-gone"


class Waiting:
    """An app whose answers wait for the test; it knows whom it serves and who has gone."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        while (await receive())["more_body"]:
            pass
        leaving = asyncio.create_task(self._watch(scope["path"], receive))
        await asyncio.wait(
            [leaving, asyncio.create_task(self.go.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        if not leaving.done():
            leaving.cancel()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def _watch(self, path: str, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.append(path)


@pytest.fixture
async def served() -> AsyncIterator[tuple[Waiting, ServerState, Any]]:
    app, state = Waiting(), ServerState()
    config = uvicorn.Config(app, lifespan="off", log_config=None, http=guarded(20.0))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: guarded(20.0)(config, state, {}), "127.0.0.1", 0)
    yield app, state, server.sockets[0].getsockname()
    app.go.set()
    server.close()
    await until(lambda: not state.tasks)


def get(path: str, body: bytes = b"") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        % (
            path.encode(),
            len(body),
        )
        + body
    )


Served = tuple[Waiting, ServerState, Any]


def only(state: ServerState) -> GuardedProtocol:
    """The one connection there is."""
    (line,) = state.connections
    assert isinstance(line, GuardedProtocol)
    return line


class TestLeaving:
    @pytest.mark.parametrize("reset", [True, False])
    async def test_a_second_request_does_not_hide_that_the_caller_has_gone(
        self, served: Served, reset: bool
    ) -> None:
        app, state, address = served
        with socket.create_connection(address) as caller:
            caller.sendall(get("/a"))
            await until(lambda: app.asked == ["/a"])
            caller.sendall(get("/b"))
            line = only(state)
            await until(lambda: len(line.pipeline) == 1)
            if reset:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await until(lambda: app.gone == ["/a"])
        await until(lambda: not state.tasks)
        assert app.asked == ["/a"]

    async def test_who_ends_sending_in_the_middle_of_a_request_has_gone(
        self, served: Served
    ) -> None:
        app, _, address = served
        reader, writer = await asyncio.open_connection(*address)
        writer.write(get("/a") + get("/b", b"12345")[:-2])
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        await until(lambda: app.gone == ["/a"])
        writer.close()

    async def test_what_waits_behind_an_answer_is_read_up_to_a_bound(self, served: Served) -> None:
        app, state, address = served
        reader, writer = await asyncio.open_connection(*address)
        writer.write(get("/a"))
        await until(lambda: app.asked == ["/a"])
        writer.write(get("/b", b"x" * (8 << 20)))
        line = only(state)
        await until(lambda: line.flow.read_paused)
        assert len(line.cycle.body) < 1 << 20
        app.go.set()
        out = b""
        while out.count(b"HTTP/1.1 200") < 2:
            out += await asyncio.wait_for(reader.read(65536), 5)
        writer.close()
