"""A caller, or the operator, says of a similar answer that it was wrong or right.

    POST /trivet/feedback   {"id": "<Trivet-Hit-Id>", "verdict": "wrong" | "right"}

An id names a record of one tenant: the caller's own, by its credential. A wrong answer's record is
taken out everywhere, so that it is served for no similar question any more; the exact answer to the
question it was given for stays.

A hit is counted once, however many report it at once, and of what one caller reports, one hit in
`_WINDOW_S` seconds: no single caller closes the tier in a moment. A caller is the end user where a
header names one (`exact.user_from`), else the credential. Each process counts for itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from trivet import canonical
from trivet.errors import RequestError, StoreError
from trivet.middleware.admin.control import Verdict
from trivet.middleware.arrival.intake import Intake
from trivet.middleware.arrival.visit import Visit
from trivet.middleware.call import Whole
from trivet.middleware.semantic_tier.semantics import FEEDBACK_PATH
from trivet.policies.model import TenantPolicy
from trivet.semantic.monitor import Monitor
from trivet.semantic.types import Record

_MOST_BYTES = 4096
_SILENCE_S = 10.0
_WINDOW_S = 600.0
_REMEMBERED = 65536
"""Hits that were counted, and callers, at most: the oldest are forgotten first."""
_ID = re.compile(r"[0-9a-f]{32}")
_FIELDS = ("id", "verdict")


class Told(NamedTuple):
    """What somebody says of a hit."""

    id: str
    verdict: Verdict


class Feedback:
    """Finds the record, takes it out, counts the report."""

    def __init__(
        self,
        find: Callable[[str, str], Record | None],
        forget: Callable[[str, str], Awaitable[None]],
        monitor: Monitor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`find` and `forget` take a tenant and a record's id. `forget` may raise `StoreError`."""
        self._find = find
        self._forget = forget
        self._monitor = monitor
        self._clock = clock
        self._counted: dict[tuple[str, str], None] = {}
        self._heard: dict[tuple[str, bytes], float] = {}
        """When a report of a caller was last counted."""
        self._intake = Intake(_MOST_BYTES, _SILENCE_S)

    async def serve(self, visit: Visit, policy: TenantPolicy) -> Whole:
        """The reply to `FEEDBACK_PATH`, for a caller who is known. Raises `RequestError`."""
        if visit.method != "POST":
            message = f"{FEEDBACK_PATH} takes POST, not {visit.method}."
            raise RequestError(405, message, code="method_not_allowed")
        told = read_told(await self._intake.read(visit.receive))
        visit.note.outcome, visit.note.reason = "bypass", "feedback"
        done = await self.give(policy, told, "caller", caller_of(visit, policy))
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        return Whole(200, headers, orjson.dumps(done))

    def knows(self, tenant: str, record_id: str) -> bool:
        """Whether the tenant has this record."""
        return self._find(tenant, record_id) is not None

    async def give(
        self, policy: TenantPolicy, told: Told, judge: str, who: bytes = b""
    ) -> dict[str, Any]:
        """Act on what was told by `who`; without one, it counts in any case.

        Raises `RequestError`: 404 for an id that the tenant does not have, 503 where the record
        could not be taken out everywhere; then nothing was counted.
        """
        tenant, wrong = policy.tenant, told.verdict == "wrong"
        record = self._find(tenant, told.id)
        if record is None:
            raise unknown(told.id)
        if wrong:
            try:
                await self._forget(tenant, told.id)
            except StoreError as error:
                message = "The answer could not be taken out everywhere; report it again."
                raise RequestError(503, message, code=f"store-{error.reason}") from error
        if not wrong or self._counts(tenant, told.id, who):
            self._monitor.reported(tenant, policy.semantic, str(record.intent), wrong, judge)
        return {"id": told.id, "verdict": told.verdict, "removed": wrong}

    def _counts(self, tenant: str, hit: str, who: bytes) -> bool:
        """Whether a report is to be counted; notes it. Nothing may wait in here."""
        if (tenant, hit) in self._counted:
            return False
        now = self._clock()
        last = self._heard.get((tenant, who)) if who else None
        if last is not None and now - last < _WINDOW_S:
            return False
        self._counted[tenant, hit] = None
        if who:
            self._heard.pop((tenant, who), None)
            self._heard[tenant, who] = now
        if len(self._counted) > _REMEMBERED:
            del self._counted[next(iter(self._counted))]
        if len(self._heard) > _REMEMBERED:
            del self._heard[next(iter(self._heard))]
        return True


def caller_of(visit: Visit, policy: TenantPolicy) -> bytes:
    """Who is at the other end: the end user that a header names, else the credential."""
    source = policy.exact.user_from
    if source.startswith("header:"):
        wanted = source.removeprefix("header:").lower().encode("latin-1")
        named = b",".join(value.strip() for name, value in visit.raw_headers if name == wanted)
        if named:
            return canonical.digest(b"user", named)
    return b"" if visit.caller is None else canonical.digest(b"key", visit.caller.credential)


def unknown(hit: str) -> RequestError:
    """What is said of an id that the tenant does not have."""
    return RequestError(404, f"There is no hit {hit} of this tenant.", field="id", code="unknown")


def read_told(raw: bytes) -> Told:
    """Read the body. Raises `RequestError` 400 that names the field."""
    body = canonical.parse(raw)
    if type(body) is not dict:
        raise RequestError(400, "The body has to be a JSON object with id and verdict.")
    for name in body:
        if name not in _FIELDS:
            shown = name[:80].encode("utf-8", "backslashreplace").decode()
            raise RequestError(400, f"There is no field {shown!r} in feedback.", field=shown)
    hit, verdict = body.get("id"), body.get("verdict")
    if type(hit) is not str or not _ID.fullmatch(hit):
        raise RequestError(
            400, "id has to be what the header Trivet-Hit-Id said: 32 hex digits.", field="id"
        )
    if verdict not in ("wrong", "right"):
        raise RequestError(400, "verdict has to be wrong or right.", field="verdict")
    return Told(hit, verdict)
