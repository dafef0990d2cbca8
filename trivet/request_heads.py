"""Request heads as every server of ours takes them: bounded, and ended where they say.

llhttp passes over the body of a request that asks for another protocol (`Connection: upgrade` with
`Upgrade`, or CONNECT), and what follows the head is then parsed as the next request, which a proxy
in front never sent as one. A server may ignore `Upgrade` (RFC 9110 section 7.8), and ours do: the
parser gets the field under a name that it does not know, and it is left out of the request.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MOST_FIELDS = 128
"""Fields of a request's head. Each costs some hundred bytes of memory, however short it is."""
MOST_NAME = 256
"""Bytes of a field's name: what is known of names is remembered, and no field has a longer one."""
LINGER_S = 1.0
"""How long what still comes of a refused head is read and dropped: a connection that is closed
over unread bytes is reset, which can cost the caller the answer."""
MOST_HEAD = 1 << 16
"""Bytes of a request's head, and of what may come between two pieces of its body (chunk
extensions, trailers); proxies in front usually allow less."""
_MOST_QUEUED = 256
"""Pipelined requests that may wait on one connection: each answer lets uvicorn read on."""
_SHORT = 4096
"""Bytes in which a head may come at once without its fields being counted one by one."""
_MOST_MASKED = 64
"""Lines that begin as `Upgrade` does and are looked at in one read: a body can be full of them."""
_UPGRADE = re.compile(rb"\n[uU][pP][gG][rR][aA][dD][eE]")
_END = b"\n\r\n"
_NAME = b"upgrade"
_OFFER = b"\nupgrade"
_MASKED = b"upgrad*"


class Fault(NamedTuple):
    """Why a request's head is refused."""

    status: int
    reason: str
    """One word, for the metrics."""
    message: str


_MALFORMED = Fault(400, "malformed", "Invalid HTTP request received.")
_MANY = Fault(
    431, "fields", f"A request has at most {MOST_FIELDS} header fields, named in {MOST_NAME} bytes."
)
_HOST = Fault(400, "host", "A request has one Host header.")
_CODING = Fault(400, "transfer-encoding", "Transfer-Encoding needs HTTP/1.1.")
_CONNECT = Fault(405, "connect", "This server is no tunnel: it does not take CONNECT.")
_QUEUE = Fault(400, "pipelined", "Too many pipelined requests.")
_OTHER_PROTOCOL = Fault(400, "upgrade", "This server speaks HTTP/1.1 only.")


