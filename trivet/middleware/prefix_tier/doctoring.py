"""The live layout doctor: looks at what went upstream, in a thread of its own.

The event loop hands over a call that has ended; nothing waits for what comes of it. The thread
rests nineteen times as long as it works, so that it takes a twentieth of a core at most. What it
cannot keep up with is not looked at, and counted.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import cache_of, outline_of_call, route_of_call
from trivet.prefix.doctor.live import Doctor, Finding, Prompted
from trivet.prefix.doctor.places import shown
from trivet.prefix.markers.rules import rules_for
from trivet.telemetry import Event, Observer, PrefixBreak, PrefixUse

_JOBS: Final = 256
_BYTES: Final = 32 << 20
_REST: Final = 19
_LONGEST_REST_S: Final = 60.0
_LARGEST: Final = 2 << 20
"""Bytes of a body that is looked at: half a million tokens. To parse one holds the interpreter."""
_CLOSE_S: Final = 5.0
_ROUTES: Final = 1_024
_WEIGHT: Final = 0.05
"""Of the newest call in a route's share of cached tokens."""
_APIS: Final = frozenset({Api.CHAT, Api.RESPONSES, Api.COMPLETIONS, Api.MESSAGES})
_ASKED: Final = frozenset({"miss", "bypass"})

_log = structlog.get_logger("trivet.prefix")


class _Job(NamedTuple):
    call: Call
    now: float
    size: int
    loop: asyncio.AbstractEventLoop


class Doctoring:
    """Hand over every call that has ended. `hand` is for the event loop; no method raises."""

    def __init__(self, observer: Observer, *, rest: float = _REST) -> None:
        """The thread starts with the first call."""
        self._observer = observer
        self._doctor = Doctor(os.urandom(32))
        self._rest = rest
        self._jobs: queue.Queue[_Job | None] = queue.Queue(_JOBS)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        # Each is counted up by one thread only.
        self._given = self._taken = 0
        self._shares: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.failed = 0
        """Calls that could not be looked at."""

    def hand(self, call: Call) -> None:
        """Look at a call's prompt later, if it went upstream. Microseconds."""
        note, request = call.note, call.request
        if note.tier is not None or note.outcome not in _ASKED or request.api not in _APIS:
            return
        size = len(request.forward)
        waiting = self._given - self._taken + size
        dropped = self._closed.is_set() or size > _LARGEST or waiting > _BYTES
        if not dropped:
            try:
                job = _Job(call, time.monotonic(), size, asyncio.get_running_loop())
                self._jobs.put_nowait(job)
                self._given += size
                self._start()
            except queue.Full:
                dropped = True
        usage = note.usage
        route = route_of_call(call)
        read, tokens = (0, 0) if usage is None else (usage.cache_read_tokens, usage.input_tokens)
        if tokens:
            self._share(call.tenant, route, read / tokens)
        self._observer(PrefixUse(call.tenant, route, tokens, read, dropped))

    def close(self) -> None:
        """Stop looking, within some seconds. Blocking."""
        self._closed.set()
        if self._thread is not None:
            with suppress(queue.Full):
                self._jobs.put(None, timeout=_CLOSE_S)
            self._thread.join(_CLOSE_S)

    def _share(self, tenant: str, route: str, share: float) -> None:
        before = self._shares.get((tenant, route), share)
        self._shares[tenant, route] = before + _WEIGHT * (share - before)
        if len(self._shares) > _ROUTES:
            self._shares.popitem(last=False)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trivet-doctor", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # No thread can be started: the queue fills and drops.
                self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed.is_set():
            began = time.thread_time()
            try:
                found = self._see(job)
            except Exception as error:
                # A boundary: whatever a body holds, the calls after this one are looked at.
                found = None
                self._fail(error)
            self._taken += job.size
            if found is not None:
                self._tell(job, found)
            del job
            worked = time.thread_time() - began
            self._closed.wait(min(_LONGEST_REST_S, self._rest * worked))

    def _see(self, job: _Job) -> Finding | None:
        call = job.call
        outline = outline_of_call(call)
        return self._doctor.see(
            Prompted(
                *(call.tenant, route_of_call(call), outline, call.note.usage, job.now),
                rules_for(cache_of(call), call.request.model),
                call.policy.prefix.keep_text,
            )
        )

    def _tell(self, job: _Job, found: Finding) -> None:
        event: Event = PrefixBreak(
            tenant=found.tenant,
            route=found.route,
            place=shown(found.level, found.place, found.char),
            cause=found.cause,
            told=found.told,
            fix=found.fix,
            shared_tokens=found.shared_tokens,
            lost_tokens=found.lost_tokens,
            cached_share=self._shares.get((found.tenant, found.route)),
            new=found.new,
            text=found.text,
        )
        with suppress(RuntimeError):  # The loop has ended meanwhile.
            job.loop.call_soon_threadsafe(self._observer, event)

    def _fail(self, error: Exception) -> None:
        self.failed += 1
        if self.failed & (self.failed - 1) == 0:  # The 1st, 2nd, 4th, 8th, ...
            _log.warning("prefix-doctor-failed", error=type(error).__name__, lost=self.failed)
