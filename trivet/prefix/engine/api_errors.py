"""Errors in the shape that the caller's SDK reads, and how they are sent and logged."""

from __future__ import annotations

import json
import logging
import re
import traceback
from typing import Any

import orjson

from trivet.errors import RequestError
from trivet.prefix.engine import http_io

_log = logging.getLogger("trivet.engine")

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
    """The body of Anthropic's error answers; the message begins with the field, as theirs do,
    unless it has its name elsewhere."""
    other = "api_error" if failed.status >= 500 else "invalid_request_error"
    message, field = failed.message, failed.field
    if field:
        message = message.removeprefix(f"'{field}' ")
    if field and not re.search(rf"(?<![\w-]){re.escape(field)}(?![\w-])", message):
        message = f"{field}: {message}"
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


async def refuse(send: http_io.Send, error: RequestError, *, anthropic: bool, allow: bytes) -> None:
    """Answer with the error; `allow` is the method that the path takes."""
    headers = [*http_io.JSON]
    if error.status in (429, 503):
        headers.append((b"retry-after", b"1"))
    if error.status in (408, 413):
        # The rest of the body is not waited for.
        headers.append((b"connection", b"close"))
    if error.status == 405:
        headers.append((b"allow", allow))
    await http_io.reply(send, error.status, error_body(error, anthropic=anthropic), headers)


def report(defect: Exception) -> None:
    """Log what was not foreseen: the message may quote the request, the place does not."""
    frames = traceback.extract_tb(defect.__traceback__)[-5:]
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    _log.error("request failed: %s at %s", type(defect).__name__, places)
