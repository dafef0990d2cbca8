"""The one thread that an embedder runs in. Whatever happens in it becomes an `EmbedderError`."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from trivet.errors import EmbedderError
from trivet.semantic.types import Embedder
from trivet.semantic.vectors import checked

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

Outcome = list["Vectors | EmbedderError"] | EmbedderError
"""For each text its vector or why there is none; or why the whole batch failed."""
Ended = Callable[[Outcome], None]
_Job = tuple[list[str], Ended]


class EmbeddingThread:
    """Runs batches one after the other, in a thread that starts with the first.

    It is a daemon, so that an embedder that hangs cannot keep the process from ending.
    """

    def __init__(self, embedder: Embedder, check_s: float) -> None:
        self._embedder = embedder
        self._check_s = check_s
        self._checked_at = time.monotonic()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, texts: list[str], ended: Ended) -> None:
        """Embed; `ended` is called in the thread, once, whatever happens.

        Raises `RuntimeError` if no thread can be started.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="trivet-embedder", daemon=True)
            thread.start()
            self._thread = thread
        self._jobs.put((texts, ended))

    def close(self, wait_s: float) -> None:
        """End after the job at hand, and let go of the embedder. Waits at most `wait_s`."""
        if self._thread is None:
            self._release()
            return
        self._jobs.put(None)
        self._thread.join(wait_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            texts, ended = job
            ended(self._outcome(texts))
        self._release()

    def _outcome(self, texts: list[str]) -> Outcome:
        try:
            self._check()
            return self._embedded(texts)
        except EmbedderError as error:
            return self._failed(error)
        except BaseException as error:  # Somebody waits for this thread: nothing may end it.
            return self._failed(EmbedderError("crash", f"{self._embedder.name} failed: {error!r}"))

    def _failed(self, error: EmbedderError) -> EmbedderError:
        # What answers after a failure may be another model: the next batch looks first.
        self._checked_at = -math.inf
        return error

    def _embedded(self, texts: Sequence[str]) -> Outcome:
        try:
            return self._rows(texts)
        except EmbedderError as error:
            if error.reason != "text":
                raise
            # One text that the embedder refuses is not the failure of those beside it.
            return [error] if len(texts) == 1 else [self._alone(text) for text in texts]

    def _alone(self, text: str) -> Vectors | EmbedderError:
        try:
            return self._rows([text])[0]
        except EmbedderError as error:
            if error.reason != "text":
                raise
            return error

    def _rows(self, texts: Sequence[str]) -> list[Vectors | EmbedderError]:
        made = checked(self._embedder.embed(texts), len(texts), self._embedder.dimension)
        rows: list[Vectors | EmbedderError] = []
        for row in made:
            # A copy, since a view of one row would keep the whole batch.
            vector = row.copy()
            vector.setflags(write=False)
            rows.append(vector)
        return rows

    def _check(self) -> None:
        look = getattr(self._embedder, "fingerprint_now", None)
        if look is None or time.monotonic() - self._checked_at < self._check_s:
            return
        try:
            found = look()
        except EmbedderError as error:
            if error.reason != "missing":
                raise
            raise EmbedderError("changed", f"{self._embedder.name} is gone: {error}") from error
        if found != self._embedder.fingerprint:
            told = f"{self._embedder.name} is another model than the one that was opened."
            raise EmbedderError("changed", told)
        self._checked_at = time.monotonic()

    def _release(self) -> None:
        close = getattr(self._embedder, "close", None)
        if close is not None:
            with suppress(Exception):  # It is given up: nobody is left to tell.
                close()
