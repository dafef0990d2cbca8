"""The engine behind HTTP: one request at a time, a short queue, an honest 503 beyond it."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import uvicorn

from trivet import canonical
from trivet.errors import ConfigError, Problem, RequestError
from trivet.prefix.engine import wire
from trivet.prefix.engine.model import Generated, LanguageModel, load

ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]
Send = Callable[[ASGIMessage], Awaitable[None]]

_MOST_BODY = 4 * 1024 * 1024
_READERS: dict[str, wire.Reader] = {
    "/chat/completions": wire.read_chat,
    "/messages": wire.read_messages,
}


class Generation:
    """One generation in the model's thread, read piece by piece from the event loop."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.done: Generated | None = None
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str | Generated | BaseException] = asyncio.Queue()

    def run(self, model: LanguageModel, tokens: Any, order: wire.Order) -> None:
        """Generate; called in the model's thread."""

        def put(item: str | Generated | BaseException) -> None:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, item)

        try:
            put(model.generate(tokens, order.sampling, put, self.cancelled))
        except Exception as error:  # whatever failed there is raised to the reader, here
            put(error)

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> str:
        """The next piece of text; at the end `done` is set."""
        item = await self._pieces.get()
        if isinstance(item, str):
            return item
        if isinstance(item, BaseException):
            raise item
        self.done = item
        raise StopAsyncIteration


class EngineApp:
    """A raw ASGI application over one model.

    `waiting` requests may queue behind the one being answered; the next gets 503 with
    `retry-after`. A caller that leaves ends its generation before the next token.
    """

    def __init__(self, model: LanguageModel, waiting: int = 8) -> None:
        self._model = model
        self._most = waiting + 1
        self._inside = 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "engine")

    async def __call__(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        route = scope["path"].removeprefix("/v1")
        try:
            if route in _READERS:
                await self._post(scope, receive, send, route)
            else:
                await _reply(send, 200, orjson.dumps(self._about(route)))
        except RequestError as error:
            extra = [(b"retry-after", b"2")] if error.status == 503 else []
            await _reply(send, error.status, wire.error(route == "/messages", error), extra)

    def _about(self, route: str) -> Any:
        if route == "/healthz":
            return {"status": "ok", "model": self._model.name}
        if route == "/models":
            model = {"id": self._model.name, "object": "model", "created": 0, "owned_by": "trivet"}
            return {"object": "list", "data": [model]}
        raise RequestError(404, f"This engine has no {route}.")

    async def _post(self, scope: ASGIMessage, receive: Receive, send: Send, route: str) -> None:
        if scope["method"] != "POST":
            raise RequestError(405, f"{scope['method']} is not allowed here; POST is.")
        order = self._read(await _body(receive), route)
        if self._inside >= self._most:
            raise RequestError(503, "The engine is busy; try again later.", code="overloaded")
        self._inside += 1
        watch = asyncio.create_task(_gone(receive))
        try:
            async with self._turn:
                if not watch.done():
                    await self._answer(order, route, watch, send)
        finally:
            watch.cancel()
            self._inside -= 1

    def _read(self, raw: bytes, route: str) -> wire.Order:
        body = canonical.parse(raw)
        if not isinstance(body, dict):
            raise RequestError(400, "The body must be a JSON object.")
        if body.get("model") != self._model.name:
            message = f"This engine serves the model {self._model.name!r} only."
            raise RequestError(404, message, field="model", code="model_not_found")
        return _READERS[route](body)

    async def _answer(
        self, order: wire.Order, route: str, watch: asyncio.Task[None], send: Send
    ) -> None:
        loop = asyncio.get_running_loop()
        tokens = await loop.run_in_executor(self._thread, self._model.encode, order.messages)
        writer: wire.Writer
        if route == "/messages":
            writer = wire.MessagesWriter(self._model.name, int(tokens.shape[1]))
        else:
            writer = wire.ChatWriter(self._model.name, order)
        made = Generation()
        watch.add_done_callback(lambda _: made.cancelled.set())
        work = loop.run_in_executor(self._thread, made.run, self._model, tokens, order)
        try:
            await (_stream if order.stream else _whole)(made, writer, send)
        finally:
            made.cancelled.set()
            await work


async def _stream(made: Generation, writer: wire.Writer, send: Send) -> None:
    headers = [*_id(writer), (b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": writer.start(), "more_body": True})
    async for text in made:
        await send({"type": "http.response.body", "body": writer.piece(text), "more_body": True})
    assert made.done is not None
    await send({"type": "http.response.body", "body": writer.end(made.done), "more_body": False})


async def _whole(made: Generation, writer: wire.Writer, send: Send) -> None:
    text = "".join([piece async for piece in made])
    assert made.done is not None
    await _reply(send, 200, writer.whole(text, made.done), _id(writer))


def _id(writer: wire.Writer) -> list[tuple[bytes, bytes]]:
    return [(writer.id_header.encode(), f"req_{secrets.token_hex(12)}".encode())]


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError(400, "The request ended before its body did.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _MOST_BODY:
            raise RequestError(413, f"The body is larger than {_MOST_BODY} bytes.")
        if not message.get("more_body"):
            return b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(
    send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *(extra or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def run(model: str, host: str, port: int, threads: int = 2, waiting: int = 8) -> None:
    """Load `model` (see `model.load`) and serve it until SIGINT or SIGTERM. Blocks.

    Raises `ConfigError` when the port cannot be had or the model cannot be loaded.
    """
    with _bound(host, port) as listener:
        print(f"Loading {model} ...", flush=True)
        start = time.monotonic()
        app = EngineApp(load(model, threads), waiting)
        url = f"http://{host}:{listener.getsockname()[1]}"
        print(f"Loaded in {time.monotonic() - start:.0f} s. Listening on {url}/v1", flush=True)
        config = uvicorn.Config(
            app, lifespan="off", log_level="warning", timeout_graceful_shutdown=2
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            print("The engine stopped.")


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        message = f"cannot listen on {host}:{port} ({error.strerror}); choose another port"
        raise ConfigError(Problem("trivet engine", 0, 0, "--port", message)) from None
    return listener
