"""The OpenAI Responses dialect (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

import re
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
from trivet.middleware.dialects.openai_shapes import end_user, error_body, read
from trivet.middleware.dialects.responses_answer import judge_body
from trivet.middleware.dialects.responses_record import ResponsesRecorder
from trivet.middleware.dialects.responses_request import (
    canonical_form,
    echo_of,
    echoed,
    echoed_live,
    has_tools,
    uncacheable,
)
from trivet.middleware.dialects.responses_stream import render
from trivet.middleware.dialects.sse import data_of, frame

_RESPONSE: Final = re.compile(rb'"response"\s*:')

_KINDS: Final = {
    "model": STRING,
    "input": STRING + ARRAY,
    "background": BOOLEAN,
    "stream": BOOLEAN,
    "stream_options": OBJECT,
    "store": BOOLEAN,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "top_logprobs": NUMBER,
    "max_output_tokens": NUMBER,
    "max_tool_calls": NUMBER,
    "tools": ARRAY,
    "include": ARRAY,
    "metadata": OBJECT,
    "prompt": OBJECT,
    "prompt_cache_options": OBJECT,
    "reasoning": OBJECT,
    "text": OBJECT,
    "user": STRING,
    "safety_identifier": STRING,
    "prompt_cache_key": STRING,
    "service_tier": STRING,
    "previous_response_id": STRING,
}


class ResponsesDialect:
    """Implements `Dialect` for `/v1/responses`."""

    api = Api.RESPONSES
    path = "/v1/responses"
    request_id_header = "x-request-id"
    asks_usage = False

    def decode(self, raw: bytes, headers: Headers) -> Request:
        """Read a request. Raises `RequestError` 400 naming the field that is wrong."""
        body, directives, forward = read(raw)
        check_types(body, _KINDS)
        _check_input(body.get("input"))
        json_answer, schema = schema_of(as_mapping(as_mapping(body.get("text")).get("format")))
        return Request(
            api=self.api,
            model=_model(body),
            stream=body.get("stream") is True,
            forward=forward,
            canonical=canonical_form(body),
            sampled=not is_zero(body.get("temperature")),
            tools=has_tools(body),
            uncacheable=uncacheable(body),
            user=end_user(body),
            json_answer=json_answer,
            schema=schema,
            echo=echo_of(body),
            keep_ids=body.get("store") is not False,
            directives=directives,
        )

    def record(self, request: Request, body: bytes, rules: StoreRules) -> Answer | NotStored:
        """Judge a 2xx JSON answer."""
        return judge_body(body, request, rules)

    def recorder(self, request: Request) -> Recorder:
        """A recorder for a 2xx event stream."""
        return ResponsesRecorder(request)

    def render_json(self, answer: Answer, request: Request) -> bytes:
        """The response, with the fields that repeat the request taken from this one."""
        if not request.echo:
            return answer.body
        return compact(echoed(canonical.parse(answer.body), dict(request.echo)))

    def render_stream(self, answer: Answer, request: Request) -> bytes:
        """The response as events."""
        return render(echoed(canonical.parse(answer.body), dict(request.echo)))

    def follow(self, event: bytes, request: Request) -> bytes:
        """An event of another caller's live stream, with this caller's echo fields."""
        if _RESPONSE.search(event) is None:
            return event
        try:
            value = as_mapping(canonical.parse(data_of(event)))
        except RequestError:
            return event
        response = value.get("response")
        if type(response) is not dict:
            return event
        shaped = {**value, "response": echoed_live(response, dict(request.echo))}
        return frame(compact(shaped), str(value.get("type", "")) or None)

    def error(self, status: int, message: str, *, field: str | None, code: str | None) -> bytes:
        """https://platform.openai.com/docs/guides/error-codes."""
        return error_body(status, message, field, code)


def _model(body: dict[str, Any]) -> str:
    """A stored prompt may name the model itself; then the request need not."""
    if body.get("model") is None and body.get("prompt") is not None:
        return ""
    return model_of(body)


def _check_input(items: Any) -> None:
    if type(items) is not list:
        return
    for index, item in enumerate(items):
        if type(item) is not dict:
            field = f"input[{index}]"
            raise RequestError(400, f"'{field}' must be an object.", field=field)
