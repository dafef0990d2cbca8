"""Questions and answers between the processes of one machine: purge, reload, stats, metrics."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping

from trivet.errors import StoreError
from trivet.exact.frames import FrameLink, Kind, pack_topic, unpack_topic

Handlers = Mapping[str, Callable[[bytes], Awaitable[bytes]]]
"""Who answers which topic."""


class Questions:
    """Asks over frame links, and answers with `handlers` what the other side asks."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[FrameLink, asyncio.Future[bytes]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, link: FrameLink, topic: str, payload: bytes, timeout_s: float) -> bytes:
        """The other side's answer.

        Raises `StoreError`: `timeout`, `refused` by the handler, or `lost` with the connection.
        """
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open[number] = link, answer
        try:
            link.send(Kind.ASK, number, pack_topic(topic, payload))
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise StoreError("timeout", f"{topic}: no answer in {timeout_s:g} s") from None
        finally:
            del self._open[number]

    def take(self, link: FrameLink, kind: int, number: int, payload: bytes) -> bool:
        """Handle a frame that is about a question. False if it is about something else."""
        if kind == Kind.ASK:
            topic, question = unpack_topic(payload)
            task = asyncio.create_task(self._answer(link, number, topic, question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return True
        if kind not in (Kind.ANSWER, Kind.REFUSAL):
            return False
        asked, answer = self._open.get(number, (None, None))
        if asked is link and answer is not None and not answer.done():
            if kind == Kind.ANSWER:
                answer.set_result(payload)
            else:
                answer.set_exception(StoreError("refused", payload.decode(errors="replace")))
        return True

    def lost(self, link: FrameLink) -> None:
        """The connection is gone: its questions have no answer."""
        for asked, answer in self._open.values():
            if asked is link and not answer.done():
                answer.set_exception(StoreError("lost", "the connection was lost"))

    async def close(self) -> None:
        """Cancel the handlers that still run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, link: FrameLink, number: int, topic: str, question: bytes) -> None:
        handler = self._handlers.get(topic)
        if handler is None:
            link.send(Kind.REFUSAL, number, f"nobody answers {topic!r}".encode())
            return
        try:
            answer = await handler(question)
        except Exception as error:  # a handler's mistake is the asker's to report
            link.send(Kind.REFUSAL, number, f"{topic}: {error}".encode())
        else:
            link.send(Kind.ANSWER, number, answer)
