"""uvicorn's HTTP protocol with a guard on request heads, and a lane for hits that need no task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from trivet.middleware.arrival.direct import DIRECT, Direct, write_whole
from trivet.middleware.call import Whole
from trivet.request_heads import CheckedHeads, Fault
from trivet.telemetry import HeadRefused, Observer, ignore

WRITE_STALL_S = 60.0
"""How long a caller may leave a full send buffer unread."""

_MOST_AHEAD = 1 << 16
"""Bytes behind a request that is being answered which are read all the same: only who reads sees
that the caller has gone."""

Later = Coroutine[Any, Any, Whole | None]
Lane = Callable[[dict[str, Any], bytes, float], Whole | Later | None]
"""Answers a whole request, or leaves it to the app: see `QuickLane.answer`."""


class GuardedProtocol(CheckedHeads):
    """Closes a connection whose request head does not arrive in time, or does not end.

    A connection that is kept between requests is uvicorn's own matter (`timeout_keep_alive`).

    A request that came whole in one read is offered to `lane` before a task is made for it, and
    has a `Direct` if the lane leaves it to one. Only one request is ever held back, and only until
    that read was parsed: pipelined ones behind it wait in uvicorn's own queue.

    Who ends its sending has gone: a client that closes looks like one that only half closes, and
    the calls of the first have to end.
    """

    header_timeout = 20.0
    lane: Lane | None = None
    observer: Observer = staticmethod(ignore)
    _reading = False
    _held: tuple[RequestResponseCycle, Any] | None = None
    _direct: Direct | None = None
    """Of the last request that has one."""
    _running: RequestResponseCycle | None = None
    """Of the request that is being answered, or was last."""
    _ahead = 0
    _stall_alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Part of `asyncio.Protocol`."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        self._reading = True
        if self._ahead and not self.pipeline:
            self._ahead = 0
        began = time.perf_counter()
        try:
            super().data_received(data)
        finally:
            self._reading = False
        if self._held is not None:
            (cycle, app), self._held = self._held, None
            if not self._answered(cycle, app, began):
                super()._start_asgi_task(cycle, app)
        if self.pipeline:
            self._read_ahead(len(data))
        cycle = self.cycle
        served = cycle is None or cycle.response_complete
        # Bytes that begin no request (an empty line, the rest of a refused body) have disarmed
        # uvicorn's keep-alive timer.
        if self._in_head or (served and self.timeout_keep_alive_task is None):
            self._arm()

    def _read_ahead(self, came: int) -> None:
        self._ahead += came
        reads = not self.flow.write_paused and not self.transport.is_closing()
        if reads and self._ahead <= _MOST_AHEAD:
            self.flow.resume_reading()

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
        self._running = cycle
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

    def refused(self, fault: Fault) -> None:
        """Told of every head that is refused."""
        self.observer(HeadRefused(fault.reason))

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self.disarm_head()
        # Requests that wait are nobody's any more, and nothing can be read or written.
        left = [self._running, *(cycle for cycle, _ in self.pipeline)]
        self.pipeline.clear()
        self.flow.read_paused = False
        for cycle in left:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)
        if self._direct is not None:
            direct, self._direct = self._direct, None
            direct.lose()
        self._reads_again()

    def _arm(self) -> None:
        self._in_head = True
        if self._head_alarm is None:
            self._head_alarm = self.loop.call_later(self.header_timeout, self.transport.close)


def guarded(
    header_timeout: float, lane: Lane | None = None, observer: Observer = ignore
) -> type[GuardedProtocol]:
    """The protocol with a time limit in seconds, a lane, and who is told of refused heads."""
    members = {
        "header_timeout": header_timeout,
        "lane": None if lane is None else staticmethod(lane),
        "observer": staticmethod(observer),
    }
    return type("Protocol", (GuardedProtocol,), members)
