"""Anthropic Messages answers: is one complete and successful, and what of it is stored."""

from __future__ import annotations

from typing import Any, Final

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, NotStored, Request, Usage
from trivet.middleware.dialects.answers import json_fault
from trivet.middleware.dialects.base import (
    MAX_IDS,
    StoreRules,
    as_items,
    as_mapping,
    tells_error,
)
from trivet.middleware.dialects.bodies import compact, usage_from

_COMPLETE: Final = frozenset({"end_turn", "stop_sequence", "tool_use"})
_CUT: Final = {
    "max_tokens": "max-tokens",
    "pause_turn": "pause-turn",
    "model_context_window_exceeded": "model-context-window-exceeded",
    "compaction": "compaction",
}
_TEXTS: Final = {"text": "text", "thinking": "thinking", "redacted_thinking": "data"}
"""Block types that hold one string, and its field."""


def judge(message: Any, request: Request, rules: StoreRules) -> Answer | NotStored:
    """The answer to store, or why there is none."""
    if type(message) is not dict:
        return NotStored("malformed")
    fault = (
        _stop_fault(message, rules)
        or _content_fault(message, rules)
        or _json_fault(message, request)
    )
    if fault is not None:
        return NotStored(fault)
    ids = ids_of(message)
    if len(ids) > MAX_IDS:
        return NotStored("too-many-ids")
    body = compact(message)
    if len(body) > rules.max_entry:
        return NotStored("too-large")
    model = message.get("model")
    return Answer(
        body=body,
        usage=usage_of(message),
        model=model if type(model) is str and model else request.model,
        ids=ids,
    )


def judge_body(body: bytes, request: Request, rules: StoreRules) -> Answer | NotStored:
    """`judge` for a JSON body as the upstream sent it."""
    try:
        return judge(canonical.parse(body), request, rules)
    except RequestError:
        return NotStored("invalid-json")


def _stop_fault(message: dict[str, Any], rules: StoreRules) -> str | None:
    if tells_error(message):
        return "upstream-error"
    if message.get("type") != "message" or message.get("role", "assistant") != "assistant":
        return "malformed"
    if type(message.get("content")) is not list:
        return "malformed"
    if message.get("container") is not None:
        return "container"
    reason = message.get("stop_reason")
    if type(reason) is not str:
        return "no-stop-reason"
    if reason == "refusal":
        return None if rules.refusals else "refusal"
    return None if reason in _COMPLETE else _CUT.get(reason, "unknown-stop-reason")


def _content_fault(message: dict[str, Any], rules: StoreRules) -> str | None:
    answered = called = False
    for block in message["content"]:
        fault = _block_fault(block)
        if fault is not None:
            return fault
        called = called or block["type"] == "tool_use"
        answered = answered or (block["type"] == "text" and block["text"] != "")
    if called and not rules.tool_calls:
        return "tool-calls"
    if message["stop_reason"] == "tool_use" and not called:
        return "malformed"
    answered = answered or called or message["stop_reason"] == "refusal"
    return None if answered else "empty"


def _block_fault(block: Any) -> str | None:
    kind = as_mapping(block).get("type")
    if type(kind) is not str:
        return "malformed"
    if kind == "compaction":
        return "compaction"
    if kind in ("server_tool_use", "mcp_tool_use", "container_upload") or (
        kind.endswith("_tool_result")
    ):
        return "hosted-tool"
    if kind in _TEXTS:
        return None if type(block.get(_TEXTS[kind])) is str else "malformed"
    if kind == "tool_use":
        whole = (
            type(block.get("id")) is str
            and type(block.get("name")) is str
            and type(block.get("input")) is dict
        )
        return None if whole else "malformed"
    return None


def _json_fault(message: dict[str, Any], request: Request) -> str | None:
    if not request.json_answer or message["stop_reason"] in ("tool_use", "refusal"):
        return None
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    return json_fault("".join(texts), request.schema)


def ids_of(message: dict[str, Any]) -> tuple[str, ...]:
    """The message's own id and those of its tool calls."""
    found = [message.get("id")]
    found += [
        block.get("id") for block in as_items(message.get("content")) if block["type"] == "tool_use"
    ]
    return tuple(dict.fromkeys(item for item in found if type(item) is str and item))


def usage_of(message: dict[str, Any]) -> Usage | None:
    """Anthropic counts cache reads and writes apart from `input_tokens`; the sum is the prompt."""
    usage = as_mapping(message.get("usage"))
    found = usage_from(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("cache_read_input_tokens"),
        usage.get("cache_creation_input_tokens"),
        as_mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"),
    )
    if found is None:
        return None
    whole = found.input_tokens + found.cache_read_tokens + found.cache_write_tokens
    return found._replace(input_tokens=whole)
