"""What the collapser asks of a fleet (the hub of a machine, or Redis), and what crosses it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol, assert_never

from trivet.errors import UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.flight import Failed, Flight, Head, Result, Stored, Subscription, Unstored
from trivet.messages import ExactKey


@dataclass(frozen=True, slots=True)
class Lead:
    """This process makes the call. `undo` frees the claim: idempotent, returns at once."""

    undo: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Remote:
    """Another process makes the call. `feed` fills the local flight and finishes it.

    `undo` tells the leader that this process follows no more: idempotent, returns at once.
    """

    feed: Callable[[Flight], Coroutine[Any, Any, None]]
    undo: Callable[[], None]


Claim = Lead | Remote


ALONE = Lead(lambda: None)
"""Leads without having claimed anything: the fleet is in trouble."""

LINGER_S = 0.25
"""How long the claim of a re-election that is over still leads other processes to its answer:
their followers hear of the failure at different times, and must not elect once more."""


class Fleet(Protocol):
    """Processes that share their upstream calls."""

    where: Literal["machine", "fleet"]

    async def claim(self, flight: Flight) -> Claim:
        """Claim the flight's tenant, key and attempt.

        Raises nothing: a fleet in trouble lets this process lead, within a time budget. May be
        cancelled at any await. A leader keeps `flight` at hand to serve remote followers, each
        of which is one subscription.
        """
        ...


Event = Head | bytes | Result
"""A flight in transit: one head, its bytes, one result."""

_HEAD, _BYTES, _STORED, _UNSTORED, _FAILED = range(5)
_START = struct.Struct(">BHB")
_PAIR = struct.Struct(">HI")
_STATUS = struct.Struct(">BH")
_SEALED = 33
"""Where a sealed entry begins, behind its kind and its key."""


def claim_name(flight: Flight) -> bytes:
    """What processes compare: attempt, key (32 bytes) and tenant, in an injective encoding."""
    return b"%c%b%b" % (min(flight.attempt, 255), flight.key, flight.tenant.encode())


def lingers(flight: Flight) -> bool:
    """Whether the claim of this flight outlives it by `LINGER_S`."""
    return flight.attempt > 0 and flight.done and flight.whole and not flight.deserted


def lost() -> Failed:
    """What followers learn when their leader is gone."""
    return Failed(UpstreamError("leader-lost", "The process that made the call is gone."))


def gone() -> Failed:
    """What a follower learns that comes when the flight is over."""
    return Failed(UpstreamError("flight-over", "The flight ended before it could be followed."))


async def events_of(subscription: Subscription, limit: int) -> AsyncIterator[Event]:
    """A flight as events: head, bytes (about `limit` at most at a time), result."""
    head = await subscription.head()
    if isinstance(head, Head):
        yield head
        try:
            while chunk := await subscription.read(limit):
                yield chunk
        except UpstreamError as error:
            yield Failed(error)
            return
    yield await subscription.result()


def crashed(task: asyncio.Task[None]) -> bool:
    """Whether a task that sends a flight broke down; the event loop's handler is told of it."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        context = {"message": "a flight could not be sent", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
    return error is not None


def pack_failed(failed: Failed) -> bytes:
    """`Failed` as bytes."""
    error = failed.error
    reason = error.reason.encode()[:255]
    return b"%b%c%b%b" % (
        _STATUS.pack(_FAILED, error.status),
        len(reason),
        reason,
        error.message.encode(),
    )


def is_result(packed: bytes) -> bool:
    """Whether a packed event is the last one of its flight."""
    return packed[0] >= _STORED


@dataclass(frozen=True, slots=True)
class EventCodec:
    """Events as bytes, the first of which is the kind. Entries are the injected codec's matter."""

    encode: Callable[[Entry], bytes]
    decode: Callable[[str, ExactKey, bytes], Entry | None]

    def pack(self, event: Event) -> bytes:
        """The event as bytes."""
        match event:
            case bytes():
                return b"%c%b" % (_BYTES, event)
            case Head():
                parts = [_START.pack(_HEAD, event.status, event.stream)]
                for name, value in event.headers:
                    parts += (_PAIR.pack(len(name), len(value)), name, value)
                return b"".join(parts)
            case Stored(entry):
                # A flight goes by more than its entry's key.
                return b"%c%b%b" % (_STORED, entry.key, self.encode(entry))
            case Unstored(reason):
                return b"%c%b" % (_UNSTORED, reason.encode())
            case Failed():
                return pack_failed(event)
            case _:
                assert_never(event)

    def unpack(self, flight: Flight, packed: bytes) -> Event:
        """The event for `flight`; `Failed` for bytes that another version of `pack` made."""
        kind = packed[0] if packed else -1
        if kind == _BYTES:
            return packed[1:]
        try:
            return self._unpack(kind, flight, packed)
        except (struct.error, ValueError, IndexError):
            return Failed(UpstreamError("garbled", "The leader speaks another version."))

    def _unpack(self, kind: int, flight: Flight, packed: bytes) -> Event:
        if kind == _HEAD:
            return _unpack_head(packed)
        if kind == _STORED:
            key, sealed = ExactKey(packed[1:_SEALED]), packed[_SEALED:]
            entry = self.decode(flight.tenant, key, sealed)
            return Unstored("handover") if entry is None else Stored(entry)
        if kind == _UNSTORED:
            return Unstored(packed[1:].decode())
        if kind == _FAILED:
            status = _STATUS.unpack_from(packed)[1]
            end = 4 + packed[3]
            reason, message = packed[4:end].decode(), packed[end:].decode()
            return Failed(UpstreamError(reason, message, status))
        raise ValueError(f"not an event: kind {kind}")


def _unpack_head(packed: bytes) -> Head:
    _, status, stream = _START.unpack_from(packed)
    headers: list[tuple[bytes, bytes]] = []
    at = _START.size
    while at < len(packed):
        name_size, value_size = _PAIR.unpack_from(packed, at)
        at += _PAIR.size
        end = at + name_size + value_size
        headers.append((packed[at : at + name_size], packed[at + name_size : end]))
        at = end
    return Head(status, tuple(headers), bool(stream))
