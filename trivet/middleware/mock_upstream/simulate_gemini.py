"""Gemini: generateContent, its stream, countTokens, cachedContents, and the OpenAI-compatible API.

https://ai.google.dev/api/generate-content and /api/caching. An API key stands for a project.
Streams are sent as events (`alt=sse`), as the SDKs ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream import answers
from trivet.middleware.mock_upstream.answers import Asked, Body, Draft, Tool
from trivet.middleware.mock_upstream.commands import Commands
from trivet.middleware.mock_upstream.gemini_contents import Contents
from trivet.middleware.mock_upstream.routes import Call, Reply
from trivet.middleware.mock_upstream.simulated import (
    SimulatedDialect,
    check_fields,
    commands_in,
    told_of,
    unrefused,
)
from trivet.prefix.caches import Billed
from trivet.prefix.caches.gemini import GeminiCache
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Outline

_METHOD: Final = re.compile(r"/(?:v1beta|v1)?/?models/([^/:]+):(\w+)")
_KNOWN: Final = frozenset(
    (
        *("cachedContent", "contents", "generationConfig", "labels", "model", "safetySettings"),
        *("serviceTier", "store", "systemInstruction", "toolConfig", "tools"),
    )
)
_UNKNOWN: Final = 'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
_STATUS: Final = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
                  404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}  # fmt: skip
_FINISH: Final = {"stop": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY",
                  "refusal": "SAFETY"}  # fmt: skip


class GeminiRoutes(SimulatedDialect):
    """See the module."""

    provider = "gemini"
    name = "Gemini"
    served = ("/chat/completions",)

    def route(self, route: str) -> str:
        """The OpenAI-compatible API is under `/v1beta/openai`."""
        return route.removeprefix("/v1beta/openai")

    def reply_at(self, call: Call) -> Reply:
        """See `SimulatedDialect`."""
        try:
            method = _METHOD.fullmatch(call.route)
            if method is not None and call.method == "POST":
                return self._generate(call, method[1], method[2])
            contents = call.route.partition("/cachedContents")
            if contents[1]:
                made = Contents(cast(GeminiCache, self.cache), self.owner(call, {}), self.moment.at)
                return _json(made.answer(call.method, contents[2].strip("/"), body_of(call)), call)
        except RequestError as error:
            return self.error(call, error, commands_in(call, ""))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = f"The simulator cannot read this request: {type(error).__name__}: {error}"
            return self.error(call, RequestError(400, told), commands_in(call, ""))
        return super().reply_at(call)

    def usage(self, call: Call, usage: Body, billed: Billed, outline: Outline) -> Body:
        """In OpenAI's shape."""
        return usage | {
            "prompt_tokens": billed.total,
            "total_tokens": billed.total + usage["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": billed.read},
        }

    def error(self, call: Call, error: RequestError, commands: Commands) -> Reply:
        """In Google's shape."""
        if call.route == "/chat/completions":
            return super().error(call, error, commands)
        status = _STATUS.get(error.status, "INTERNAL" if error.status >= 500 else "UNKNOWN")
        told = {"code": error.status, "message": error.message, "status": status}
        head = [("content-type", "application/json; charset=UTF-8")]
        if commands.retry_after is not None:
            head.append(("retry-after", commands.retry_after))
        return Reply(error.status, orjson.dumps({"error": told}), commands, headers=head)

    def _generate(self, call: Call, model: str, method: str) -> Reply:
        body = camel(body_of(call))
        commands = commands_in(call, model)
        if commands.status is not None:
            told = f"The simulator was told to answer {commands.status}."
            return self.error(call, RequestError(commands.status, told), commands)
        if model.startswith("no-such"):
            raise RequestError(404, f"models/{model} is not found for API version v1beta")
        outline = native_outline(NativeApi.GENERATE, model, body)
        if method == "countTokens":
            return _json({"totalTokens": outline.tokens}, call, commands)
        if method not in ("generateContent", "streamGenerateContent"):
            raise RequestError(404, f"There is no {method}.")
        check_fields(body, _KNOWN, _UNKNOWN)
        if not outline.parts or not body.get("contents"):
            raise RequestError(400, "* GenerateContentRequest.contents: contents is not specified")
        billed = self._bill(call, body, outline)
        made = _answer(body, model, outline, commands)
        if not commands.no_usage:
            made["usageMetadata"] = _usage(billed, made.pop("tokens"))
        else:
            del made["tokens"]
        pairs = told_of(billed, self.moment)
        if method == "generateContent":
            return _json(made, call, commands, pairs)
        head = [*pairs, ("content-type", "text/event-stream")]
        return Reply(200, b"", commands, _events(made), _error_event, head)

    def _bill(self, call: Call, body: Body, outline: Outline) -> Billed:
        name = body.get("cachedContent")
        owner = self.owner(call, body)
        if name is None:
            return self.ask(owner, outline)
        outline = outline._replace(model=outline.model.partition("+")[0])
        if body.get("toolConfig"):
            told = "CachedContent can not be used with GenerateContent request setting tool_config."
            raise RequestError(400, told)
        cache = cast(GeminiCache, self.cache)
        return unrefused(cache.ask_with(owner, name, outline, self.moment.at))


