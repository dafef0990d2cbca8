"""The traffic log: requests of tenants whose policy says `record`, one line each.

The event loop hands over a call that has ended; a thread makes its line and appends it. Nothing
here waits for the disk but that thread: what it cannot keep up with is dropped, and counted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.messages import Usage
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import PromptRecorder
from trivet.middleware.traffic.file import DEFAULT, Rotation, TrafficFile
from trivet.middleware.traffic.line import Ended, line_of
from trivet.policies.model import TenantPolicy
from trivet.policies.traffic import write_line

_BATCH = 256
_BATCH_BYTES = 1 << 20
_CLOSE_S = 5.0
_log = structlog.get_logger("trivet")

Price = Callable[[str, str, Usage], float | None]
"""US dollars by the model that served, the upstream's name, and the usage."""


def recorded(policy: TenantPolicy) -> bool:
    """Whether a tenant's requests are recorded."""
    return policy.semantic.record or policy.prefix.record


class TrafficCounts(NamedTuple):
    """Lines since the start: written, dropped because too many waited, and failed to be written."""

    written: int
    dropped: int
    failed: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Bounds on what waits to be written."""

    requests: int = 4096
    bytes: int = 64 << 20


class _Job(NamedTuple):
    call: Call
    ended: Ended
    size: int


class TrafficLog:
    """Appends to `path`. `record` is for one event loop; no method raises."""

    def __init__(
        self,
        path: Path,
        secret: bytes,
        price: Price = lambda model, upstream, usage: None,
        rotation: Rotation = DEFAULT,
        waiting: Waiting = Waiting(),
    ) -> None:
        """The file and the thread are there from the first recorded request on."""
        self._file = TrafficFile(path, rotation)
        self._secret = secret
        self._prompts = PromptRecorder(secret)
        self._price = price
        self._waiting = waiting
        self._jobs: queue.Queue[_Job | None] = queue.Queue(waiting.requests)
        self._thread: threading.Thread | None = None
        self._closed = False
        # Each is counted up by one thread only.
        self._given_bytes = self._taken_bytes = 0
        self._dropped = self._written = self._failed = 0
        self._trouble = ""

    @property
    def counts(self) -> TrafficCounts:
        """What became of the requests so far."""
        return TrafficCounts(self._written, self._dropped, self._failed)

    @property
    def trouble(self) -> str:
        """Why the last lines were not written; empty while they are."""
        return self._trouble

    def record(self, call: Call, at: float, entry: Entry | None) -> None:
        """Hand over a call that has ended, where its tenant is recorded. Microseconds, or less.

        `at` is when it arrived, in Unix seconds; `entry` is the answer that was served from the
        cache, or recorded while it passed by. The call may not be changed any more.
        """
        if self._closed or not recorded(call.policy):
            return
        note = call.note
        size = len(call.request.forward) + len(call.request.canonical)
        size += 0 if entry is None else len(entry.body)
        if self._given_bytes - self._taken_bytes + size > self._waiting.bytes:
            self._drop()
            return
        price: float | None = None
        if note.usage is not None:
            model = note.response_model or call.request.model
            price = self._price(model, call.upstream.name, note.usage)
        try:
            self._jobs.put_nowait(_Job(call, Ended(at, entry, price), size))
        except queue.Full:
            self._drop()
            return
        self._given_bytes += size
        self._start()

    def close(self) -> None:
        """Write what waits, for some seconds at most, and let go of the file. Blocking."""
        self._closed = True
        if self._thread is None:
            return
        try:
            self._jobs.put(None, timeout=_CLOSE_S)
        except queue.Full:
            return
        self._thread.join(_CLOSE_S)

    def _drop(self) -> None:
        self._dropped += 1
        if self._dropped & (self._dropped - 1) == 0:  # The 1st, 2nd, 4th, 8th, ...
            _log.warning(
                "traffic-dropped", reason="the disk is slower than the requests", lost=self._dropped
            )

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trivet-traffic", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # No thread can be started: the queue fills and drops.
                self._thread = None

    def _run(self) -> None:
        ending = False
        while not ending:
            lines, ending = self._batch()
            if lines:
                self._append(lines)
        self._file.close()

    def _batch(self) -> tuple[list[bytes], bool]:
        """The lines of what waits, at least one request's; and whether that was the last."""
        lines: list[bytes] = []
        size = 0
        job = self._jobs.get()
        while job is not None:
            line = self._line(job)
            self._taken_bytes += job.size
            if line:
                lines.append(line)
                size += len(line)
            if len(lines) >= _BATCH or size >= _BATCH_BYTES:
                return lines, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return lines, False
        return lines, True

    def _line(self, job: _Job) -> bytes:
        try:
            return write_line(line_of(job.call, job.ended, self._secret, self._prompts))
        except Exception as error:
            # A boundary: whatever a body holds, the lines after this one are written.
            self._fail(1, type(error).__name__)
            return b""

    def _append(self, lines: list[bytes]) -> None:
        try:
            self._file.append(b"".join(lines))
        except StoreError as error:
            self._fail(len(lines), str(error))
            return
        self._written += len(lines)
        self._trouble = ""

    def _fail(self, count: int, why: str) -> None:
        self._failed += count
        if why != self._trouble:
            self._trouble = why
            _log.warning("traffic-not-written", reason=why, lost=self._failed)
