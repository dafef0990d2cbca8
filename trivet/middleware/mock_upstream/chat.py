"""OpenAI chat completions, as the official SDKs read them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream import answers
from trivet.middleware.mock_upstream.answers import Asked, Body, Draft, Tool, ToolCall
from trivet.middleware.mock_upstream.commands import Commands

TRANSPORT = frozenset(
    [
        "stream",
        "stream_options",
        "user",
        "safety_identifier",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    ]
)
FINISH = {
    "stop": "stop",
    "length": "length",
    "filter": "content_filter",
    "refusal": "stop",
    "tool": "tool_calls",
}


def ask(body: Body) -> Asked:
    """Read a request. Raises `RequestError` 400 naming the field."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "'messages' must be an array with a message.", field="messages")
    last = messages[-1] if isinstance(messages[-1], Mapping) else {}
    offered = [*_tools(body.get("tools")), *_functions(body.get("functions"))]
    return Asked(
        model=body["model"],
        digest=answers.digest_of(body, TRANSPORT),
        text=answers.text_of(last.get("content")) if last.get("role") == "user" else "",
        sampled=answers.is_sampled(body),
        choices=body.get("n") or 1,
        tools=tuple(offered),
        forced=_forced(body.get("tool_choice") or body.get("function_call")),
        parallel=body.get("parallel_tool_calls") is not False,
        schema=schema_of(body.get("response_format")),
        prompt_tokens=1 + len(canonical.dump(messages)) // 4,
    )


def _tools(tools: Any) -> Iterator[Tool]:
    for tool in tools or ():
        if tool.get("type") == "custom":
            yield Tool(tool["custom"]["name"], None)
        elif tool.get("type") == "function":
            yield Tool(tool["function"]["name"], tool["function"].get("parameters") or {})


def _functions(functions: Any) -> Iterator[Tool]:
    for function in functions or ():
        yield Tool(function["name"], function.get("parameters") or {})


def _forced(choice: Any) -> str | bool:
    if isinstance(choice, Mapping):
        named = choice.get("function") or choice.get("custom") or choice
        return str(named.get("name", "")) or True
    return bool(choice == "required")


def schema_of(form: Any) -> Any:
    """The schema that `response_format` (or its like) asks for; True for any JSON object."""
    if not isinstance(form, Mapping):
        return None
    if form.get("type") == "json_schema":
        inner = form.get("json_schema", form)
        return inner.get("schema") or True
    return True if form.get("type") == "json_object" else None


