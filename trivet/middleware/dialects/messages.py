"""The Anthropic Messages dialect (https://platform.claude.com/docs/en/api/messages)."""

from __future__ import annotations

from typing import Any, Final

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, Api, NotStored, Request
from trivet.middleware.dialects.base import Headers, Recorder, StoreRules, as_mapping
from trivet.middleware.dialects.bodies import (
    ARRAY,
    BOOLEAN,
    NUMBER,
    OBJECT,
    STRING,
    check_types,
    compact,
    is_zero,
    model_of,
    schema_of,
)
from trivet.middleware.dialects.messages_answer import judge_body
from trivet.middleware.dialects.messages_record import MessagesRecorder
from trivet.middleware.dialects.messages_request import canonical_form, has_tools, uncacheable
from trivet.middleware.dialects.messages_stream import render
from trivet.middleware.dialects.openai_shapes import read

_KINDS: Final = {
    "model": STRING,
    "messages": ARRAY,
    "system": STRING + ARRAY,
    "max_tokens": NUMBER,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "top_k": NUMBER,
    "stop_sequences": ARRAY,
    "stream": BOOLEAN,
    "tools": ARRAY,
    "tool_choice": OBJECT,
    "metadata": OBJECT,
    "thinking": OBJECT,
    "output_config": OBJECT,
}

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesDialect:
    """Implements `Dialect` for `/v1/messages`."""

    api = Api.MESSAGES
    path = "/v1/messages"
    request_id_header = "request-id"
    asks_usage = False

    def decode(self, raw: bytes, headers: Headers) -> Request:
        """Read a request. Raises `RequestError` 400 naming the field that is wrong."""
        body, directives, forward = read(raw)
        check_types(body, _KINDS)
        model = model_of(body)
        _check_messages(body.get("messages"))
        json_answer, schema = schema_of(_format(body))
        return Request(
            api=self.api,
            model=model,
            stream=body.get("stream") is True,
            forward=forward,
            canonical=canonical_form(body),
            sampled=not is_zero(body.get("temperature")),
            tools=has_tools(body),
            uncacheable=uncacheable(body),
            user=_user(body),
            json_answer=json_answer,
            schema=schema,
            directives=directives,
        )

    def record(self, request: Request, body: bytes, rules: StoreRules) -> Answer | NotStored:
        """Judge a 2xx JSON answer."""
        return judge_body(body, request, rules)

    def recorder(self, request: Request) -> Recorder:
        """A recorder for a 2xx event stream."""
        return MessagesRecorder(request)

    def render_json(self, answer: Answer, request: Request) -> bytes:
        """The message as it was answered: nothing in it repeats the request."""
        return answer.body

    def render_stream(self, answer: Answer, request: Request) -> bytes:
        """The message as events."""
        return render(canonical.parse(answer.body))

    def follow(self, event: bytes, request: Request) -> bytes:
        """An event of another caller's live stream: nothing in it is the caller's own."""
        return event

    def error(self, status: int, message: str, *, field: str | None, code: str | None) -> bytes:
        """https://platform.claude.com/docs/en/api/errors; the shape has no place for `code`."""
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        text = message if field is None or field in message else f"{field}: {message}"
        return compact({"type": "error", "error": {"type": kind, "message": text}})


def _check_messages(messages: Any) -> None:
    if messages is None:
        raise RequestError(400, "'messages' must be an array.", field="messages")
    for index, message in enumerate(messages):
        if type(message) is not dict:
            field = f"messages.{index}"
            raise RequestError(400, f"'{field}' must be an object.", field=field)
        if type(message.get("content")) not in (str, list):
            field = f"messages.{index}.content"
            raise RequestError(400, f"'{field}' must be a string or an array.", field=field)


def _format(body: dict[str, Any]) -> dict[str, Any]:
    """The format asked for; the first beta of structured outputs had it at the top."""
    found = as_mapping(body.get("output_config")).get("format")
    return as_mapping(found if found is not None else body.get("output_format"))


def _user(body: dict[str, Any]) -> str | None:
    user = as_mapping(body.get("metadata")).get("user_id")
    return user if type(user) is str and user else None
