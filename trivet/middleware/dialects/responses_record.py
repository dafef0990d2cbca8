"""Records a Responses stream: its last event holds the whole response."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, NotStored, Request
from trivet.middleware.dialects.base import MAX_IDS, StoreRules, as_mapping, tells_error
from trivet.middleware.dialects.responses_answer import call_id_of, judge
from trivet.middleware.dialects.sse import data_of, fault_of

_DELTA: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"response\.[a-z_.]+\.delta"')
"""Data of an event that only repeats a part of what the last one holds."""

_TERMINAL: Final = frozenset({"response.completed", "response.failed", "response.incomplete"})


class ResponsesRecorder:
    """Implements `Recorder`."""

    def __init__(self, request: Request) -> None:
        self.ids: list[str] = []
        self._request = request
        self._last: bytes | None = None
        self._fault: str | None = None
        self._id: Any = None

    def feed(self, event: bytes) -> None:
        """Take the next event."""
        data = data_of(event)
        self._fault = self._fault or fault_of(event)
        if not data or data == b"[DONE]" or self._fault is not None:
            return
        if self._last is None and _DELTA.match(data):
            return
        self._take(data, _read(data))
        if len(self.ids) > MAX_IDS:
            self._fault = "too-many-ids"

    def _take(self, data: bytes, found: dict[str, Any]) -> None:
        kind = found.get("type")
        if tells_error(found):
            self._fault = "upstream-error"
        elif self._last is not None or type(kind) is not str:
            self._fault = "malformed-stream"
        elif kind in _TERMINAL:
            self._last = data
        elif kind == "response.created":
            self._id = as_mapping(found.get("response")).get("id")
            self._note(self._id)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._note(call_id_of(found.get("item")))

    def is_usage_only(self, event: bytes) -> bool:
        """Never: usage comes with the last event."""
        return False

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        """The response of the last event."""
        if self._fault is not None:
            return NotStored(self._fault)
        if self._last is None:
            return NotStored("stream-cut")
        try:
            event = canonical.parse(self._last)
        except RequestError:
            return NotStored("invalid-json")
        response = event.get("response")
        if self._id and as_mapping(response).get("id") != self._id:
            return NotStored("malformed-stream")
        return judge(response, self._request, rules)

    def _note(self, found: Any) -> None:
        if self._request.keep_ids or type(found) is not str:
            return
        if found and len(self.ids) <= MAX_IDS and found not in self.ids:
            self.ids.append(found)


def _read(data: bytes) -> dict[str, Any]:
    try:
        return as_mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        pass  # The strict parser decides: it takes lone surrogates, which are valid JSON.
    try:
        return as_mapping(canonical.parse(data))
    except RequestError:
        return {}
