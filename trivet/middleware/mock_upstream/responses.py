"""OpenAI Responses: requests, and the `response` object. `responses_stream` has its events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.mock_upstream import answers, chat
from trivet.middleware.mock_upstream.answers import Asked, Body, Draft, Tool, ToolCall
from trivet.middleware.mock_upstream.commands import Commands

TRANSPORT = frozenset(
    [
        "stream",
        "stream_options",
        "metadata",
        "user",
        "safety_identifier",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "store",
    ]
)
_ECHOED: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
_STATUS = {
    "length": ("incomplete", "max_output_tokens"),
    "filter": ("incomplete", "content_filter"),
}


def ask(body: Body) -> Asked:
    """Read a request. Raises `RequestError` 400 naming the field."""
    given = body.get("input")
    if not isinstance(given, str | list) or not given:
        raise RequestError(400, "'input' must be a string or an array.", field="input")
    choice = body.get("tool_choice")
    named = choice.get("name") if isinstance(choice, Mapping) else None
    return Asked(
        model=body["model"],
        digest=answers.digest_of(body, TRANSPORT),
        text=_last_text(given),
        sampled=answers.is_sampled(body),
        tools=tuple(_tools(body.get("tools"))),
        forced=named or choice == "required",
        parallel=body.get("parallel_tool_calls") is not False,
        schema=chat.schema_of((body.get("text") or {}).get("format")),
        prompt_tokens=1 + len(canonical.dump([body.get("instructions"), given])) // 4,
    )


def _last_text(given: Any) -> str:
    if isinstance(given, str):
        return given
    last = given[-1] if isinstance(given[-1], Mapping) else {}
    return answers.text_of(last.get("content")) if last.get("role") == "user" else ""


def _tools(tools: Any) -> Iterator[Tool]:
    for tool in tools or ():
        if tool.get("type") == "function":
            yield Tool(tool["name"], tool.get("parameters") or {})
        elif tool.get("type") == "custom":
            yield Tool(tool["name"], None)


def answer(body: Body, asked: Asked, commands: Commands) -> Body:
    """The `response` object."""
    draft = answers.compose(asked, commands)[0]
    status, reason = _STATUS.get(draft.finish, ("completed", None))
    status = commands.finish or status
    text = body.get("text") or {}
    reasoning = body.get("reasoning") or {}
    now = int(time.time())
    made: Body = {
        "id": answers.fresh("resp_"),
        "object": "response",
        "created_at": now,
        "completed_at": now if status == "completed" else None,
        "status": status,
        "error": {"code": "server_error", "message": "As told."} if status == "failed" else None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": commands.served or asked.model,
        "output": list(_output(draft, body, asked, commands)),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "usage": _usage(draft, asked, commands),
    }
    for name, default in _ECHOED.items():
        made[name] = default if body.get(name) is None else body[name]
    if commands.no_usage:
        made["usage"] = None
    return made


def _output(draft: Draft, body: Body, asked: Asked, commands: Commands) -> Iterator[Body]:
    reasoning = body.get("reasoning") or {}
    if reasoning or commands.reasoning:
        yield _reasoning(body, asked, bool(reasoning.get("summary")) or commands.reasoning)
    if draft.refused:
        yield _message([{"type": "refusal", "refusal": draft.text}], draft)
    elif draft.text:
        yield _message([_text(draft, body, commands)], draft)
    for call in draft.tools:
        yield _call(call)


def _reasoning(body: Body, asked: Asked, with_summary: bool) -> Body:
    text = "The mock upstream made no thought, only this line."
    item: Body = {
        "id": answers.fresh("rs_"),
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}] if with_summary else [],
    }
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        item["encrypted_content"] = f"mock{asked.digest}"
    return item


def _message(content: list[Body], draft: Draft) -> Body:
    return {
        "id": answers.fresh("msg_"),
        "type": "message",
        "role": "assistant",
        "status": "incomplete" if draft.finish in _STATUS else "completed",
        "content": content,
    }


def _text(draft: Draft, body: Body, commands: Commands) -> Body:
    wanted = "message.output_text.logprobs" in (body.get("include") or ())
    top = body.get("top_logprobs") or 0
    notes = [{"type": "url_citation", **chat.citation(draft.text)}] if commands.annotations else []
    return {
        "type": "output_text",
        "text": draft.text,
        "annotations": notes,
        "logprobs": answers.logprobs_of(draft.text, top) if wanted else [],
    }


def _call(call: ToolCall) -> Body:
    head = {"status": "completed", "call_id": answers.fresh("call_"), "name": call.name}
    if call.custom:
        fields = {"id": answers.fresh("ctc_"), "type": "custom_tool_call"}
        return {**fields, **head, "input": call.arguments}
    fields = {"id": answers.fresh("fc_"), "type": "function_call"}
    return {**fields, **head, "arguments": call.arguments}


def _usage(draft: Draft, asked: Asked, commands: Commands) -> Body:
    shared = chat.usage_of(asked, [draft], commands)
    return {
        "input_tokens": shared["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": commands.cached, "cache_write_tokens": 0},
        "output_tokens": shared["completion_tokens"],
        "output_tokens_details": {
            "reasoning_tokens": shared["completion_tokens_details"]["reasoning_tokens"]
        },
        "total_tokens": shared["total_tokens"],
    }
