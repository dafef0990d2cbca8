"""Listens to the KV events that an engine publishes over ZeroMQ.

Three frames: topic, number (8 bytes, big-endian), msgpack. The socket tells prompts and salts in
clear to whoever connects: it belongs on a network that only the proxy and the engine share.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Literal

from trivet.errors import ConfigError, Problem
from trivet.prefix.routing.kv_events_wire import Batch, read_batch

_REORDERED: Final = 64
"""Numbers behind the last one that are taken for repeated, not for a publisher that began anew."""
_LARGEST: Final = 64 << 20

Order = Literal["next", "gap", "seen", "restarted"]


class Numbers:
    """Which batches were seen, by their numbers. Pure."""

    def __init__(self) -> None:
        self._last: int | None = None

    def order(self, number: int) -> Order:
        """What this number says about the batches before it."""
        last = self._last
        if last is not None and last - _REORDERED < number <= last and (number or not last):
            return "seen"
        self._last = number
        if last is None or number == last + 1:
            return "next"
        return "gap" if number > last else "restarted"


Apply = Callable[[Batch, Order], None]


class KvEvents:
    """One engine's events. Raises `ConfigError` where the extra `fleet` is not installed."""

    def __init__(self, endpoint: str, apply: Apply) -> None:
        try:
            # Without type hints of its own.
            msgpack: Any = import_module("msgpack")
            import zmq
            import zmq.asyncio
        except ImportError as error:
            message = f"needs trivet[fleet] to be installed ({error})"
            raise ConfigError(Problem("server config", 0, 0, "kv_events", message)) from None
        self._unpack: Callable[..., Any] = msgpack.unpackb
        self._context: Any = zmq.asyncio.Context()
        self._socket: Any = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(endpoint)
        self._numbers = Numbers()
        self._apply = apply
        self.bad = 0
        """Messages and events that could not be read; the others count."""

    async def follow(self) -> None:
        """Hand over batches, until cancelled. ZeroMQ connects again by itself."""
        while True:
            self.take(await self._socket.recv_multipart())

    def take(self, frames: list[bytes]) -> None:
        """One message."""
        if len(frames) != 3 or len(frames[1]) != 8:
            self.bad += 1
            return
        order = self._numbers.order(int.from_bytes(frames[1], "big"))
        if order == "seen":
            return
        try:
            payload = self._unpack(frames[2], raw=False, strict_map_key=False)
        # Whatever a peer sends; msgpack's own errors have no common base.
        except Exception:
            self.bad += 1
            return
        batch = read_batch(payload)
        self.bad += batch.unread
        self._apply(batch, order)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close(linger=0)
        self._context.term()
