"""Rebuilds an Anthropic message out of its event stream, as strictly as the SDKs loosely do."""

from __future__ import annotations

from typing import Any, Final

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, NotStored, Request
from trivet.middleware.dialects.base import MAX_IDS, StoreRules, as_mapping, tells_error
from trivet.middleware.dialects.messages_answer import judge
from trivet.middleware.dialects.messages_stream import TOOL_INPUTS
from trivet.middleware.dialects.sse import data_of, fault_of

_PIECES: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}
"""Delta type to the field that holds the piece, and the block's field that it extends."""

_WHEN_GIVEN: Final = frozenset({"container", "context_management", "input_transformations"})
"""Fields of `message_delta` that leave what `message_start` said when they are null."""


class _Block:
    """One content block while its deltas arrive."""

    __slots__ = ("block", "open", "parts")

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self.parts: list[str] = []
        self.open = True

    def add(self, delta: dict[str, Any]) -> None:
        """Apply a delta. Raises `ValueError` for one that the block cannot have."""
        kind = delta["type"]
        if kind in _PIECES:
            source, target = _PIECES[kind]
            if type(delta[source]) is not str or target not in self.block:
                raise ValueError(kind)
            self.parts.append(delta[source])
        elif kind == "signature_delta":
            self.block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            self.block["citations"] = [*(self.block.get("citations") or ()), delta["citation"]]
        else:
            raise ValueError(kind)

    def close(self) -> None:
        """Join the pieces. Raises `RequestError` if a tool's input is not JSON."""
        self.open = False
        text = "".join(self.parts)
        kind = self.block["type"]
        if kind in TOOL_INPUTS:
            if text:
                self.block["input"] = canonical.parse(text.encode())
        elif text:
            self.block[kind] += text


class MessagesRecorder:
    """Implements `Recorder`: a fault, once found, is kept and decides."""

    def __init__(self, request: Request) -> None:
        self.ids: list[str] = []
        self._request = request
        self._message: dict[str, Any] | None = None
        self._blocks: list[_Block] = []
        self._fault: str | None = None
        self._stopped = False

    def feed(self, event: bytes) -> None:
        """Take the next event."""
        data = data_of(event)
        self._fault = self._fault or fault_of(event)
        if not data or self._fault is not None:
            return
        try:
            self._apply(_read(data))
        except RequestError:
            self._fault = "invalid-json"
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            # The upstream's event is not shaped as documented.
            self._fault = "malformed-stream"

    def is_usage_only(self, event: bytes) -> bool:
        """Never: usage comes with the first and the last event."""
        return False

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        """The message, if every block and the message itself ended."""
        if self._fault is not None:
            return NotStored(self._fault)
        if self._message is None or not self._stopped or any(b.open for b in self._blocks):
            return NotStored("stream-cut")
        self._message["content"] = [item.block for item in self._blocks]
        return judge(self._message, self._request, rules)

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if tells_error(event):
            self._fault = "upstream-error"
        elif kind == "ping":
            return
        elif kind == "message_start":
            self._start(event["message"])
        elif self._message is None or not self._may_come(kind):
            raise ValueError(kind)
        elif kind == "content_block_delta":
            self._open(event["index"]).add(event["delta"])
        elif kind == "content_block_start":
            self._start_block(event["index"], event["content_block"])
        elif kind == "content_block_stop":
            self._open(event["index"]).close()
        elif kind == "message_delta":
            self._end(self._message, event)
        elif kind == "message_stop":
            self._stopped = True
        else:
            raise ValueError(kind)

    def _may_come(self, kind: str) -> bool:
        ended = as_mapping(self._message).get("stop_reason") is not None
        return not self._stopped and not (ended and kind.startswith("content_"))

    def _start(self, message: dict[str, Any]) -> None:
        if self._message is not None or message.get("content"):
            raise ValueError("message_start")
        self._message = dict(message)
        self._note(message.get("id"))

    def _start_block(self, index: Any, block: dict[str, Any]) -> None:
        if index != len(self._blocks) or type(block["type"]) is not str:
            raise ValueError("content_block_start")
        self._blocks.append(_Block(dict(block)))
        if block["type"] == "tool_use":
            self._note(block.get("id"))

    def _open(self, index: Any) -> _Block:
        if type(index) is not int or index < 0 or not self._blocks[index].open:
            raise ValueError("index")
        return self._blocks[index]

    def _end(self, message: dict[str, Any], event: dict[str, Any]) -> None:
        found = {**event["delta"]}
        found |= {k: v for k, v in event.items() if k not in ("type", "delta", "usage")}
        stopped = message.get("stop_reason")
        if stopped is not None and found.get("stop_reason", stopped) != stopped:
            raise ValueError("stop_reason")
        for field, value in found.items():
            if value is not None or field not in message or field not in _WHEN_GIVEN:
                message[field] = value
        usage = as_mapping(message.get("usage"))
        for field, value in as_mapping(event.get("usage")).items():
            # Counts are running totals; a null one was not repeated.
            if value is not None or field not in usage:
                usage = {**usage, field: value}
        if usage:
            message["usage"] = usage

    def _note(self, found: Any) -> None:
        if type(found) is str and found:
            self.ids.append(found)
        if len(self.ids) > MAX_IDS:
            self._fault = "too-many-ids"


def _read(data: bytes) -> dict[str, Any]:
    """Parse one event. Only deltas, which hold text, are read by the fast, lenient parser."""
    try:
        event = orjson.loads(data)
        if event["type"] == "content_block_delta" and "citation" not in event["delta"]:
            found: dict[str, Any] = event
            return found
    except orjson.JSONDecodeError:
        pass  # The strict parser decides: it takes lone surrogates, which are valid JSON.
    parsed: dict[str, Any] = canonical.parse(data)
    return parsed
