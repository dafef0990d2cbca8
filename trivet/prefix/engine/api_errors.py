"""Errors in the shape that the caller's SDK reads."""

from __future__ import annotations

import json
from typing import Any

import orjson

from trivet.errors import RequestError

_OPENAI = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def openai_error(failed: RequestError) -> dict[str, Any]:
    """The body of OpenAI's error answers."""
    other = "server_error" if failed.status >= 500 else "invalid_request_error"
    kind = _OPENAI.get(failed.status, other)
    named = {"message": failed.message, "type": kind}
    return {"error": {**named, "param": failed.field, "code": failed.code}}


def anthropic_error(failed: RequestError) -> dict[str, Any]:
    """The body of Anthropic's error answers; the message begins with the field, as theirs do."""
    other = "api_error" if failed.status >= 500 else "invalid_request_error"
    message = f"{failed.field}: {failed.message}" if failed.field else failed.message
    error = {"type": _ANTHROPIC.get(failed.status, other), "message": message}
    return {"type": "error", "error": error}


def error_body(failed: RequestError, *, anthropic: bool) -> bytes:
    """An error as JSON in one of the two dialects."""
    made = anthropic_error(failed) if anthropic else openai_error(failed)
    try:
        return orjson.dumps(made)
    except TypeError:
        # A field's name may be of the caller's making: with lone surrogates it is ASCII JSON.
        return json.dumps(made).encode("ascii")
