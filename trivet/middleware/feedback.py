"""A caller, or the operator, says of a similar answer that it was wrong or right.

    POST /trivet/feedback   {"id": "<Trivet-Hit-Id>", "verdict": "wrong" | "right"}

An id names a record of one tenant: the caller's own, by its credential. A wrong answer's record is
taken out everywhere, so that it is served for no similar question any more; the exact answer to the
question it was given for stays.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from trivet import canonical
from trivet.errors import RequestError, StoreError
from trivet.middleware.call import Whole
from trivet.middleware.control import Verdict
from trivet.middleware.intake import Intake
from trivet.middleware.semantics import FEEDBACK_PATH
from trivet.middleware.visit import Visit
from trivet.policies.model import TenantPolicy
from trivet.semantic.monitor import Monitor
from trivet.semantic.types import Record

_MOST_BYTES = 4096
_SILENCE_S = 10.0
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
    ) -> None:
        """`find` and `forget` take a tenant and a record's id. `forget` may raise `StoreError`."""
        self._find = find
        self._forget = forget
        self._monitor = monitor
        self._intake = Intake(_MOST_BYTES, _SILENCE_S)

    async def serve(self, visit: Visit, policy: TenantPolicy) -> Whole:
        """The reply to `FEEDBACK_PATH`, for a caller who is known. Raises `RequestError`."""
        if visit.method != "POST":
            message = f"{FEEDBACK_PATH} takes POST, not {visit.method}."
            raise RequestError(405, message, code="method_not_allowed")
        told = read_told(await self._intake.read(visit.receive))
        visit.note.outcome, visit.note.reason = "bypass", "feedback"
        done = await self.give(policy, told, "caller")
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        return Whole(200, headers, orjson.dumps(done))

    def knows(self, tenant: str, record_id: str) -> bool:
        """Whether the tenant has this record."""
        return self._find(tenant, record_id) is not None

    async def give(self, policy: TenantPolicy, told: Told, judge: str) -> dict[str, Any]:
        """Act on what was told. Raises `RequestError`: 404 for an id that the tenant does not
        have, 503 where the record could not be taken out everywhere; then nothing was counted."""
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
        self._monitor.reported(tenant, policy.semantic, str(record.intent), wrong, judge)
        return {"id": told.id, "verdict": told.verdict, "removed": wrong}


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
