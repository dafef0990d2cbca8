"""Counting tokens at a server that tenants share: nothing in the request chooses a cache there."""

from __future__ import annotations

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.prefix_tier.tier import Sent
from trivet.prefix.backends.base import SERVER_FIELDS, SERVER_HEADERS
from trivet.prefix.prompts.splice import Splice


def is_count(method: str, path: str) -> bool:
    """Whether a request asks for a prompt's number of tokens (Anthropic's API)."""
    return method == "POST" and path.removeprefix("/v1") == "/messages/count_tokens"


def unsteered(headers: RawHeaders, raw: bytes) -> Sent:
    """The request without the fields and headers that choose whose prefixes are read. Blocking.
    Raises `RequestError` 400 where the body is no JSON object."""
    body = canonical.parse(raw)
    if not isinstance(body, dict):
        raise RequestError(400, "The body is not a JSON object.", code="invalid_json")
    kept = [item for item in headers if item[0] not in SERVER_HEADERS]
    steering = [name for name in SERVER_FIELDS if name in body]
    if not steering:
        return Sent(raw, kept)
    text = Splice(raw)
    for name in steering:
        text.drop(name)
    return Sent(text.done(), kept)
