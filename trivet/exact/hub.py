"""The hub of one machine: worker processes share their flights and their admin commands here.

It runs in the supervisor and holds no answer: it knows who leads which flight and passes frames
between leader and followers. A worker that disconnects, or is silent for a lease, loses its
claims, and those who followed it are told.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trivet.errors import StoreError
from trivet.exact.fleet import is_result, lost, pack_failed
from trivet.exact.frames import FrameLink, Kind, pack_number
from trivet.exact.questions import Handlers, Questions


@dataclass(eq=False, slots=True)
class _Worker:
    link: FrameLink
    heard: float
    claims: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A follower and its leader: the two ends of a link."""

    leader: _Worker
    follower: _Worker


class HubServer:
    """Serves on the Unix domain socket `path`, mode 0600, in a private directory (made if absent).

    `lease_s` is how long a worker may be silent before it counts as dead.
    """

    def __init__(self, path: Path, handlers: Handlers | None = None, *, lease_s: float = 5.0):
        self._path = path
        self._lease_s = lease_s
        self._questions = Questions(handlers or {})
        self._numbers = itertools.count(1)
        self._workers: dict[FrameLink, _Worker] = {}
        self._board: dict[bytes, tuple[int, _Worker]] = {}
        self._names: dict[int, bytes] = {}
        self._links: dict[int, _Pair] = {}
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._actions: dict[int, Callable[[_Worker, int, bytes], None]] = {
            Kind.CLAIM: self._claim,
            Kind.RELEASE: self._release,
            Kind.DATA: self._data,
            Kind.TAKEN: self._taken,
            Kind.LEAVE: self._leave,
        }

    @property
    def workers(self) -> int:
        """How many workers are connected."""
        return len(self._workers)

    async def start(self) -> None:
        """Listen. Raises `OSError` if the socket cannot be made, or not in a private directory."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = self._path.parent.stat()
        if directory.st_uid != os.geteuid() or stat.S_IMODE(directory.st_mode) & 0o077:
            raise PermissionError(f"{self._path.parent} is open to others: the hub needs mode 0700")
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(self._path.lstat().st_mode):
                self._path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._path))
            os.chmod(self._path, 0o600)
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: FrameLink(self._frame, self._opened, self._lost), sock=listener
            )
        except BaseException:
            listener.close()
            raise
        self._pulse = asyncio.create_task(self._beat(), name="trivet-hub-pulse")

    async def close(self) -> None:
        """Stop listening and cut all workers off. Idempotent."""
        if self._server is None or self._pulse is None:
            return
        self._server.close()
        self._server = None
        self._pulse.cancel()
        await asyncio.gather(self._pulse, return_exceptions=True)
        for link in list(self._workers):
            link.close()
        await self._questions.close()
        if self._workers:
            self._empty.clear()
            await self._empty.wait()
        self._path.unlink(missing_ok=True)

    async def call_all(self, topic: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """The answers of all workers; those that fail or take too long are left out."""
        answers = await asyncio.gather(
            *(self._questions.ask(link, topic, payload, timeout_s) for link in self._workers),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, StoreError):
                raise answer
        return [answer for answer in answers if isinstance(answer, bytes)]

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        pause = self._lease_s / 4
        while True:
            slept = loop.time()
            for link in self._workers:
                link.send(Kind.PING, 0)
            await asyncio.sleep(pause)
            now = loop.time()
            if now - slept > 2 * pause:
                continue  # It was this process that stood still.
            for worker in list(self._workers.values()):
                if now - worker.heard > self._lease_s:
                    worker.link.close()

    def _opened(self, link: FrameLink) -> None:
        self._workers[link] = _Worker(link, asyncio.get_running_loop().time())
        link.send(Kind.PING, 0)

    def _lost(self, link: FrameLink) -> None:
        worker = self._workers.pop(link)
        if not self._workers:
            self._empty.set()
        self._questions.lost(link)
        for number in list(worker.claims):
            self._free(worker, number)
        for number, pair in list(self._links.items()):
            if pair.leader is worker:
                del self._links[number]
                pair.follower.link.send(Kind.DATA, number, pack_failed(lost()))
            elif pair.follower is worker:
                del self._links[number]
                pair.leader.link.send(Kind.LEAVE, number)

    def _frame(self, link: FrameLink, kind: int, number: int, payload: bytes) -> None:
        worker = self._workers[link]
        worker.heard = asyncio.get_running_loop().time()
        action = self._actions.get(kind)
        if action is not None:
            action(worker, number, payload)
        else:
            self._questions.take(link, kind, number, payload)

    def _claim(self, worker: _Worker, number: int, name: bytes) -> None:
        flight, leader = self._board.get(name, (0, worker))
        if leader is not worker:
            link = next(self._numbers)
            self._links[link] = _Pair(leader, worker)
            leader.link.send(Kind.FOLLOW, flight, pack_number(link))
            worker.link.send(Kind.FOLLOWS, number, pack_number(link))
            return
        if flight:  # A worker that claims again has dropped its earlier flight.
            self._free(worker, flight)
        flight = next(self._numbers)
        self._board[name] = flight, worker
        self._names[flight] = name
        worker.claims.add(flight)
        worker.link.send(Kind.LEADS, number, pack_number(flight))

    def _release(self, worker: _Worker, flight: int, payload: bytes) -> None:
        if flight in worker.claims:
            self._free(worker, flight)
        worker.link.send(Kind.RELEASED, flight)

    def _free(self, worker: _Worker, flight: int) -> None:
        worker.claims.discard(flight)
        self._board.pop(self._names.pop(flight), None)

    def _data(self, worker: _Worker, number: int, payload: bytes) -> None:
        pair = self._links.get(number)
        if pair is not None and pair.leader is worker:
            if is_result(payload):
                del self._links[number]
            pair.follower.link.send(Kind.DATA, number, payload)

    def _taken(self, worker: _Worker, number: int, payload: bytes) -> None:
        pair = self._links.get(number)
        if pair is not None and pair.follower is worker:
            pair.leader.link.send(Kind.TAKEN, number, payload)

    def _leave(self, worker: _Worker, number: int, payload: bytes) -> None:
        pair = self._links.get(number)
        if pair is not None and pair.follower is worker:
            del self._links[number]
            pair.leader.link.send(Kind.LEAVE, number)