class CheckedHeads(HttpToolsProtocol):
    """uvicorn's HTTP protocol; a head that it must not take is answered, and the connection closed.

    Trailer fields are dropped: whose request it is, and what it asks, was decided without them
    (RFC 9110 section 6.5.1).
    """

    _in_head = True
    """A head is waited for, or has begun and not ended."""
    _begun = False
    """A head has begun and not ended."""
    _line = b""
    """A line feed and what came of a field's name behind it, where it may become `Upgrade`."""
    _masks = False
    """This head has a field whose name the parser got masked."""
    _strict = False
    """Fields are looked at one by one, not only at their head's end."""
    _body_came = False
    _framing = 0
    """Bytes that came since a head began, or since the last piece of body."""
    _head_alarm: asyncio.TimerHandle | None = None
    """Set by who bounds the time that a head may take."""
    _fault: Fault | None = None
    _shut = False
    """A head was refused: nothing more of the connection is looked at."""

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        if self._shut:
            return
        self._body_came = False
        seen = self._line + data if self._line else data
        offers, end = self._look(seen)
        strict = end > _SHORT or self._begun
        if strict or self._strict:
            self._strict = strict
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        if offers:
            self._feed_masked(seen, len(self._line))
        else:
            try:
                self.parser.feed_data(data)
            except HttpParserError:
                self._answer_fault()
        if self._begun or self._line:
            self._line = _open_name(seen) if self._begun else b""
        cycle = self.cycle
        if self._in_head or (cycle is not None and cycle.more_body):
            self._framing = 0 if self._body_came else self._framing + len(data)
            if self._framing > MOST_HEAD:
                self.transport.close()

    def _look(self, seen: bytes) -> tuple[bool, int]:
        """Whether a line begins as `Upgrade` does, and up to where there may be heads.

        A body without line feeds is passed over: a search for one byte costs next to nothing.
        """
        cycle = self.cycle
        if cycle is not None and cycle.more_body and seen.find(b"\n") < 0:
            return False, 0
        at = seen.find(_END)
        if at < 0 or _offers(seen[:at]):
            return at >= 0 or _offers(seen), len(seen)
        end = at + len(_END)
        if seen.find(b"\n", end) < 0:
            return False, end
        return _UPGRADE.search(seen, end - 1) is not None, len(seen)

    def _feed_masked(self, seen: bytes, fed: int) -> None:
        """Give the parser what came; the first `fed` bytes it has already.

        Where a line begins, the parser has told whether it is one of a head's or of a body's.
        """
        for found in list(_UPGRADE.finditer(seen))[:_MOST_MASKED]:
            start, end = max(found.start() + 1, fed), found.end()
            self._feed(seen[fed:start])
            fed = start
            if self._begun:
                self._masks = self._strict = True
                self._feed(seen[start : end - 1] + _MASKED[-1:])
                fed = end
        self._feed(seen[fed:])

    def _feed(self, data: bytes) -> None:
        if data and not self._shut:
            try:
                self.parser.feed_data(data)
            except HttpParserError:
                self._answer_fault()

    def on_message_begin(self) -> None:
        """Part of httptools' protocol, which answers 400 for what is raised here, and closes."""
        if len(self.pipeline) >= _MOST_QUEUED:
            self._refuse(_QUEUE)
        super().on_message_begin()
        self._in_head = self._begun = True
        if self._masks:
            self._masks = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Part of httptools' protocol, as above."""
        name = name.lower()
        if self._strict:
            if len(self.headers) >= MOST_FIELDS:
                self._refuse(_MANY)
            if self._masks and name.startswith(_MASKED):
                if name == _MASKED:
                    return
                name = _NAME + name[len(_MASKED) :]
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Part of httptools' protocol, as above."""
        self._in_head = self._begun = False
        self._framing = 0
        if self._head_alarm is not None:
            self.disarm_head()
        parser: Any = self.parser
        if parser.should_upgrade():
            # The parser would pass over the body.
            self._refuse(_CONNECT if parser.get_method() == b"CONNECT" else _OTHER_PROTOCOL)
        fault = fault_of_head(parser.get_http_version(), self.headers)
        if fault is not None:
            self._refuse(fault)
        super().on_headers_complete()
        # The parser hands over trailers as it does headers: they go where nobody looks.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Part of httptools' protocol."""
        self._body_came = True
        super().on_body(body)

    def disarm_head(self) -> None:
        """The head that was waited for has come, or is not waited for any more."""
        if self._head_alarm is not None:
            self._head_alarm.cancel()
            self._head_alarm = None

    def _answer_fault(self) -> None:
        """The parser met something that it does not take, or that is refused here."""
        fault = self._fault or _MALFORMED
        self.refused(fault)
        lines = (
            STATUS_LINE[fault.status],
            b"content-type: text/plain; charset=utf-8\r\n",
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(fault.message),
            fault.message.encode("ascii"),
        )
        self.transport.write(b"".join(lines))
        self._shut = True
        if self._begun and fault is not _MALFORMED:
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()

    def refused(self, fault: Fault) -> None:
        """Told of every head that is refused."""

    def _refuse(self, fault: Fault) -> None:
        self._fault = fault
        raise ValueError(fault.message)


def fault_of_head(version: str, headers: list[tuple[bytes, bytes]]) -> Fault | None:
    """What is wrong with a request's head that the parser lets through; None if nothing is."""
    names = [name for name, _ in headers]
    if len(names) > MOST_FIELDS or (
        len(b"".join(names)) > MOST_NAME and max(map(len, names)) > MOST_NAME
    ):
        return _MANY
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        # RFC 9112 section 3.2.
        return _HOST
    if version == "1.0" and b"transfer-encoding" in names:
        # RFC 9112 section 6.1: whoever passed it on may have read another end of the body.
        return _CODING
    return None


def _offers(head: bytes) -> bool:
    """Whether a line of it begins as `Upgrade` does."""
    if len(head) > _SHORT:
        return _UPGRADE.search(head) is not None
    return _OFFER in head.lower()


def _open_name(seen: bytes) -> bytes:
    at = seen.rfind(b"\n")
    # Without a line feed the line began earlier, and is none of those looked for.
    if at < 0 or len(seen) - at > len(_NAME):
        return b""
    return seen[at:] if _NAME.startswith(seen[at + 1 :].lower()) else b""
