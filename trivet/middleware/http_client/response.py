"""One response as it arrives: fed with bytes, asked for its head and its body. Does no I/O."""

from __future__ import annotations

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from trivet.middleware.http_client.errors import Garbage, Lost
from trivet.middleware.http_client.request import Fields

MAX_HEAD: Final = 64 << 10
"""Bytes that a head may have, interim responses before it included; and what may come between
two pieces of a body (chunk extensions, trailers)."""


class Incoming:
    """Reads one final response; interim ones (1xx) and trailers are passed over."""

    __slots__ = (
        "_bodiless",
        "_fault",
        "_framing",
        "_parser",
        "_parts",
        "_until_close",
        "begun",
        "complete",
        "headed",
        "headers",
        "held",
        "reusable",
        "status",
    )

    def __init__(self, *, bodiless: bool) -> None:
        self.status = 0
        self.headers: Fields = []
        self.begun = False
        """A byte has come."""
        self.headed = False
        """The head is whole: `status` and `headers` hold."""
        self.complete = False
        """The body is whole; some of it may still be held here."""
        self.reusable = False
        """The connection may carry another exchange once this one is complete."""
        self.held = 0
        """Body bytes that were not taken."""
        self._bodiless = bodiless
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._until_close = False
        self._framing = 0  # bytes since the last piece of body
        self._fault = ""

    def feed(self, data: bytes) -> None:
        """Take what came. Raises `Garbage`; the pieces before it can still be taken."""
        parser = self._parser
        if parser is None:
            self.reusable = False
            return
        self.begun = True
        self._framing += len(data)
        held = self.held
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            # After the end of the response: it stands, and the connection does not.
            self.reusable = False
            if not self.complete:
                raise self._garbage(self._fault or str(error)) from None
        if self.complete:
            self._parser = None
        elif self.held != held:
            self._framing = 0
        elif self._framing > MAX_HEAD:
            what = "between two pieces of body" if self.headed else "in a head"
            raise self._garbage(f"more than {MAX_HEAD} bytes {what}")

    def end(self, *, truncated: bool = False) -> None:
        """The peer has closed its side, or, where `truncated`, somebody between here and there.

        Raises `Lost` if that does not complete the response.
        """
        self.reusable = False
        self._parser = None
        if not self.complete:
            if truncated or not self._until_close:
                raise Lost(begun=self.begun)
            self.complete = True

    def take(self) -> bytes:
        """The body bytes that came since the last call."""
        parts = self._parts
        if not parts:
            return b""
        self._parts, self.held = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def on_message_begin(self) -> None:
        """For the parser: a response starts; a second final one was not asked for."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """For the parser: one field of a head, or a trailer."""
        if not self.headed:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """For the parser: a head is whole."""
        parser = self._parser
        if self.complete or parser is None:
            return
        status = parser.get_status_code()
        if status < 200:
            self.headers = []
            if status == 101:
                self._refuse("a switch of protocols that nobody asked for")
            return
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(f"HTTP version {version}")
        if self._framing > MAX_HEAD and _size(self.headers) > MAX_HEAD:
            self._refuse(f"more than {MAX_HEAD} bytes in a head")
        framed = self._is_framed() or status in (204, 304)
        self.status, self.headed = status, True
        self._until_close = not framed and not self._bodiless
        if self._bodiless:
            # The parser cannot be told that no body follows: it is of no use for what comes next.
            self.complete = True
        else:
            self.reusable = version == "1.1" and parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """For the parser: a piece of body."""
        if self.headed and not self.complete:
            self._parts.append(data)
            self.held += len(data)

    def on_message_complete(self) -> None:
        """For the parser: a response is whole; an interim one is not the one waited for."""
        if self.headed:
            self.complete = True

    def _garbage(self, fault: str) -> Garbage:
        self._parser = None  # It and this object hold each other.
        return Garbage(fault)

    def _is_framed(self) -> bool:
        framed = False
        for name, value in self.headers:
            lower = name.lower()
            if lower == b"transfer-encoding":
                if framed or value.lower() != b"chunked":
                    self._refuse("a transfer coding that was not asked for")
                framed = True
            elif lower == b"content-length":
                framed = True
        return framed

    def _refuse(self, fault: str) -> None:
        self._fault = fault
        raise ValueError(fault)


def _size(headers: Fields) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)
