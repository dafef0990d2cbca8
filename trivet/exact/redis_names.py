"""What processes write to Redis to share their flights, and what the seals are bound to.

    lease    PREFIXlease:TENANT:KEY:ATTEMPT = flight id | sealed process id, with an expiry
    inbox    PREFIXinbox:NONCE              = a list of: number (8 bytes) | sealed event
    channel  PREFIXchannel:PROCESS            kind (1 byte) | flight id | nonce | seal

A follower makes a nonce for each flight that it asks for. The seals bind it with the flight id
and the item's number: what was altered, moved, repeated or recorded earlier does not open. A
wake-up carries no seal: a forged one makes somebody look once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trivet.canonical import join
from trivet.exact.fleet import claim_name
from trivet.exact.flight import Flight
from trivet.exact.seal import Seal

ID = 16
"""Bytes of a flight id, a process id, and a nonce."""
ASK, LEAVE, WAKE = b"A", b"L", b"W"


def new_id() -> bytes:
    """A fresh random id."""
    return os.urandom(ID)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one fleet in Redis, and its sealed values."""

    prefix: str
    seal: Seal

    def lease(self, flight: Flight) -> str:
        """The key of the lease on a flight's tenant, key and attempt."""
        tenant = self.seal.pseudonym(flight.tenant).hex()
        return f"{self.prefix}lease:{tenant}:{flight.key.hex()}:{flight.attempt}"

    def inbox(self, nonce: bytes) -> str:
        """The key of the list that one follower reads."""
        return f"{self.prefix}inbox:{nonce.hex()}"

    def channel(self, process: bytes) -> str:
        """The channel on which a process listens."""
        return f"{self.prefix}channel:{process.hex()}"

    def seal_lease(self, flight: Flight, flight_id: bytes, process: bytes) -> bytes:
        """The value of a lease. No two are equal."""
        return flight_id + self.seal.seal(flight.tenant, _lease(flight, flight_id), process)

    def open_lease(self, flight: Flight, value: bytes) -> tuple[bytes, bytes] | None:
        """Flight id and process id of the leader; None for a forged lease."""
        flight_id = value[:ID]
        process = self.seal.unseal(flight.tenant, _lease(flight, flight_id), value[ID:])
        return None if process is None else (flight_id, process)


@dataclass(frozen=True, slots=True)
class Following:
    """One follower's hold on one flight, as both ends know it."""

    seal: Seal
    tenant: str
    flight_id: bytes
    nonce: bytes

    def seal_item(self, number: int, event: bytes) -> bytes:
        """An inbox item. An empty event says that the leader is alive."""
        head = number.to_bytes(8, "big")
        return head + self.seal.seal(self.tenant, self._context(b"item", head), event)

    def open_item(self, item: bytes) -> tuple[int, bytes] | None:
        """Number and event of an inbox item; None for a forged one."""
        head = item[:8]
        event = self.seal.unseal(self.tenant, self._context(b"item", head), item[8:])
        return None if event is None else (int.from_bytes(head, "big"), event)

    def seal_message(self, kind: bytes, process: bytes) -> bytes:
        """An ask or a leave of the follower `process`, for the leader's channel."""
        sealed = self.seal.seal(self.tenant, self._context(b"message", kind), process)
        return kind + self.flight_id + self.nonce + sealed

    def open_message(self, kind: bytes, sealed: bytes) -> bytes | None:
        """The process that sent an ask or a leave; None for a forged one."""
        return self.seal.unseal(self.tenant, self._context(b"message", kind), sealed)

    def _context(self, use: bytes, detail: bytes) -> bytes:
        return join(b"trivet/flight/1", use, self.flight_id, self.nonce, detail)


def _lease(flight: Flight, flight_id: bytes) -> bytes:
    return join(b"trivet/lease/1", flight_id, claim_name(flight))
