"""Raw ASGI apps on the proxy's own server settings: floors to compare with, and an upstream.

python -m bench.apps floor|redis-floor|upstream PORT [REDIS_URL]
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from bench.bodies import answer, chunk, stream_end
from trivet.listening import listen
from trivet.messages import Answer
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.server import uvicorn_server

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
_HI = {"role": "user", "content": "hi"}
STREAM_EVENTS = 20
EVENT_GAP_S = 0.005


async def read(receive: Receive) -> bytes:
    """The whole request body."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message["body"])
    parts = [message["body"]]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


async def reply(send: Send, kind: tuple[bytes, bytes], body: bytes) -> None:
    """Send `body` in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [kind, length]})
    await send({"type": "http.response.body", "body": body})


def stored_stream() -> bytes:
    """The stream that the proxy replays for the answer."""
    stored = Answer(answer(), None, "gpt-4o-mini")
    dialect = ChatDialect()
    body = {"model": "gpt-4o-mini", "messages": [_HI], "stream": True}
    request = dialect.decode(json.dumps(body).encode(), {})
    return dialect.render_stream(stored, request)


def floor() -> App:
    """Parse, hash, look up in a dict, answer."""
    bodies: dict[bytes, bytes] = {}
    whole, stream = answer(), stored_stream()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read(receive)
        body = json.loads(raw)
        key = hashlib.sha256(raw).digest()
        streams = body.get("stream")
        found = bodies.get(key)
        if found is None:
            found = bodies[key] = stream if streams else whole
        await reply(send, _STREAM if streams else _JSON, found)

    return app


def redis_floor(url: str) -> App:
    """Parse, hash, one GET, answer."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(url)
    whole = answer()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read(receive)
        json.loads(raw)
        key = b"floor:" + hashlib.sha256(raw).digest()
        found = await client.get(key)
        if found is None:
            await client.set(key, whole)
        await reply(send, _JSON, found if type(found) is bytes else whole)

    return app


def upstream() -> App:
    """Answers at once. A stream is spaced, and each of its events says when it was sent."""
    whole, end = answer(), stream_end()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raw = await read(receive)
        if b'"stream":true' not in raw:
            await reply(send, _JSON, whole)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [_STREAM]})
        for _ in range(STREAM_EVENTS):
            event = chunk({"content": f"@{time.perf_counter_ns()}@"})
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.sleep(EVENT_GAP_S)
        await send({"type": "http.response.body", "body": end})

    return app


async def _serve(app: App, port: int) -> None:
    config = ServerConfig.model_validate({"upstreams": [{"name": "none", "base_url": "http://x"}]})
    await uvicorn_server(app, config).serve(sockets=[listen("127.0.0.1", port, "PORT")])


def main() -> None:
    """Serve the app that the command line names until SIGTERM."""
    kind, port, *rest = sys.argv[1:]
    made = {"floor": floor, "upstream": upstream}
    app = redis_floor(rest[0]) if kind == "redis-floor" else made[kind]()
    uvloop.run(_serve(app, int(port)))


if __name__ == "__main__":
    main()
