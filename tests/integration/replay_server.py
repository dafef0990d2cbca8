"""A loopback HTTP server that answers every request with one rendered answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from trivet.messages import Answer, NotStored, Request
from trivet.middleware.dialects.base import Dialect, StoreRules
from trivet.middleware.dialects.sse import Splitter

RULES = StoreRules(tool_calls=True, refusals=True, max_entry=4 << 20)


@dataclass(frozen=True)
class Replay:
    """An ASGI app: JSON or events, as the request's body asks, in network pieces of `piece`."""

    dialect: Dialect
    answer: Answer
    piece: int

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        request = self.dialect.decode(raw, {})
        if request.stream:
            kind, body = b"text/event-stream", self.dialect.render_stream(self.answer, request)
        else:
            kind, body = b"application/json", self.dialect.render_json(self.answer, request)
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(body), self.piece):
            part = body[start : start + self.piece]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving(dialect: Dialect, answer: Answer, piece: int = 1 << 16) -> Iterator[str]:
    """The server's base URL while it runs."""
    config = uvicorn.Config(
        Replay(dialect, answer, piece),
        port=0,
        log_level="critical",
        lifespan="off",
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def recorded(dialect: Dialect, request: Request, body: bytes) -> Answer:
    """The answer that is stored for a JSON body."""
    found = dialect.record(request, body, RULES)
    assert isinstance(found, Answer), found
    return found


def recorded_stream(dialect: Dialect, request: Request, stream: bytes, piece: int = 1) -> Answer:
    """The answer that is stored for a stream that arrives in pieces."""
    recorder, splitter = dialect.recorder(request), Splitter()
    for start in range(0, len(stream), piece):
        for event in splitter.push(stream[start : start + piece]):
            recorder.feed(event)
    found = recorder.finish(RULES)
    assert isinstance(found, Answer), found
    assert list(found.ids) == recorder.ids
    return found


def unstored(found: Answer | NotStored) -> str:
    """Why an answer was not stored."""
    assert isinstance(found, NotStored), found
    return found.reason


def plain(model: Any) -> Any:
    """What an SDK object holds, without what the SDK adds by parsing."""
    return _without(model.model_dump(mode="json", warnings=False))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        added = ("parsed", "parsed_output", "parsed_arguments")
        return {key: _without(item) for key, item in value.items() if key not in added}
    if isinstance(value, list):
        return [_without(item) for item in value]
    return value
