"""Structured logs: one line for each change of state, JSON or for the console, on stderr.

No line carries prompt text, answers, keys or header values. A line for every request (the access
log) is off unless asked for.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, BinaryIO, Literal

import orjson
import structlog

from trivet.middleware.observe.log_words import effect_of, given, rejected_because
from trivet.middleware.observe.recent import REQUEST_IDS
from trivet.middleware.observe.upstream_states import UpstreamStates
from trivet.middleware.prefix_tier.warmth import WHY
from trivet.telemetry import (
    REPLICA_STARTED,
    EntryRejected,
    Event,
    Flood,
    PolicyReload,
    PrefixBreak,
    PrefixFailed,
    PrefixPing,
    PrefixProbed,
    ReplicaChanged,
    RequestDone,
    SemanticState,
    StoreState,
)
from trivet.terminal import plain

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

_REPEAT_S = 60.0
"""How long equal rejections of stored entries are counted before the next line about them."""
_LONGEST = 128
_LONGEST_REASON = 1000


def configure(
    level: Level = "info",
    format: Format = "json",
    *,
    worker: int | None = None,
    stream: BinaryIO | None = None,
) -> None:
    """Set up logging of this process, once at its start.

    `worker` is put on every line when several processes write to one stream. The standard
    library's records (uvicorn, asyncio) become lines of the same kind; run uvicorn with
    `log_config=None`.
    """
    out = stream or sys.stderr.buffer
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=_processors(format, worker, out.isatty()),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(out),
        # Not cached: a logger that was made at import has to follow a later `configure`.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(max(number, logging.WARNING))
    # uvicorn tells of its own starts and stops at info, once a server: that is noise here.
    logging.getLogger("uvicorn").setLevel(max(number, logging.WARNING))


def _processors(format: Format, worker: int | None, color: bool) -> list[Any]:
    def add_worker(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["worker"] = worker
        return event

    common: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if worker is not None:
        common.append(add_worker)
    if format == "json":
        return [*common, structlog.processors.format_exc_info, _to_json]
    console = structlog.dev.ConsoleRenderer(
        colors=color, exception_formatter=structlog.dev.plain_traceback
    )
    return [*common, _printable, console]


def _to_json(_: Any, __: str, event: MutableMapping[str, Any]) -> bytes:
    line = {name: event.pop(name) for name in ("timestamp", "level", "event") if name in event}
    line.update(event)
    try:
        return orjson.dumps(line, default=str)
    except TypeError:
        # Lone surrogates, which orjson refuses.
        return json.dumps(line, default=str).encode("ascii")


def _printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep control characters, which could forge lines or drive the terminal, out of values."""
    for name, value in event.items():
        if name != "exc_info" and isinstance(value, str):
            event[name] = plain(value)
    return event


class _Lines:
    """Writes lines. A stream that is gone loses them: a request must not fail for its log."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def msg(self, line: bytes | str) -> None:
        data = line if isinstance(line, bytes) else line.encode("utf-8", "backslashreplace")
        try:
            self._out.write(data + b"\n")
            self._out.flush()
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = exception = msg


class _Forward(logging.Handler):
    """Hands the standard library's records to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        extra = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger("trivet").log(
            record.levelno, record.getMessage(), logger=record.name, **extra
        )


