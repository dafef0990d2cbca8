"""uvicorn's HTTP protocol with a guard on request heads, and a lane for hits that need no task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trivet.middleware.call import Whole
from trivet.middleware.direct import DIRECT, Direct, write_whole

_MOST_HEAD = 1 << 16
"""Bytes of a request's head, and of what may come between two pieces of its body (chunk
extensions, trailers); proxies in front usually allow less."""
WRITE_STALL_S = 60.0
"""How long a caller may leave a full send buffer unread."""
_MOST_QUEUED = 256
"""Pipelined requests that may wait on one connection: each answer lets uvicorn read on."""

Later = Coroutine[Any, Any, Whole | None]
Lane = Callable[[dict[str, Any], bytes, float], Whole | Later | None]
"""Answers a whole request, or leaves it to the app: see `QuickLane.answer`."""


class GuardedProtocol(HttpToolsProtocol):
    """Closes a connection whose request head does not arrive in time, or does not end.

    A connection that is kept between requests is uvicorn's own matter (`timeout_keep_alive`).

    A request that came whole in one read is offered to `lane` before a task is made for it, and
    has a `Direct` if the lane leaves it to one. Only one request is ever held back, and only until
    that read was parsed: pipelined ones behind it wait in uvicorn's own queue.

    Trailer fields are dropped: whose request it is, and what it asks, was decided without them
    (RFC 9110 section 6.5.1).
    """

    header_timeout = 20.0
    lane: Lane | None = None
    _reading = False
    _body_came = False
    _held: tuple[RequestResponseCycle, Any] | None = None
    _direct: Direct | None = None
    """Of the last request that has one."""
    _in_head = True
    """A head is waited for, or has begun and not ended."""
    _head_alarm: asyncio.TimerHandle | None = None
    _stall_alarm: asyncio.TimerHandle | None = None
    _fault: str | None = None
    """What is wrong with the request's head."""
    _framing = 0
    """Bytes that came since a head began, or since the last piece of body."""

    def connection_made(self, transport: Any) -> None:
        """Part of `asyncio.Protocol`."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        self._reading, self._body_came = True, False
        began = time.perf_counter()
        try:
            super().data_received(data)
        finally:
            self._reading = False
        if self._held is not None:
            (cycle, app), self._held = self._held, None
            if not self._answered(cycle, app, began):
                super()._start_asgi_task(cycle, app)
        cycle = self.cycle
        if self._in_head or (cycle is not None and cycle.more_body):
            self._framing = 0 if self._body_came else self._framing + len(data)
            if self._framing > _MOST_HEAD:
                self.transport.close()
        served = cycle is None or cycle.response_complete
        # Bytes that begin no request (an empty line, the rest of a refused body) have disarmed
        # uvicorn's keep-alive timer.
        if self._in_head or (served and self.timeout_keep_alive_task is None):
            self._arm()

    def pause_writing(self) -> None:
        """Part of `asyncio.Protocol`: the caller does not read as fast as it is sent."""
        super().pause_writing()
        if self._stall_alarm is None:
            self._stall_alarm = self.loop.call_later(WRITE_STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Part of `asyncio.Protocol`."""
        super().resume_writing()
        self._reads_again()

    def timeout_keep_alive_handler(self) -> None:
        """The connection was idle: what it has not read by now it will not read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _reads_again(self) -> None:
        if self._stall_alarm is not None:
            self._stall_alarm.cancel()
            self._stall_alarm = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._reading and self.lane is not None and self._held is None:
            self._held = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _answered(self, cycle: RequestResponseCycle, app: Any, began: float) -> bool:
        waiting = cycle.more_body or cycle.waiting_for_100_continue or self.flow.write_paused
        if waiting or cycle.scope["method"] != "POST" or self.transport.is_closing():
            return False
        body = bytes(cycle.body)
        reply = self._ask_lane(cycle, body, began)
        if isinstance(reply, Whole):
            write_whole(cycle, reply)
            return True
        self._direct = Direct(cycle, body)
        scope: Any = cycle.scope
        scope[DIRECT] = self._direct
        if reply is None:
            return False
        task = self.loop.create_task(self._answer_later(cycle, app, reply))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        return True

    def _ask_lane(
        self, cycle: RequestResponseCycle, body: bytes, began: float
    ) -> Whole | Later | None:
        scope: Any = cycle.scope
        try:
            return None if self.lane is None else self.lane(scope, body, began)
        except Exception:
            # A boundary: a defect must not cost the connection. The usual path meets it too, and
            # reports it.
            return None

    async def _answer_later(self, cycle: RequestResponseCycle, app: Any, later: Later) -> None:
        reply: Whole | None = None
        with suppress(Exception):  # The same boundary.
            reply = await later
        if reply is None:
            await cycle.run_asgi(app)
            return
        if self.flow.write_paused:
            await self.flow.drain()
        if not self.transport.is_closing():
            write_whole(cycle, reply)

    def on_message_begin(self) -> None:
        """Part of httptools' protocol, which answers 400 for what is raised here, and closes."""
        if len(self.pipeline) >= _MOST_QUEUED:
            raise ValueError("too many pipelined requests")
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Part of httptools' protocol, which answers 400 for what is raised here, and closes."""
        self._disarm()
        self._fault = fault_of_head(self.parser.get_http_version(), self.headers)
        if self._fault is not None:
            raise ValueError(self._fault)
        super().on_headers_complete()
        # The parser hands over trailers as it does headers: they go where nobody looks.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Part of httptools' protocol."""
        self._body_came = True
        super().on_body(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self._disarm()
        super().connection_lost(exc)
        if self._direct is not None:
            direct, self._direct = self._direct, None
            direct.lose()
        self._reads_again()

    def send_400_response(self, msg: str) -> None:
        """Part of uvicorn's protocol."""
        super().send_400_response(self._fault or msg)

    def _arm(self) -> None:
        self._in_head = True
        if self._head_alarm is None:
            self._head_alarm = self.loop.call_later(self.header_timeout, self.transport.close)

    def _disarm(self) -> None:
        self._in_head, self._framing = False, 0
        if self._head_alarm is not None:
            self._head_alarm.cancel()
            self._head_alarm = None


def fault_of_head(version: str, headers: list[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with a request's head that the parser lets through; None if nothing is."""
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        # RFC 9112 section 3.2.
        return "A request has one Host header."
    if version == "1.0" and b"transfer-encoding" in names:
        # RFC 9112 section 6.1: whoever passed it on may have read another end of the body.
        return "Transfer-Encoding needs HTTP/1.1."
    return None


def guarded(header_timeout: float, lane: Lane | None = None) -> type[GuardedProtocol]:
    """The protocol with a time limit in seconds, and with a lane."""
    members = {
        "header_timeout": header_timeout,
        "lane": None if lane is None else staticmethod(lane),
    }
    return type("Protocol", (GuardedProtocol,), members)
