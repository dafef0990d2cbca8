"""Single flight: concurrent requests with one key make one upstream call.

    join ── nobody is on it ─▶ lead: the call runs as a task of its own, whoever asked for it
      └──── a flight is up ──▶ follow: the same bytes, from the first one on
    no usable answer ─▶ join(attempt=1, after=...) ─▶ one of the followers leads, once

A flight is on the board from its start until it finishes, overflows, or is abandoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, assert_never

from trivet.canonical import digest
from trivet.errors import UpstreamError
from trivet.exact.fleet import Claim, Fleet, Lead, Remote
from trivet.exact.flight import Failed, Flight, FlightLimits, Subscription, copy_of
from trivet.messages import ExactKey
from trivet.telemetry import Collapse, Observer

Leading = Callable[[Flight], Coroutine[Any, Any, None]]
"""Makes the upstream call and reports it with `start`, `push` and `finish`."""
Role = Literal["lead", "follow"]

OWN_CALLS = 2
"""How many followers of one key may make a call of their own at a time."""


class Ticket(NamedTuple):
    """A place at a flight. Its holder calls `subscription.leave()` in the end."""

    role: Role
    """`follow` also where the first one here follows a flight of another process."""
    subscription: Subscription


@dataclass(eq=False, slots=True)
class _Running:
    """A flight with what drives it."""

    flight: Flight
    role: asyncio.Future[Role] | None
    """Told by the fleet, where there is one."""
    task: asyncio.Task[None] | None = None
    claim: Claim | None = None


@dataclass(eq=False, slots=True)
class _Gate:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OWN_CALLS))
    users: int = 0


class Collapser:
    """The flights of this process. `fleet` shares them with other processes."""

    def __init__(
        self,
        fleet: Fleet | None,
        observer: Observer,
        *,
        keep_bytes: int,
        window: int,
        lag_s: float = 5.0,
        stall_s: float = 60.0,
    ) -> None:
        """The last four are those of `FlightLimits`."""
        self.purged: Callable[[str], bytes] = lambda tenant: b""
        """A tenant's mark: calls that began under another one are not joined (`PurgeTimes`)."""
        self._fleet = fleet
        self._observer = observer
        self._limits = FlightLimits(keep_bytes, window, lag_s, stall_s)
        self._board: dict[tuple[str, ExactKey, int], Flight] = {}
        self._running: dict[Flight, _Running] = {}
        self._gates: dict[ExactKey, _Gate] = {}

    @property
    def has_fleet(self) -> bool:
        """Other processes may lead the same flights."""
        return self._fleet is not None

    @property
    def flights(self) -> int:
        """How many upstream calls, own and followed, run now."""
        return len(self._running)

    async def join(
        self,
        key: ExactKey,
        tenant: str,
        lead: Leading,
        *,
        attempt: int = 0,
        after: Subscription | None = None,
    ) -> Ticket:
        """A place at the flight for `key`; `lead` runs if there is none.

        After a flight without a usable answer its followers come again with `attempt=1` and with
        `after`, their subscription to it: the first of them leads and the others follow, however
        late they come. Waits for the fleet's claim at most.
        """
        mark = self.purged(tenant)
        if mark:
            key = ExactKey(digest(key, mark))
        flight = self._find(key, tenant, attempt, after)
        if flight is not None:
            self._observer(Collapse("follow", "process"))
            return Ticket("follow", flight.subscribe())
        running = self._launch(key, tenant, lead, attempt)
        if after is not None:
            after.flight.successor = running.flight
        subscription = running.flight.subscribe()
        if running.role is None:
            return Ticket("lead", subscription)
        try:
            return Ticket(await asyncio.shield(running.role), subscription)
        except BaseException:
            subscription.leave()
            raise

    @asynccontextmanager
    async def own_call(self, key: ExactKey) -> AsyncIterator[None]:
        """Admit a follower that found no flight it can use to a call of its own."""
        gate = self._gates.setdefault(key, _Gate())
        gate.users += 1
        try:
            async with gate.places:
                self._observer(Collapse("own-call", "process"))
                yield
        finally:
            gate.users -= 1
            if not gate.users:
                del self._gates[key]

    async def close(self, limit_s: float = 10.0) -> None:
        """Wait for the flights, then cancel those that are left."""
        tasks = {running.task for running in self._running.values() if running.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _find(
        self, key: ExactKey, tenant: str, attempt: int, after: Subscription | None
    ) -> Flight | None:
        if after is not None:
            elected = after.flight.successor
            if elected is not None and _serves(elected, tenant):
                return elected
        flight = self._board.get((tenant, key, attempt))
        # The key holds the tenant; a flight is compared with it all the same (law 2).
        if flight is None or flight.tenant != tenant or not flight.joinable:
            return None
        if after is not None:
            if after.flight is flight:
                return None
            after.flight.successor = flight
        return flight

    def _launch(self, key: ExactKey, tenant: str, lead: Leading, attempt: int) -> _Running:
        flight = Flight(key, tenant, self._limits, attempt=attempt, watch=self._changed)
        loop = asyncio.get_running_loop()
        running = _Running(flight, None if self._fleet is None else loop.create_future())
        self._running[flight] = running
        self._board[tenant, key, attempt] = flight
        running.task = loop.create_task(self._run(running, lead), name="trivet-flight")
        running.task.add_done_callback(lambda task: self._landed(running, task))
        return running

    async def _run(self, running: _Running, lead: Leading) -> None:
        flight = running.flight
        where: Literal["process", "machine", "fleet"] = "process"
        if self._fleet is not None:
            running.claim = await self._fleet.claim(flight)
            where = self._fleet.where
        match running.claim:
            case Remote(feed, undo):
                _decide(running, "follow")
                self._observer(Collapse("follow", where))
                try:
                    await feed(flight)
                finally:
                    undo()
            case Lead() | None:
                _decide(running, "lead")
                self._observer(Collapse("reelect" if flight.attempt else "lead", where))
                await lead(flight)
            case _:
                assert_never(running.claim)

    def _landed(self, running: _Running, task: asyncio.Task[None]) -> None:
        """The task is over, whatever happened: nobody may be left waiting."""
        _decide(running, "lead")
        running.flight.finish(Failed(_reason(task)))
        del self._running[running.flight]

    def _changed(self, flight: Flight) -> None:
        running = self._running.get(flight)
        if running is None:
            return
        if not flight.joinable or flight.deserted:
            self._unlist(running)
        if flight.deserted and not flight.done:
            self._observer(Collapse("abandoned", "process"))
            flight.finish(Failed(UpstreamError("abandoned", "Nobody waited for the answer.")))
            if running.task is not None:
                running.task.cancel()

    def _unlist(self, running: _Running) -> None:
        flight = running.flight
        place = (flight.tenant, flight.key, flight.attempt)
        if self._board.get(place) is flight:
            del self._board[place]
        if isinstance(running.claim, Lead):
            running.claim.undo()


def _decide(running: _Running, role: Role) -> None:
    """Tell what the first one here is. The first call counts."""
    if running.role is not None and not running.role.done():
        running.role.set_result(role)


def _serves(elected: Flight, tenant: str) -> bool:
    return elected.whole and elected.tenant == tenant and not elected.abandoned


def _reason(task: asyncio.Task[None]) -> UpstreamError:
    if task.cancelled():
        return UpstreamError("cancelled", "The upstream call was cancelled.", 503)
    error = task.exception()
    if error is None:
        return UpstreamError("no-answer", "The upstream call ended without an answer.")
    if isinstance(error, UpstreamError):
        return copy_of(error)
    task.get_loop().call_exception_handler(
        {"message": "the leader of a flight failed", "exception": error, "task": task}
    )
    return UpstreamError("internal", "The upstream call could not be made.", 500)
