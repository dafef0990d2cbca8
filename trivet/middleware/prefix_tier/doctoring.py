"""The live layout doctor: looks at what went upstream, in a thread of its own.

The event loop hands over a call that has ended; nothing waits for what comes of it. The thread
rests nineteen times as long as it works, so that it takes a twentieth of a core at most. Of calls
to upstreams of whose prefix cache nothing is known, it looks at as many as fit in a hundredth. What
it cannot keep up with is not looked at, and counted.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from trivet.messages import Api, Usage
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import cache_of, outline_as_sent, route_of_call
from trivet.middleware.prefix_tier.shapes import Examined, shape_of
from trivet.prefix.doctor.live import Doctor, Finding, Prompted
from trivet.prefix.doctor.places import shown
from trivet.prefix.markers.rules import rules_for
from trivet.telemetry import Event, Observer, PrefixBreak, PrefixUse

_JOBS: Final = 256
_BYTES: Final = 32 << 20
_REST: Final = 19
_FEW: Final = 16
"""Jobs beyond which those do not wait that are looked at for want of others."""
_SPARING: Final = 100
"""For how many times as long as it took to look at one of those the next one is put off."""
_AHEAD_S: Final = 5.0
"""How much of that may be left for later: short bursts are looked at whole."""
_LONGEST_REST_S: Final = 60.0
_LARGEST: Final = 2 << 20
"""Bytes of a body that is looked at: half a million tokens. To parse one holds the interpreter."""
_CLOSE_S: Final = 5.0
_PURGED: Final = 1_024
"""Tenants whose last purge is remembered."""
_ROUTES: Final = 1_024
_WEIGHT: Final = 0.05
"""Of the newest call in a route's share of cached tokens."""
_APIS: Final = frozenset({Api.CHAT, Api.RESPONSES, Api.COMPLETIONS, Api.MESSAGES})
_ASKED: Final = frozenset({"miss", "bypass"})

_TOLD_S: Final = 0.05
"""How long calls are summed up before they are told of."""

_Route = tuple[str, str]
"""Tenant, and what its route is called."""

_log = structlog.get_logger("trivet.prefix")


class _Job(NamedTuple):
    """What is kept of a call that waits: no more than its texts."""

    api: Api
    model: str
    tenant: str
    route: str
    usage: Usage | None
    raw: bytes
    """As the caller wrote it."""
    sent: bytes | None
    kept: bool
    """Whether texts may be kept."""
    now: float
    size: int
    """Bytes of both texts."""
    loop: asyncio.AbstractEventLoop
    cache: str
    """Whose prefix cache stands behind the upstream; empty where that is not known."""


