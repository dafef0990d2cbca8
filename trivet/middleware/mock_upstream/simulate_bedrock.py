"""Amazon Bedrock's Converse and ConverseStream with prompt caching.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html and the shapes of
botocore's `bedrock-runtime` 2023-09-30. The access key and region of the signature, or the bearer
token, stand for the account; signatures are not checked. InvokeModel is not here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import orjson

from trivet.errors import RequestError
from trivet.middleware.mock_upstream import answers
from trivet.middleware.mock_upstream.answers import Asked, Body, Draft, Tool
from trivet.middleware.mock_upstream.commands import Commands
from trivet.middleware.mock_upstream.event_stream import event, exception
from trivet.middleware.mock_upstream.routes import Call, Reply
from trivet.middleware.mock_upstream.simulate_gemini import body_of
from trivet.middleware.mock_upstream.simulated import SimulatedRoutes, commands_in, told_of
from trivet.prefix.caches import Billed
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi

_PATH: Final = re.compile(r"/model/(.+)/(converse|converse-stream)")
_CREDENTIAL: Final = re.compile(r"Credential=([^/,]+)/[^/]*/([^/]*)/")
_ERRORS: Final = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_STOP: Final = {
    "stop": "end_turn",
    "tool": "tool_use",
    "length": "max_tokens",
    "filter": "content_filtered",
    "refusal": "content_filtered",
}


class BedrockRoutes(SimulatedRoutes):
    """See the module."""

    provider = "bedrock"
    name = "Amazon Bedrock"

    def reply_at(self, call: Call) -> Reply:
        """See `SimulatedRoutes`."""
        try:
            found = _PATH.fullmatch(call.route)
            if found is None or call.method != "POST":
                raise RequestError(404, f"The simulator has no {call.method} {call.route}.")
            return self._converse(call, unquote(found[1]), found[2] == "converse-stream")
        except RequestError as error:
            return self.error(call, error, commands_in(call, ""))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = f"The simulator cannot read this request: {type(error).__name__}: {error}"
            return self.error(call, RequestError(400, told), commands_in(call, ""))

    def owner(self, call: Call, body: Body) -> str:
        """The account's key and the region."""
        given = call.headers.get("authorization", "")
        signed = _CREDENTIAL.search(given)
        return f"{signed[1]} {signed[2]}" if signed else given

    def error(self, call: Call, error: RequestError, commands: Commands) -> Reply:
        """In the shape of Amazon's JSON services."""
        kind = _ERRORS.get(error.status, "InternalServerException")
        head = [("content-type", "application/json"), ("x-amzn-errortype", kind)]
        if commands.retry_after is not None:
            head.append(("retry-after", commands.retry_after))
        return Reply(error.status, orjson.dumps({"message": error.message}), commands, headers=head)

    def _converse(self, call: Call, model: str, stream: bool) -> Reply:
        body, commands = body_of(call), commands_in(call, model)
        if commands.status is not None:
            told = f"The simulator was told to answer {commands.status}."
            return self.error(call, RequestError(commands.status, told), commands)
        if not body.get("messages"):
            raise RequestError(400, "A conversation must start with a user message.")
        _check_points(body)
        outline = native_outline(NativeApi.CONVERSE, model, body)
        billed = self.ask(self.owner(call, body), outline)
        draft = answers.compose(_asked(body, model), commands)[0]
        made = {
            "output": {"message": {"role": "assistant", "content": list(_content(draft))}},
            "stopReason": commands.finish or _STOP[draft.finish],
            "metrics": {"latencyMs": 1},
            "usage": _usage(billed, answers.count(draft.text) + 4 * len(draft.tools)),
        }
        head = [*told_of(billed, self.moment), ("x-amzn-requestid", answers.fresh("mock-"))]
        if stream:
            head.append(("content-type", "application/vnd.amazon.eventstream"))
            return Reply(200, b"", commands, _events(made), _error_event, head)
        head.append(("content-type", "application/json"))
        return Reply(200, orjson.dumps(made), commands, headers=head)


def _check_points(body: Body) -> None:
    given: list[Any] = [body.get("system"), (body.get("toolConfig") or {}).get("tools")]
    given += [message.get("content") for message in body["messages"]]
    for blocks in given:
        for block in blocks or ():
            point = block.get("cachePoint")
            if point is not None and point.get("type") != "default":
                raise RequestError(400, "cachePoint.type: only `default` is supported.")


def _asked(body: Body, model: str) -> Asked:
    unmarked = dict(body)
    for name in ("system", "messages"):
        unmarked[name] = _without_points(body.get(name))
    unmarked["toolConfig"] = _without_points(body.get("toolConfig"))
    last = body["messages"][-1]
    config = body.get("toolConfig") or {}
    choice = config.get("toolChoice") or {}
    specs = [tool["toolSpec"] for tool in config.get("tools") or () if "toolSpec" in tool]
    return Asked(
        model=model,
        digest=answers.digest_of({"model": model, **unmarked}, frozenset(("requestMetadata",))),
        text=answers.text_of(last.get("content")) if last.get("role") == "user" else "",
        sampled=answers.is_sampled(body.get("inferenceConfig") or {}),
        tools=tuple(Tool(one["name"], one["inputSchema"]["json"]) for one in specs),
        forced=(choice.get("tool") or {}).get("name") or "any" in choice,
    )


def _without_points(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_points(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_points(one) for one in value if not _is_point(one)]
    return value


def _is_point(value: Any) -> bool:
    return isinstance(value, dict) and "cachePoint" in value


def _content(draft: Draft) -> Iterator[Body]:
    if draft.text:
        yield {"text": draft.text}
    for call in draft.tools:
        made = orjson.loads(call.arguments)
        use = {"toolUseId": answers.fresh("tooluse_"), "name": call.name, "input": made}
        yield {"toolUse": use}


def _usage(billed: Billed, made: int) -> Body:
    return {
        "inputTokens": billed.uncached,
        "outputTokens": made,
        "totalTokens": billed.total + made,
        "cacheReadInputTokens": billed.read,
        "cacheWriteInputTokens": sum(tokens for _, tokens in billed.writes),
        "cacheDetails": [{"ttl": ttl, "inputTokens": tokens} for ttl, tokens in billed.writes],
    }


def _events(made: Body) -> Iterator[bytes]:
    yield event("messageStart", {"role": "assistant"})
    for index, block in enumerate(made["output"]["message"]["content"]):
        if "toolUse" in block:
            use = block["toolUse"]
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield event("contentBlockStart", {"contentBlockIndex": index, "start": start})
            deltas: list[Body] = [
                {"toolUse": {"input": piece}}
                for piece in answers.halves(orjson.dumps(use["input"]).decode())
            ]
        else:
            deltas = [{"text": piece} for piece in answers.pieces(block["text"])]
        for delta in deltas:
            yield event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
        yield event("contentBlockStop", {"contentBlockIndex": index})
    yield event("messageStop", {"stopReason": made["stopReason"]})
    yield event("metadata", {"usage": made["usage"], "metrics": made["metrics"]})


def _error_event(message: str) -> bytes:
    return exception("internalServerException", {"message": message})