class LogObserver:
    """Writes a line when a store, the policies, or the trust in stored entries changes.

    Or when an upstream begins to fail, and answers again. With `access`, also one line for each
    request, at level info.
    """

    def __init__(
        self, *, access: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._log = structlog.get_logger("trivet")
        self._stores: dict[str, str] = {}
        self._policies: PolicyReload | None = None
        self._rejected: dict[tuple[str, str], tuple[float, int]] = {}
        self._on: dict[type[Any], Callable[[Any], None]] = {
            StoreState: self._store_state,
            EntryRejected: self._entry_rejected,
            PolicyReload: self._policy_reload,
            SemanticState: self._semantic_state,
            ReplicaChanged: self._replica_changed,
            PrefixProbed: self._prefix_probed,
            PrefixBreak: self._prefix_broke,
            PrefixFailed: self._prefix_failed,
            PrefixPing: self._prefix_ping,
            Flood: self._flood,
        }
        self._upstreams = UpstreamStates(clock)
        self._flooded = False
        self._access = access
        self._on[RequestDone] = self._request_done
        self.hears = frozenset(self._on)

    def __call__(self, event: Event, /) -> None:
        """Write what `event` changes, if anything."""
        write = self._on.get(type(event))
        if write is not None:
            write(event)

    def _semantic_state(self, event: SemanticState) -> None:
        write = self._log.info if event.open else self._log.warning
        state = "open" if event.open else "closed"
        write(
            "semantic-state",
            tenant=event.tenant,
            **given(intent=event.intent, state=state, reason=event.reason),
        )

    def _replica_changed(self, event: ReplicaChanged) -> None:
        if event.reason == REPLICA_STARTED:
            return
        write = self._log.info if event.up else self._log.warning
        state = "up" if event.up else "ejected"
        named = {"upstream": event.upstream, "replica": event.replica}
        write("replica-state", **named, **given(state=state, reason=event.reason))

    def _prefix_probed(self, event: PrefixProbed) -> None:
        write = self._log.info if event.state == "isolated" else self._log.warning
        named = {"upstream": event.upstream, "replica": event.replica}
        write("prefix-probe", **named, **given(state=event.state, detail=event.detail))

    def _flood(self, event: Flood) -> None:
        if event.flooded != self._flooded:
            self._flooded = event.flooded
            write = self._log.warning if event.flooded else self._log.info
            shares = {"hit_share": round(event.share, 3), "baseline": round(event.baseline, 3)}
            write("caches-cold" if event.flooded else "caches-warm", **shares)

    def _prefix_failed(self, event: PrefixFailed) -> None:
        if event.first:
            named = {"upstream": event.upstream, "backend": event.backend}
            self._log.error("prefix-failed", **named, **given(error=event.error))

    def _prefix_ping(self, event: PrefixPing) -> None:
        if event.new:
            named = {"tenant": event.tenant, "upstream": event.upstream}
            said = given(model=event.model[:_LONGEST], detail=WHY.get(event.reason))
            self._log.info("prefix-keep-warm", **named, state=event.reason, **said)

    def _prefix_broke(self, event: PrefixBreak) -> None:
        if not event.new:
            return
        share = None if event.cached_share is None else round(event.cached_share, 3)
        self._log.warning(
            "prefix-break",
            tenant=event.tenant,
            route=event.route[:_LONGEST],
            place=event.place[:_LONGEST],
            cause=event.cause,
            shared_tokens=event.shared_tokens,
            lost_tokens=event.lost_tokens,
            **given(cached_share=share, detail=event.told, fix=event.fix, text=event.text),
        )

    def _store_state(self, event: StoreState) -> None:
        before = self._stores.get(event.store)
        if before == event.state:
            return
        self._stores[event.store] = event.state
        write = self._log.info if event.state == "up" else self._log.warning
        said = given(was=before, reason=event.reason, effect=effect_of(event.store, event.state))
        write("store-state", store=event.store, state=event.state, **said)

    def _entry_rejected(self, event: EntryRejected) -> None:
        key, now = (event.store, event.reason), self._clock()
        since, silent = self._rejected.get(key, (-_REPEAT_S, 0))
        if now - since < _REPEAT_S:
            self._rejected[key] = (since, silent + 1)
            return
        self._rejected[key] = (now, 0)
        self._log.warning(
            "entry-rejected",
            store=event.store,
            reason=event.reason,
            meaning=rejected_because(event.reason),
            count=silent + 1,
            effect="each is a miss",
        )

    def _policy_reload(self, event: PolicyReload) -> None:
        if event == self._policies:
            return
        self._policies = event
        if event.ok:
            self._log.info("policies-loaded", version=event.version)
        else:
            self._log.error(
                "policies-refused",
                still_in_use=event.version,
                problems=event.problems,
                reason=event.detail.replace("\n", "; ")[:_LONGEST_REASON],
            )

    def _request_done(self, event: RequestDone) -> None:
        change = self._upstreams.see(event)
        if change is not None:
            write = self._log.info if change.up else self._log.warning
            effect = "" if change.up else "its callers get errors, or stored answers"
            state = {"state": "up" if change.up else "failing", "reason": change.reason}
            failures = change.failures if change.up else None
            said = given(failures=failures, effect=effect)
            write("upstream-state", upstream=change.upstream, **state, **said)
        if self._access:
            self._request(event)

    def _request(self, event: RequestDone) -> None:
        usage = event.usage
        self._log.info(
            "request",
            id=_request_id(event),
            tenant=event.tenant,
            api=event.api,
            model=event.model[:_LONGEST],
            upstream=event.upstream,
            status=event.status,
            stream=event.stream,
            tier=event.tier,
            outcome=event.outcome,
            reason=event.reason,
            stored=event.stored,
            total_ms=round(event.total_s * 1e3, 3),
            upstream_ms=round(event.upstream_s * 1e3, 3),
            first_byte_ms=round(event.first_byte_s * 1e3, 3),
            request_bytes=event.request_bytes,
            response_bytes=event.response_bytes,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
        )


def _request_id(event: RequestDone) -> str | None:
    """The id that the caller was told, and can name."""
    for name, value in event.reply_headers:
        if name in REQUEST_IDS:
            return value[:_LONGEST].decode("latin-1")
    return None
