"""Anthropic Messages as server-sent events, from a complete message.

https://platform.claude.com/docs/en/build-with-claude/streaming. The SDKs' accumulators rebuild the
message: whatever they take from `content_block_start` alone is sent there whole, and whatever they
overwrite from a delta is in that delta.
"""

from __future__ import annotations

from typing import Any, Final

from trivet.middleware.dialects.base import as_items, as_mapping
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.pieces import text_pieces
from trivet.middleware.dialects.sse import frame

TOOL_INPUTS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""Blocks whose `input` is streamed as pieces of JSON text."""

_DELTA_FIELDS: Final = ("stop_reason", "stop_sequence", "stop_details", "container")
_DELTA_SIBLINGS: Final = ("context_management", "input_transformations")
_DELTA_USAGE: Final = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens_details",
        "server_tool_use",
        "iterations",
        "fallback_credit",
    }
)


def render(message: dict[str, Any]) -> bytes:
    """The whole stream, `message_start` to `message_stop`."""
    parts = [_start(message)]
    for index, block in enumerate(as_items(message.get("content"))):
        parts.append(_block_start(index, block))
        _deltas(parts, index, block)
        parts.append(
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % index
        )
    parts.append(_end(message))
    parts.append(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    return b"".join(parts)


def _start(message: dict[str, Any]) -> bytes:
    usage = {"input_tokens": 0, **as_mapping(message.get("usage")), "output_tokens": 0}
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    if "stop_details" in opening:
        opening["stop_details"] = None
    return frame(compact({"type": "message_start", "message": opening}), "message_start")


def _end(message: dict[str, Any]) -> bytes:
    delta = {field: message[field] for field in _DELTA_FIELDS if field in message}
    usage = {"output_tokens": 0} | {
        field: value
        for field, value in as_mapping(message.get("usage")).items()
        if field in _DELTA_USAGE
    }
    event = {"type": "message_delta", "delta": delta, "usage": usage}
    event |= {field: message[field] for field in _DELTA_SIBLINGS if field in message}
    return frame(compact(event), "message_delta")


def _block_start(index: int, block: dict[str, Any]) -> bytes:
    kind = block.get("type")
    if kind == "text":
        block = {**block, "text": ""}
        if block.get("citations"):
            block["citations"] = []
    elif kind == "thinking":
        block = {**block, "thinking": ""}
        if block.get("signature"):
            block["signature"] = ""
    elif kind in TOOL_INPUTS:
        block = {**block, "input": {}}
    event = {"type": "content_block_start", "index": index, "content_block": block}
    return frame(compact(event), "content_block_start")


def _deltas(parts: list[bytes], index: int, block: dict[str, Any]) -> None:
    kind = block.get("type")
    if kind == "text":
        _texts(parts, index, "text_delta", "text", block.get("text"))
        parts.extend(
            _delta(index, {"type": "citations_delta", "citation": citation})
            for citation in as_items(block.get("citations"))
        )
    elif kind == "thinking":
        _texts(parts, index, "thinking_delta", "thinking", block.get("thinking"))
        if block.get("signature"):
            delta = {"type": "signature_delta", "signature": block["signature"]}
            parts.append(_delta(index, delta))
    elif kind in TOOL_INPUTS:
        text = compact(block.get("input")).decode()
        _texts(parts, index, "input_json_delta", "partial_json", text)


def _texts(parts: list[bytes], index: int, kind: str, field: str, text: Any) -> None:
    opening = (
        'event: content_block_delta\ndata: {"type":"content_block_delta",'
        f'"index":{index},"delta":{{"type":"{kind}","{field}":'
    ).encode()
    parts.extend(b"%b%b}}\n\n" % (opening, compact(piece)) for piece in text_pieces(text or ""))


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    event = {"type": "content_block_delta", "index": index, "delta": delta}
    return frame(compact(event), "content_block_delta")
