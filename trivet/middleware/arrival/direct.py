"""One request at the server, past ASGI's messages: its body, its caller's leaving, its reply.

ASGI tells of a disconnect only who waits for it, which takes a task, and takes a reply in two
messages. Where uvicorn has the whole request already, neither is needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from trivet.middleware.call import Whole

DIRECT: Final = "trivet.direct"
"""Where an ASGI scope has the `Direct` of its request."""
NO_BODY: Final = frozenset({204, 304})
"""Such responses end with their head (RFC 9110 section 6.4.1)."""


_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Bytes of a field's name (RFC 9110 section 5.6.2)."""
_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
"""Bytes that no field's value has (RFC 9110 section 5.5)."""


class Direct:
    """A request that came whole, for the one task that answers it.

    All that it does can be done by ASGI's `receive` and `send` as well, until `respond` was True.
    """

    __slots__ = ("_body", "_cycle", "_gone", "_lost")

    def __init__(self, cycle: RequestResponseCycle, body: bytes) -> None:
        self._cycle = cycle
        self._body = body
        self._gone: Callable[[], None] | None = None
        self._lost = False

    def take(self) -> bytes:
        """The whole body, once, in place of `receive`."""
        cycle, body = self._cycle, self._body
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        cycle.body = bytearray()
        self._body = b""
        return body

    def watch(self, gone: Callable[[], None]) -> None:
        """Have `gone` called, once, when the caller's connection is lost, or was already."""
        self._gone = gone
        # The end of a connection is only seen by who reads.
        self._cycle.flow.resume_reading()
        if self._lost:
            asyncio.get_running_loop().call_soon(self.lose)

    def lose(self) -> None:
        """The connection was lost."""
        self._lost = True
        if self._gone is not None:
            gone, self._gone = self._gone, None
            gone()

    def end(self) -> None:
        """The task is done with the request: nobody is told anything any more."""
        self._gone, self._body = None, b""

    def respond(self, reply: Whole) -> bool:
        """Write the reply in one piece. False, with nothing written, where `send` has to do it."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.transport.is_closing() or cycle.response_started:
            return False
        if reply.status not in STATUS_LINE or reply.status < 200 or reply.status in NO_BODY:
            return False
        names = b"".join([name for name, _ in reply.headers])
        values = b"".join([value for _, value in reply.headers])
        if names.translate(None, _TOKEN) or len(values.translate(None, _CONTROLS)) < len(values):
            return False
        write_whole(cycle, reply)
        return True


def write_whole(cycle: RequestResponseCycle, reply: Whole) -> None:
    """Answer a POST in one write.

    The headers name neither a length nor anything about the connection; a date is added where
    they name none.
    """
    parts = [STATUS_LINE[reply.status]]
    dated = False
    for name, value in reply.headers:
        dated = dated or name == b"date"
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"content-length: %d" % len(reply.body))
    if not dated:
        parts += (b"\r\ndate: ", http_date(int(time.time())))
    parts.append(b"\r\n\r\n" if cycle.keep_alive else b"\r\nconnection: close\r\n\r\n")
    parts.append(reply.body)
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"".join(parts))
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


@lru_cache(maxsize=2)
def http_date(now: int) -> bytes:
    """The `Date` field of RFC 9110 section 6.6.1 for a Unix time."""
    return formatdate(now, usegmt=True).encode()
