"""Replies of the console, and how a request is read: the few bytes of ASGI that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import orjson

from trivet.errors import RequestError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

LARGEST_BODY: Final = 4 << 20
"""Bytes of a request that an operator pastes."""
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
PROTECTION: Final[RawHeaders] = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""On every reply of the console."""
JSON: Final = b"application/json"
_BODILESS: Final = (204, 304)


class Reply(NamedTuple):
    """A whole reply. `cache` is its Cache-Control."""

    status: int
    body: bytes
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    cache: bytes = b"no-store"


def json_reply(value: Any, status: int = 200) -> Reply:
    """A reply of JSON."""
    return Reply(status, orjson.dumps(value))


def error_reply(error: RequestError) -> Reply:
    """A refusal in the shape of the admin API's."""
    told = {"message": error.message, "field": error.field, "code": error.code}
    return json_reply({"error": told}, error.status)


async def send_reply(scope: Message, send: Send, reply: Reply) -> None:
    """Send `reply`; to HEAD without its body."""
    headers = [
        *PROTECTION,
        (b"content-type", reply.kind),
        (b"cache-control", reply.cache),
        *reply.headers,
    ]
    if reply.status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else reply.body
    await send({"type": "http.response.body", "body": body})


def header(scope: Message, name: bytes) -> bytes | None:
    """The one value of a header; None where it is not there, or more than once."""
    found = [value for key, value in scope["headers"] if key.lower() == name]
    return found[0] if len(found) == 1 else None


def query_of(scope: Message) -> Mapping[str, str]:
    """The query's fields; of one that is given twice the last."""
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))


async def body_of(receive: Receive, limit: int = LARGEST_BODY) -> bytes:
    """The request's body. Raises `RequestError`: 413 beyond `limit` bytes, 400 if it breaks off."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "The request ended before its body did.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise RequestError(413, f"The body is larger than {limit} bytes.")
        more = message.get("more_body", False)
    return b"".join(parts)


async def json_of(receive: Receive, limit: int = LARGEST_BODY) -> dict[str, Any]:
    """The request's body as a JSON object. Raises `RequestError`."""
    try:
        value = orjson.loads(await body_of(receive, limit))
    except orjson.JSONDecodeError as error:
        raise RequestError(422, f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise RequestError(422, "The body has to be a JSON object.")
    return value
