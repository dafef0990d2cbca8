"""The data plane: a plain ASGI app between the callers and the pipeline."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from trivet.errors import CacheError, RequestError, UpstreamError
from trivet.middleware.arrival.direct import NO_BODY, Direct, http_date
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.intake import ClientGone, Receive
from trivet.middleware.arrival.reception import Reception
from trivet.middleware.arrival.visit import Visit, visit_of
from trivet.middleware.call import Live, Note, Reply, Whole
from trivet.middleware.prefix_tier.doctoring import Doctoring
from trivet.middleware.reply import error_reply
from trivet.middleware.traffic.log import TrafficLog
from trivet.telemetry import Observer, RequestDone

Send = Callable[[dict[str, Any]], Awaitable[None]]

_log = structlog.get_logger("trivet")


class ProxyApp:
    """ASGI entry: one call a request, one `RequestDone` event each."""

    def __init__(
        self,
        reception: Reception,
        observer: Observer,
        traffic: TrafficLog | None = None,
        doctor: Doctoring | None = None,
    ) -> None:
        self._reception = reception
        self._observer = observer
        self._traffic = traffic
        self._doctor = doctor

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request (ASGI 3.0)."""
        if scope["type"] != "http":
            return
        visit = visit_of(scope, receive)
        sender = _Sender(send, visit.direct)
        try:
            reply = await self._reply(visit)
            if isinstance(reply, Whole):
                visit.end_wait()
            await sender.send(reply)
        except ClientGone:
            visit.note.reason = "client-gone"
        except asyncio.CancelledError:
            # The caller has gone, or the server ends before this answer did. Either way nobody
            # waits for this task, and uvicorn closes what it left unfinished.
            visit.note.reason = "client-gone" if visit.watch.gone else "shutdown"
        except UpstreamError as error:
            # The caller's connection breaks off too: uvicorn closes it when a response that was
            # started is left unfinished.
            visit.note.outcome, visit.note.reason = "error", error.reason
        finally:
            visit.watch.stop()
            visit.end_wait()
            if visit.on_end is not None:
                visit.on_end()
            self._observer(_done(visit, sender))
            self._record(visit)

    def _record(self, visit: Visit) -> None:
        # What warms is a record played again: nobody asked.
        if visit.purpose != "request":
            return
        if self._doctor is not None and visit.call is not None:
            self._doctor.hand(visit.call)
        if self._traffic is not None and visit.call is not None:
            at = time.time() - (time.perf_counter() - visit.began)
            self._traffic.record(visit.call, at, visit.note.entry)

    async def _reply(self, visit: Visit) -> Reply:
        try:
            return await self._reception.serve(visit)
        except RequestError as error:
            visit.note.outcome, visit.note.reason = "error", error.code or f"status-{error.status}"
            return _refusal(visit, error, "refused")
        except UpstreamError as error:
            visit.note.outcome, visit.note.reason = "error", error.reason
            return _refusal(visit, error, error.reason)
        except ClientGone:
            raise
        except Exception as defect:
            # The last boundary before the server: a defect is logged with its place, and told to
            # the caller in a shape that the SDK can read.
            _report(visit, defect)
            visit.note.outcome, visit.note.reason = "error", "internal"
            told = RequestError(500, "Trivet failed on this request; its log says where.")
            return _refusal(visit, told, "internal")


def _report(visit: Visit, defect: Exception) -> None:
    # The message is left out: it may quote the request.
    frames = traceback.extract_tb(defect.__traceback__)[-5:]
    _log.error(
        "request-failed",
        method=visit.method,
        api=str(visit.api),
        error=type(defect).__name__,
        at=" < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames)),
    )


def _refusal(visit: Visit, error: CacheError, detail: str) -> Whole:
    """The reply to a request that no tier answered."""
    reply = error_reply(visit.dialect, error, f"trivet-exact; fwd=bypass; detail={detail}")
    if reply.status == 401:
        reply.headers.append((b"www-authenticate", b"Bearer"))
    elif reply.status == 405 and visit.route is not None:
        allowed = ", ".join(sorted(visit.route.methods))
        reply.headers.append((b"allow", allowed.encode()))
    return reply


class _Sender:
    """Sends a reply and remembers when its first body byte left, and how many there were."""

    __slots__ = ("_direct", "_send", "first_byte", "headers", "size", "status")

    def __init__(self, send: Send, direct: Direct | None) -> None:
        self._send = send
        self._direct = direct
        self.first_byte = 0.0
        self.headers: RawHeaders = []
        self.size = 0
        self.status = 0

    async def send(self, reply: Reply) -> None:
        """Send all of `reply`. Raises `UpstreamError` if a live body breaks off."""
        self.status, self.headers = reply.status, reply.headers
        if isinstance(reply, Whole):
            if self._direct is not None and self._direct.respond(reply):
                self.first_byte, self.size = time.perf_counter(), len(reply.body)
                return
            headers = reply.headers
            if reply.status not in NO_BODY:
                headers = [*headers, _length(reply.body)]
            await self._start(reply.status, headers)
            await self._body(reply.body, more=False)
            return
        await self._live(reply)

    async def _live(self, reply: Live) -> None:
        try:
            await self._start(reply.status, reply.headers)
            async for chunk in reply.chunks:
                await self._body(chunk, more=True)
            await self._body(b"", more=False)
        finally:
            await reply.close()

    async def _start(self, status: int, headers: RawHeaders) -> None:
        if not any(name == b"date" for name, _ in headers):
            headers = [*headers, (b"date", http_date(int(time.time())))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, *, more: bool) -> None:
        if not self.first_byte:
            self.first_byte = time.perf_counter()
        self.size += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _length(body: bytes) -> tuple[bytes, bytes]:
    return (b"content-length", str(len(body)).encode())


def _done(visit: Visit, sender: _Sender) -> RequestDone:
    now = time.perf_counter()
    note: Note = visit.note
    return RequestDone(
        tenant=visit.tenant,
        api=visit.api,
        model=visit.model,
        upstream=visit.upstream,
        status=sender.status,
        stream=visit.stream,
        tier=note.tier,
        outcome=note.outcome,
        reason=note.reason,
        total_s=now - visit.began,
        upstream_s=note.upstream_s,
        first_byte_s=(sender.first_byte or now) - visit.began,
        request_bytes=visit.size,
        response_bytes=sender.size,
        usage=note.usage,
        stored=note.stored,
        traceparent=visit.traceparent,
        received_ns=time.time_ns() - int((now - visit.began) * 1e9),
        response_model=note.response_model,
        reply_headers=sender.headers,
        route=visit.called,
        purpose=visit.purpose,
    )
