"""Reading a request body: bounded in size and in silence, decoded off the loop when large."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from trivet.errors import RequestError
from trivet.middleware.arrival.direct import Direct
from trivet.middleware.dialects.base import Headers

Receive = Callable[[], Any]
Decoded = TypeVar("Decoded")

LARGE = 1 << 20
"""Parsing takes about 1.5 ms a MiB: beyond this size it happens in another process."""
MANY = 1 << 14
"""Commas: each piece of a text takes about 2 us, so what has more goes there too."""
SLOWEST = 16 << 10
"""Bytes a second that a body has to bring on average, once its first allowance is used up."""


class ClientGone(Exception):  # noqa: N818 - an event, not an error
    """The caller closed the connection before its request was complete."""


class _Patience:
    """How long a body may still be waited for: what was waited counts against it, and what came
    counts for it. Only waiting counts, so an upstream that takes a body slowly costs nothing."""

    __slots__ = ("left",)

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def took(self, seconds: float, size: int) -> None:
        """So many seconds were waited for so many bytes."""
        self.left += size / SLOWEST - seconds


class Intake:
    """Reads and decodes bodies under the server's limits."""

    def __init__(self, max_body: int, silence: float, *, helper: bool = True) -> None:
        """`helper`: a process may be started to decode large bodies in; else it is a thread.

        Such a process imports the program's main module again, so only a program whose main
        module is known to bear it may have one.
        """
        self._max_body = max_body
        self._silence = silence
        self._may_have_helper = helper
        self._helper: Executor | None = None
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By tenant; each lasts as long as somebody holds it or waits for it."""

    def check_length(self, declared: bytes | None) -> None:
        """Refuse a body that says it is too large before any of it is read."""
        if declared is not None and declared.isdigit():
            self.check_size(int(declared))

    def holds(self, size: int) -> bool:
        """Whether a body of that size may be read whole."""
        return size <= self._max_body

    def check_size(self, size: int) -> None:
        """Refuse a body that is too large. Raises `RequestError` 413."""
        if not self.holds(size):
            raise self._too_large()

    async def read(self, receive: Receive) -> bytes:
        """The whole body. Raises `RequestError` 413 or 408, or `ClientGone`."""
        message = await self._next(receive)
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            self.check_size(len(body))
            return body
        parts, size = [body], len(body)
        patience = _Patience(self._silence + size / SLOWEST)
        while message.get("more_body", False):
            message = await self._next(receive, patience)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.check_size(size)
        return b"".join(parts)

    async def whole(self, receive: Receive, direct: Direct | None) -> bytes:
        """The whole body: what `direct` has, else `read`."""
        if direct is None:
            return await self.read(receive)
        raw = direct.take()
        self.check_size(len(raw))
        return raw

    async def stream(
        self, receive: Receive, ended: Callable[[], None]
    ) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, for paths that pass through. Bounded in silence and pace, not in
        size.

        `ended` is called once all of it was received.
        """
        more = True
        patience = _Patience(self._silence)
        while more:
            message = await self._next(receive, patience)
            more = message.get("more_body", False)
            if not more:
                ended()
            if message.get("body"):
                yield message["body"]

    async def _next(self, receive: Receive, patience: _Patience | None = None) -> dict[str, Any]:
        began = time.monotonic()
        limit = self._silence if patience is None else min(self._silence, patience.left)
        try:
            async with asyncio.timeout(limit):
                message: dict[str, Any] = await receive()
        except TimeoutError:
            raise self._too_slow(limit) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if patience is not None:
            patience.took(time.monotonic() - began, len(message.get("body", b"")))
        return message

    def _too_slow(self, limit: float) -> RequestError:
        why = f"nothing came for {self._silence:g} seconds"
        if limit < self._silence:
            why = f"it came at less than {SLOWEST} bytes a second"
        return RequestError(408, f"The request body stalled: {why}.", code="request_timeout")

    def _too_large(self) -> RequestError:
        return RequestError(
            413,
            f"The request body is larger than the limit of {self._max_body} bytes.",
            code="request_too_large",
        )

    async def decode(
        self, decode: Callable[[bytes, Headers], Decoded], raw: bytes, headers: Headers, tenant: str
    ) -> Decoded:
        """`decode(raw, headers)`, in a helper process if `raw` is large or of many pieces.

        The helper takes what waits in the order it came, and no tenant has two bodies waiting
        there: tenants take turns, however many bodies one of them sends.
        """
        if len(raw) < LARGE and raw.count(b",") < MANY:
            return decode(raw, headers)
        async with self._turns.setdefault(tenant, asyncio.Lock()):
            return await self._decode_elsewhere(decode, raw, headers)

    async def _decode_elsewhere(
        self, decode: Callable[[bytes, Headers], Decoded], raw: bytes, headers: Headers
    ) -> Decoded:
        loop = asyncio.get_running_loop()
        for _ in range(2 if self._may_have_helper else 0):
            if self._helper is None:
                context = multiprocessing.get_context("spawn")
                self._helper = ProcessPoolExecutor(1, mp_context=context)
            helper = self._helper
            try:
                return await loop.run_in_executor(helper, decode, raw, headers)
            except BrokenProcessPool:
                # Another request may have replaced it already.
                if self._helper is helper:
                    self._helper = None
        return await asyncio.to_thread(decode, raw, headers)

    def close(self) -> None:
        """Stop the helper process."""
        if self._helper is not None:
            self._helper.shutdown(wait=False, cancel_futures=True)
            self._helper = None
