"""The mock upstream as a raw ASGI application."""

from __future__ import annotations

from typing import Any

import orjson

from trivet.middleware.mock_upstream.calls import Calls
from trivet.middleware.mock_upstream.delivery import (
    Caller,
    ClientGone,
    Message,
    Receive,
    Send,
    deliver,
)
from trivet.middleware.mock_upstream.routes import NOTICE, Call, Reply, Routes

__all__ = ["NOTICE", "MockUpstream"]

Scope = Message


class MockUpstream:
    """Answers like the official APIs, and counts what it was asked in `calls`.

    Paths work with and without `/v1`. Beside the APIs: `GET /_mock` (the commands), `GET
    /_mock/calls`, `POST /_mock/reset`, and `/_mock/echo`, which streams a request's body back.
    """

    def __init__(self, delay_ms: float = 0, routes: Routes | None = None) -> None:
        self.calls = Calls()
        self._delay = delay_ms
        self._routes = Routes() if routes is None else routes
        self.notice = self._routes.notice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        route = path.removeprefix("/v1") if f"{path}/".startswith("/v1/") else path
        if route == "/_mock/echo":
            await _echo(scope, receive, send)
            return
        caller = Caller(receive, send)
        if route.startswith("/_mock") or route in ("", "/", "/healthz"):
            await caller.read()
            await deliver(caller, self._control(scope["method"], route), 0)
            return
        gone = False
        self.calls.enter()
        try:
            await self._answer(scope, route, caller)
        except ClientGone:
            gone = True
        finally:
            caller.close()
            self.calls.leave(gone)

    async def _answer(self, scope: Scope, route: str, caller: Caller) -> None:
        raw = await caller.read()
        self.calls.add(scope["method"], f"/v1{route}", scope["headers"], raw)
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        reply = self._routes.reply(Call(scope["method"], route, headers, raw))
        await deliver(caller, reply, self._delay)

    def _control(self, method: str, route: str) -> Reply:
        made: dict[str, Any]
        if route == "/_mock/calls" and method == "GET":
            made = self.calls.report()
        elif route == "/_mock/reset" and method == "POST":
            self.calls.reset()
            self._routes.reset()
            made = {"reset": True}
        elif (told := self._routes.control(method, route)) is not None:
            made = told
        elif route in ("/_mock", "", "/", "/healthz"):
            made = {"notice": self.notice, "model": False, "commands": self._routes.commands()}
        else:
            made = {"error": {"message": f"There is no {method} {route}."}}
        body = orjson.dumps(made)
        status = 404 if "error" in made else 200
        return Reply(status, body, headers=[("content-type", "application/json")])


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Send each part of the request's body back as it comes."""
    kept = [pair for pair in scope["headers"] if pair[0] == b"content-type"]
    headers = [*kept, (b"x-trivet-mock", b"not-a-model"), (b"x-mock-path", scope["raw_path"])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})