def answer(body: Body, asked: Asked, commands: Commands) -> Body:
    """The `chat.completion` object."""
    drafts = answers.compose(asked, commands)
    choices = [
        {
            "index": index,
            "message": _message(draft, body, commands),
            "logprobs": _logprobs(draft, body),
            "finish_reason": commands.finish or FINISH[draft.finish],
        }
        for index, draft in enumerate(drafts)
    ]
    if body.get("functions") and drafts[0].tools:
        for choice in choices:
            choice["finish_reason"] = commands.finish or "function_call"
    made: Body = {
        "id": answers.fresh("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": commands.served or asked.model,
        "choices": choices,
        "usage": usage_of(asked, drafts, commands),
        "service_tier": "default",
        "system_fingerprint": "fp_not_a_model",
    }
    if commands.no_usage:
        del made["usage"]
    return made


def _message(draft: Draft, body: Body, commands: Commands) -> Body:
    message: Body = {
        "role": "assistant",
        "content": None if draft.tools or draft.refused else draft.text,
        "refusal": draft.text if draft.refused else None,
    }
    if commands.reasoning:
        message["reasoning_content"] = "The mock upstream made no thought, only this line."
    if draft.tools and body.get("functions"):
        call = draft.tools[0]
        message["function_call"] = {"name": call.name, "arguments": call.arguments}
    elif draft.tools:
        message["tool_calls"] = [_call(call) for call in draft.tools]
    message["annotations"] = []
    if commands.annotations:
        message["annotations"] = [{"type": "url_citation", "url_citation": citation(draft.text)}]
    return message


def citation(text: str) -> Body:
    """A URL citation over the first word of `text`."""
    end = len(text.split(" ", 1)[0])
    return {"start_index": 0, "end_index": end, "title": "Mock", "url": "https://example.com/mock"}


def _call(call: ToolCall) -> Body:
    head: Body = {"id": answers.fresh("call_")}
    if call.custom:
        return head | {"type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return head | {"type": "function", "function": function}


def _logprobs(draft: Draft, body: Body) -> Body | None:
    if not body.get("logprobs") or draft.tools:
        return None
    entries = answers.logprobs_of(draft.text, body.get("top_logprobs") or 0)
    return {
        "content": None if draft.refused else entries,
        "refusal": entries if draft.refused else None,
    }


def usage_of(asked: Asked, drafts: Iterable[Draft], commands: Commands) -> Body:
    """Usage in the shape that chat and completions share."""
    made = sum(
        answers.count(draft.text) + sum(answers.count(call.arguments) + 4 for call in draft.tools)
        for draft in drafts
    )
    thought = 9 if commands.reasoning else 0
    prompt = max(asked.prompt_tokens, commands.cached + 1)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made + thought,
        "total_tokens": prompt + made + thought,
        "prompt_tokens_details": {"cached_tokens": commands.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def events(made: Body, body: Body) -> Iterator[bytes]:
    """The stream whose accumulation is `made`: choices interleaved, `[DONE]` last."""
    head = {"id": made["id"], "object": "chat.completion.chunk"}
    head |= {key: made[key] for key in ("created", "model", "service_tier", "system_fingerprint")}
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    tail: Body = {"usage": None} if with_usage and "usage" in made else {}

    def chunk(choices: list[Body], end: Body) -> bytes:
        return sse.frame(orjson.dumps({**head, "choices": choices, **end}))

    streams = [list(_deltas(choice)) for choice in made["choices"]]
    for level in itertools.zip_longest(*streams):
        for delta in level:
            if delta is not None:
                yield chunk([delta], tail)
    if tail:
        yield chunk([], {"usage": made["usage"]})
    yield sse.frame(b"[DONE]")


def _deltas(choice: Body) -> Iterator[Body]:
    message = choice["message"]
    index = choice["index"]

    def delta(fields: Body, finish: str | None = None, logprobs: Body | None = None) -> Body:
        return {"index": index, "delta": fields, "logprobs": logprobs, "finish_reason": finish}

    first = {"role": "assistant", "content": None if message["content"] is None else ""}
    yield delta({**first, "refusal": None})
    for piece in answers.pieces(message.get("reasoning_content") or ""):
        yield delta({"reasoning_content": piece})
    for name in ("content", "refusal"):
        entries = (choice["logprobs"] or {}).get(name) or ()
        tokens = answers.pieces(message[name] or "")
        for piece, entry in itertools.zip_longest(tokens, entries[: len(tokens)]):
            yield delta({name: piece}, None, {name: [entry]} if entry else None)
    yield from (delta(fields) for fields in _call_deltas(message))
    if message["annotations"]:
        yield delta({"annotations": message["annotations"]})
    yield delta({}, choice["finish_reason"])


def _call_deltas(message: Body) -> Iterator[Body]:
    if "function_call" in message:
        yield {"function_call": {"name": message["function_call"]["name"], "arguments": ""}}
        for piece in answers.halves(message["function_call"]["arguments"]):
            yield {"function_call": {"arguments": piece}}
    for at, call in enumerate(message.get("tool_calls", ())):
        kind = call["type"]
        text = "input" if kind == "custom" else "arguments"
        named = {"name": call[kind]["name"], text: ""}
        yield {"tool_calls": [{"index": at, "id": call["id"], "type": kind, kind: named}]}
        for piece in answers.halves(call[kind][text]):
            yield {"tool_calls": [{"index": at, kind: {text: piece}}]}


def error(status: int, message: str, field: str | None, code: str | None) -> Body:
    """An error body as OpenAI sends it."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def error_event(message: str) -> bytes:
    """An error in the middle of a stream."""
    return sse.frame(orjson.dumps(error(500, message, None, "mock")))