def body_of(call: Call) -> Body:
    """The JSON object of a request; empty where it has none. Raises `RequestError`."""
    body = canonical.parse(call.raw) if call.raw else {}
    if not isinstance(body, dict):
        raise RequestError(400, "The body must be a JSON object.")
    return body


def camel(body: Body) -> Body:
    """Field names in JSON's spelling: the API takes `system_instruction` as well."""
    return {_camel(name): value for name, value in body.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _answer(body: Body, model: str, outline: Outline, commands: Commands) -> Body:
    last = body["contents"][-1]
    text = answers.text_of(last.get("parts")) if last.get("role", "user") == "user" else ""
    config = body.get("generationConfig") or {}
    asked = Asked(
        model=model,
        digest=answers.digest_of({"model": model, **body}, frozenset(("labels",))),
        text=text,
        sampled=answers.is_sampled(config),
        choices=config.get("candidateCount") or 1,
        tools=tuple(_tools(body.get("tools"))),
        schema=config.get("responseJsonSchema") or config.get("responseSchema"),
        prompt_tokens=outline.tokens,
    )
    drafts = answers.compose(asked, commands)
    return {
        "candidates": [_candidate(index, draft, commands) for index, draft in enumerate(drafts)],
        "modelVersion": commands.served or model,
        "responseId": answers.fresh("mock"),
        "tokens": sum(answers.count(draft.text) + 4 * len(draft.tools) for draft in drafts),
    }


def _tools(tools: Any) -> Iterator[Tool]:
    for tool in tools or ():
        for one in tool.get("functionDeclarations") or tool.get("function_declarations") or ():
            schema = one.get("parametersJsonSchema") or one.get("parameters") or {}
            yield Tool(one["name"], schema)


def _candidate(index: int, draft: Draft, commands: Commands) -> Body:
    parts: list[Body] = [{"text": draft.text}] if draft.text else []
    parts += [
        {"functionCall": {"name": call.name, "args": orjson.loads(call.arguments)}}
        for call in draft.tools
    ]
    finish = commands.finish or _FINISH[draft.finish]
    return {"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": index}


def _usage(billed: Billed, made: int) -> Body:
    usage: Body = {
        "promptTokenCount": billed.total,
        "candidatesTokenCount": made,
        "totalTokenCount": billed.total + made,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": billed.total}],
    }
    if billed.read:
        usage["cachedContentTokenCount"] = billed.read
        usage["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": billed.read}]
    return usage


def _events(made: Body) -> Iterator[bytes]:
    """Each event is an answer with a piece of the text, and the usage; the last has the end."""
    pieces = [piece for part in made["candidates"][0]["content"]["parts"] for piece in _cut(part)]
    for number, piece in enumerate(pieces or [{"text": ""}]):
        candidate: Body = {"content": {"role": "model", "parts": [piece]}, "index": 0}
        if number >= len(pieces) - 1:
            candidate["finishReason"] = made["candidates"][0]["finishReason"]
        yield sse.frame(orjson.dumps(made | {"candidates": [candidate]}))


def _cut(part: Mapping[str, Any]) -> list[Body]:
    if "text" not in part:
        return [dict(part)]
    return [{"text": piece} for piece in answers.pieces(part["text"])]


def _json(
    made: Any,
    call: Call,
    commands: Commands | None = None,
    told: Sequence[tuple[str, str]] = (),
) -> Reply:
    head = [*told, ("content-type", "application/json; charset=UTF-8")]
    return Reply(200, orjson.dumps(made), commands or commands_in(call, ""), headers=head)


def _error_event(message: str) -> bytes:
    told = {"error": {"code": 500, "message": message, "status": "INTERNAL"}}
    return sse.frame(orjson.dumps(told))
