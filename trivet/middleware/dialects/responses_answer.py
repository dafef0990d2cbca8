"""OpenAI Responses answers: is one complete and successful, and what of it is stored."""

from __future__ import annotations

from collections.abc import Iterator
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
from trivet.middleware.dialects.responses_request import neutral

CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that ask the caller to run a tool, and the field that holds its input as text."""

_UNFINISHED: Final = {
    "failed": "status-failed",
    "cancelled": "status-cancelled",
    "queued": "status-queued",
    "in_progress": "status-in-progress",
}
_INCOMPLETE: Final = {
    "max_output_tokens": "max-output-tokens",
    "content_filter": "content-filter",
    "max_messages": "max-messages",
    "steered": "steered",
}


def judge(response: Any, request: Request, rules: StoreRules) -> Answer | NotStored:
    """The answer to store, or why there is none."""
    if type(response) is not dict:
        return NotStored("malformed")
    fault = (
        _status_fault(response)
        or _output_fault(response["output"], rules)
        or _json_fault(response["output"], request)
    )
    if fault is not None:
        return NotStored(fault)
    ids = () if request.keep_ids else ids_of(response)
    if len(ids) > MAX_IDS:
        return NotStored("too-many-ids")
    body = compact(neutral(response, dict(request.echo)))
    if len(body) > rules.max_entry:
        return NotStored("too-large")
    model = response.get("model")
    return Answer(
        body=body,
        usage=usage_of(response),
        model=model if type(model) is str and model else request.model,
        ids=ids,
    )


def judge_body(body: bytes, request: Request, rules: StoreRules) -> Answer | NotStored:
    """`judge` for a JSON body as the upstream sent it."""
    try:
        return judge(canonical.parse(body), request, rules)
    except RequestError:
        return NotStored("invalid-json")


def _status_fault(response: dict[str, Any]) -> str | None:
    if tells_error(response):
        return "upstream-error"
    if response.get("object", "response") != "response":
        return "malformed"
    status = response.get("status")
    incomplete = response.get("incomplete_details")
    if status == "incomplete" or incomplete is not None:
        reason = as_mapping(incomplete).get("reason")
        return _INCOMPLETE.get(reason, "incomplete") if type(reason) is str else "incomplete"
    if status != "completed":
        return _UNFINISHED.get(status, "no-status") if type(status) is str else "no-status"
    if type(response.get("output")) is not list:
        return "malformed"
    judged = as_mapping(response.get("moderation")).values()
    return "moderation" if any(as_mapping(side).get("flagged") for side in judged) else None


def _output_fault(output: list[Any], rules: StoreRules) -> str | None:
    called = answered = refused = False
    for item in output:
        fault = _item_fault(item)
        if fault is not None:
            return fault
        called = called or item["type"] in CALLS
        for part in _parts(item):
            refused = refused or part["type"] == "refusal"
            answered = answered or (part["type"] == "output_text" and part["text"] != "")
    if called and not rules.tool_calls:
        return "tool-calls"
    if refused and not rules.refusals:
        return "refusal"
    return None if answered or called or refused else "empty"


def _item_fault(item: Any) -> str | None:
    kind = as_mapping(item).get("type")
    if type(kind) is not str:
        return "malformed"
    if item.get("status") not in (None, "completed"):
        return "item-incomplete"
    if kind in CALLS:
        return _call_fault(kind, item)
    if kind == "message":
        return _message_fault(item)
    if kind == "reasoning":
        return _reasoning_fault(item)
    if kind == "compaction":
        return "compaction"
    return "hosted-tool" if _is_action(kind) else None


def _is_action(kind: str) -> bool:
    """Items of tools that ran, or wait to run, at the provider."""
    return kind.endswith(("_call", "_output", "_tools")) or kind.startswith(("mcp_", "program"))


def _call_fault(kind: str, item: dict[str, Any]) -> str | None:
    text = item.get(CALLS[kind])
    if type(text) is not str or type(item.get("call_id")) is not str:
        return "malformed"
    if kind == "function_call" and json_fault(text, None) is not None:
        return "invalid-tool-input"
    return None


def _message_fault(item: dict[str, Any]) -> str | None:
    if type(item.get("content")) is not list or item.get("role") not in (None, "assistant"):
        return "malformed"
    for part in item["content"]:
        kind = as_mapping(part).get("type")
        field = {"output_text": "text", "refusal": "refusal"}.get(str(kind))
        if type(kind) is not str or (field and type(part.get(field)) is not str):
            return "malformed"
    return None


def _reasoning_fault(item: dict[str, Any]) -> str | None:
    for field in ("summary", "content"):
        if any(type(as_mapping(part).get("text")) is not str for part in as_items(item.get(field))):
            return "malformed"
    return None


def _parts(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item["type"] == "message":
        yield from item["content"]


def _json_fault(output: list[dict[str, Any]], request: Request) -> str | None:
    """Only final answers are JSON: a message of another `phase` comments on the work."""
    if not request.json_answer:
        return None
    texts: list[str] = []
    for item in output:
        for part in _parts(item):
            if part["type"] == "refusal":
                return None
            if part["type"] == "output_text" and item.get("phase") in (None, "final_answer"):
                texts.append(part["text"])
    if not texts and any(item["type"] in CALLS for item in output):
        return None
    return json_fault("".join(texts), request.schema)


def ids_of(response: dict[str, Any]) -> tuple[str, ...]:
    """The response's id and those by which the caller answers tool calls.

    Ids of items stay: callers send items back whole, so that the next turn's key holds them, and
    encrypted reasoning refers to them.
    """
    found = [response.get("id")]
    found += [call_id_of(item) for item in as_items(response.get("output"))]
    return tuple(dict.fromkeys(item for item in found if type(item) is str and item))


def call_id_of(item: Any) -> Any:
    """The id of a call that the caller answers; None for other items."""
    item = as_mapping(item)
    return item.get("call_id") if item.get("type") in tuple(CALLS) else None


def usage_of(response: dict[str, Any]) -> Usage | None:
    """OpenAI counts cache reads and writes inside `input_tokens`."""
    usage = as_mapping(response.get("usage"))
    details = as_mapping(usage.get("input_tokens_details"))
    return usage_from(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        details.get("cached_tokens"),
        details.get("cache_write_tokens"),
        as_mapping(details.get("cache_write_tokens_details")).get("ttl_12h_tokens"),
    )