class Doctoring:
    """Hand over every call that has ended. `hand` is for the event loop; no method raises."""

    def __init__(self, observer: Observer, *, rest: float = _REST) -> None:
        """The thread starts with the first call."""
        self._observer = observer
        self._doctor = Doctor(os.urandom(32))
        self._rest = rest
        self._jobs: queue.SimpleQueue[_Job | str | None] = queue.SimpleQueue()
        """A text wakes the thread, None ends it."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        # Each is counted up by one thread only.
        self._given = self._taken = 0
        self._later = 0.0
        """Until when nothing is looked at that goes to a cache of which nothing is known."""
        self._uses: dict[_Route, list[int]] = {}
        """Tokens, those cached, calls not looked at, calls with tokens: what was not told yet."""
        self._shares: OrderedDict[_Route, float] = OrderedDict()
        self._forgotten: deque[str] = deque()
        self._purged: OrderedDict[str, float] = OrderedDict()
        """When tenants were forgotten: what was handed over before is not looked at, nor told."""
        self.examined: Callable[[Examined], None] = lambda one: None
        """Told of each prompt that was looked at, on the event loop."""
        self.failed = 0
        """Calls that could not be looked at."""

    def hand(self, call: Call) -> None:
        """Look at a call's prompt later, if it went upstream. Microseconds."""
        note, request = call.note, call.request
        if note.tier is not None or note.outcome not in _ASKED or request.api not in _APIS:
            return
        unseen = not self._takes(call)
        usage, route = note.usage, (call.tenant, route_of_call(call))
        if not self._uses:
            asyncio.get_running_loop().call_later(_TOLD_S, self._tell_uses)
        use = self._uses.get(route)
        if use is None:
            use = self._uses[route] = [0, 0, 0, 0]
        if usage is not None and usage.input_tokens:
            use[0] += usage.input_tokens
            use[1] += usage.cache_read_tokens
            use[3] += 1
        use[2] += unseen

    def _takes(self, call: Call) -> bool:
        """Have the call's prompt looked at, unless there is no time for it."""
        raw = call.body or call.request.forward
        sent = None if call.sent is None or call.sent.body is raw else call.sent.body
        size, waiting, now = len(raw) + len(sent or b""), self._jobs.qsize(), time.monotonic()
        if (
            len(raw) > _LARGEST
            or _cut(call)
            or waiting >= _JOBS
            or self._given - self._taken + size > _BYTES
        ):
            return False
        cache = cache_of(call)
        if not cache and (now < self._later or waiting >= _FEW):
            return False
        if self._closed.is_set():
            return False
        self._given += size
        named = (call.request.api, call.request.model, call.tenant, route_of_call(call))
        texts = (call.note.usage, raw, sent, call.policy.prefix.keep_text)
        self._jobs.put(_Job(*named, *texts, now, size, asyncio.get_running_loop(), cache))
        self._start()
        return True

    def forget(self, tenant: str) -> None:
        """Forget a tenant's prompts, before another one is looked at."""
        self._tell_uses()
        if self._thread is not None:
            self._purged[tenant] = time.monotonic()
            self._purged.move_to_end(tenant)
            if len(self._purged) > _PURGED:
                self._purged.popitem(last=False)
            self._forgotten.append(tenant)
            self._jobs.put("forget")
        for named in [one for one in self._shares if one[0] == tenant]:
            del self._shares[named]

    def close(self) -> None:
        """Stop looking, within some seconds. Blocking."""
        self._closed.set()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_CLOSE_S)

    def _tell_uses(self) -> None:
        uses, self._uses = self._uses, {}
        for route, (tokens, cached, unseen, calls) in uses.items():
            if tokens:
                self._share(route, cached / tokens, calls)
            self._observer(PrefixUse(*route, tokens, cached, unseen, calls))

    def _share(self, route: _Route, share: float, calls: int) -> None:
        before = self._shares.get(route, share)
        self._shares[route] = share + (before - share) * (1 - _WEIGHT) ** calls
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
            while self._forgotten:
                self._doctor.forget(self._forgotten.popleft())
            if isinstance(job, str):
                continue
            if self._is_purged(job):
                self._taken += job.size
                continue
            began = time.thread_time()
            try:
                found = self._see(job)
            except Exception as error:
                # A boundary: whatever a body holds, the calls after this one are looked at.
                found = None
                self._fail(error)
            self._taken += job.size
            if found is not None:
                with suppress(RuntimeError):  # The loop has ended meanwhile.
                    job.loop.call_soon_threadsafe(self._tell, job, found)
            worked = time.thread_time() - began
            if not job.cache:
                earliest = time.monotonic() - _AHEAD_S
                self._later = max(self._later, earliest) + _SPARING * worked
            del job
            self._closed.wait(min(_LONGEST_REST_S, self._rest * worked))

    def _see(self, job: _Job) -> Finding | None:
        outline = outline_as_sent(job.api, job.raw, job.sent)
        if outline.cut:
            return None
        found = self._doctor.see(
            Prompted(
                *(job.tenant, job.route, outline, job.usage, job.now),
                rules_for(job.cache, job.model),
                job.kept,
            )
        )
        shape = shape_of(outline, job.cache, job.usage, found)
        seen = Examined(job.tenant, job.route, shape, found, job.kept)
        with suppress(RuntimeError):  # The loop has ended meanwhile.
            job.loop.call_soon_threadsafe(self._show, job, seen)
        return found

    def _is_purged(self, job: _Job) -> bool:
        return job.now <= self._purged.get(job.tenant, -math.inf)

    def _show(self, job: _Job, seen: Examined) -> None:
        if not self._is_purged(job):
            self.examined(seen)

    def _tell(self, job: _Job, found: Finding) -> None:
        if self._is_purged(job):
            return
        self._tell_uses()
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
        self._observer(event)

    def _fail(self, error: Exception) -> None:
        self.failed += 1
        if self.failed & (self.failed - 1) == 0:  # The 1st, 2nd, 4th, 8th, ...
            _log.warning("prefix-doctor-failed", error=type(error).__name__, lost=self.failed)


def _cut(call: Call) -> bool:
    """Whether it is known that the prompt has more parts than are looked at."""
    outline = None if call.sent is None else call.sent.outline
    return outline is not None and outline.cut
