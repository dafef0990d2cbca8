"""Anthropic Messages, as the official SDKs read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream import answers
from trivet.middleware.mock_upstream.answers import Asked, Body, Draft, Tool
from trivet.middleware.mock_upstream.commands import Commands

TRANSPORT = frozenset(
    [
        "stream",
        "metadata",
        "service_tier",
        "user_profile_id",
        "workspace_id",
        "billing_policy",
        "cache_control",
        "diagnostics",
    ]
)
STOP = {
    "stop": "end_turn",
    "length": "max_tokens",
    "filter": "refusal",
    "refusal": "refusal",
    "tool": "tool_use",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def ask(body: Body) -> Asked:
    """Read a request. Raises `RequestError` 400 naming the field."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "messages: at least one message is required", field="messages")
    last = messages[-1] if isinstance(messages[-1], Mapping) else {}
    choice = body.get("tool_choice") or {}
    form = (body.get("output_config") or {}).get("format") or {}
    return Asked(
        model=body["model"],
        digest=answers.digest_of(body, TRANSPORT),
        text=answers.text_of(last.get("content")) if last.get("role") == "user" else "",
        sampled=body.get("temperature") != 0,
        tools=tuple(
            Tool(tool["name"], tool["input_schema"])
            for tool in body.get("tools") or ()
            if "input_schema" in tool
        ),
        forced=choice.get("name") or choice.get("type") in ("any", "tool"),
        parallel=not choice.get("disable_parallel_tool_use"),
        schema=form.get("schema"),
        prompt_tokens=tokens_of(body),
    )


def tokens_of(body: Body) -> int:
    """Prompt tokens, made up from the length of what a model would read."""
    read = [body.get("system"), body.get("tools"), body.get("messages")]
    return 1 + len(canonical.dump(read)) // 4


def answer(body: Body, asked: Asked, commands: Commands) -> Body:
    """The `message` object."""
    if "max_tokens" not in body:
        raise RequestError(400, "max_tokens: Field required", field="max_tokens")
    prewarm = body["max_tokens"] == 0
    draft = Draft("", "length") if prewarm else answers.compose(asked, commands)[0]
    stop = commands.finish or STOP[draft.finish]
    made: Body = {
        "id": answers.fresh("msg_"),
        "type": "message",
        "role": "assistant",
        "model": commands.served or asked.model,
        "content": list(_content(draft, body, asked, commands)),
        "stop_reason": stop,
        "stop_sequence": None,
        "stop_details": _details(draft) if stop == "refusal" else None,
        "usage": _usage(draft, asked, commands),
    }
    if commands.no_usage:
        del made["usage"]
    return made


def _details(draft: Draft) -> Body:
    return {"type": "refusal", "category": None, "explanation": draft.text or None}


def _content(draft: Draft, body: Body, asked: Asked, commands: Commands) -> Iterator[Body]:
    thinking = (body.get("thinking") or {}).get("type")
    if (thinking not in (None, "disabled") or commands.reasoning) and not commands.empty:
        text = "The mock upstream made no thought, only this line."
        yield {"type": "thinking", "thinking": text, "signature": f"mock{asked.digest}"}
        if "redacted" in asked.text.lower():
            yield {"type": "redacted_thinking", "data": f"mock{asked.digest}"}
    if draft.text:
        block: Body = {"type": "text", "text": draft.text, "citations": None}
        if commands.annotations or _cites(body):
            block["citations"] = [_citation()]
        yield block
    for call in draft.tools:
        made = orjson.loads(call.arguments)
        yield {"type": "tool_use", "id": answers.fresh("toolu_"), "name": call.name, "input": made}


def _cites(body: Body) -> bool:
    content = body["messages"][-1].get("content")
    blocks = content if isinstance(content, list) else ()
    return any((block.get("citations") or {}).get("enabled") for block in blocks)


def _citation() -> Body:
    return {
        "type": "char_location",
        "cited_text": "mock",
        "document_index": 0,
        "document_title": "Mock",
        "file_id": None,
        "start_char_index": 0,
        "end_char_index": 4,
    }


def _usage(draft: Draft, asked: Asked, commands: Commands) -> Body:
    made = answers.count(draft.text)
    made += sum(answers.count(call.arguments) + 4 for call in draft.tools)
    return {
        "input_tokens": max(asked.prompt_tokens - commands.cached, 1),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": commands.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": made,
        "service_tier": "standard",
    }


def events(made: Body, body: Body) -> Iterator[bytes]:
    """The stream whose accumulation is `made`."""
    usage = made.get("usage")
    opened = {**made, "content": [], "stop_reason": None, "stop_details": None}
    if usage:
        opened["usage"] = {**usage, "output_tokens": 1}
    yield _event("message_start", {"message": opened})
    yield _event("ping", {})
    for index, block in enumerate(made["content"]):
        yield _event("content_block_start", {"index": index, "content_block": _opened(block)})
        for delta in _deltas(block):
            yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})
    ended = {key: made[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    final = {"delta": ended, "usage": {"output_tokens": usage["output_tokens"]} if usage else {}}
    yield _event("message_delta", final)
    yield _event("message_stop", {})


def _event(name: str, fields: Body) -> bytes:
    return sse.frame(orjson.dumps({"type": name, **fields}), name)


def _opened(block: Body) -> Body:
    if block["type"] == "text":
        return {**block, "text": "", "citations": [] if block["citations"] else None}
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}
    if block["type"] == "tool_use":
        return {**block, "input": {}}
    return block


def _deltas(block: Body) -> Iterator[Body]:
    if block["type"] == "text":
        for piece in answers.pieces(block["text"]):
            yield {"type": "text_delta", "text": piece}
        for citation in block["citations"] or ():
            yield {"type": "citations_delta", "citation": citation}
    elif block["type"] == "thinking":
        for piece in answers.pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in answers.halves(orjson.dumps(block["input"]).decode()):
            yield {"type": "input_json_delta", "partial_json": piece}


def error(status: int, message: str, field: str | None, code: str | None) -> Body:
    """An error body as Anthropic sends it."""
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    made: dict[str, Any] = {"type": kind, "message": message}
    return {"type": "error", "error": made, "request_id": answers.fresh("req_")}


def error_event(message: str) -> bytes:
    """An error in the middle of a stream."""
    return _event("error", {"error": {"type": "overloaded_error", "message": message}})
