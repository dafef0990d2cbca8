"""The ASGI middleware: the app is the upstream, and is not asked what was answered before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import ConfigError
from trivet.library.exchange import App, BrokenOffError, Exchange, Message, Receive, Scope, Send
from trivet.library.middleware import TrivetMiddleware
from trivet.middleware.status import parse

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def answer(text: str) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps(made | {"choices": [choice], "usage": usage}).encode()


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    made = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps(made | {"choices": [choice]}).encode() + b"\n\n"


Reply = Callable[[bytes, Send], Awaitable[None]]


class LlmApp:
    """An app that serves what `reply` says, and remembers what it was asked."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self._reply = reply or self._count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            self.bodies.append((await receive())["body"])
            await self._reply(self.bodies[-1], send)

    async def _count(self, body: bytes, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": answer(f"answer {len(self.scopes)}")})


async def start(send: Send, kind: bytes = b"application/json", status: int = 200) -> None:
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})


def scope_of(path: str = CHAT, **fields: Any) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"app.example"), (b"content-type", b"application/json")],
        "client": ("10.0.0.1", 5),
        "server": ("app.example", 443),
        "state": {"from": "lifespan"},
        **fields,
    }


def body_of(text: str = "hello", **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "temperature": 0, "messages": messages, **fields}).encode()


class Told:
    """What a caller of the app got."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = dict(headers)
        self.body = body

    @property
    def exact(self) -> dict[str, str | int | bool]:
        return parse(self.headers[b"cache-status"].decode())["trivet-exact"]


async def ask(app: App, scope: Scope | None = None, body: bytes | None = None) -> Told:
    exchange = Exchange(app, scope or scope_of(), body_of() if body is None else body)
    status, headers = await exchange.head(5)
    told = Told(status, headers, await rest(exchange))
    await exchange.task
    return told


async def rest(exchange: Exchange) -> bytes:
    parts = []
    while part := await exchange.some(5):
        parts.append(part)
    return b"".join(parts)


def with_header(name: bytes, value: bytes) -> Scope:
    scope = scope_of()
    scope["headers"] = [item for item in scope["headers"] if item[0] != name] + [(name, value)]
    return scope


async def test_what_came_before_does_not_reach_the_app() -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory")
    first, second = [await ask(wrapped) for _ in range(2)]
    assert (first.exact["fwd"], second.exact["hit"]) == ("miss", True)
    assert json.loads(first.body)["choices"] == json.loads(second.body)["choices"]
    assert len(app.scopes) == 1


async def test_the_app_sees_the_request_as_it_came() -> None:
    app = LlmApp()
    scope = scope_of(query_string=b"a=1")
    scope["headers"] += [(b"authorization", b"Bearer k"), (b"x-own", b"1")]
    body = body_of(stream=True)
    await ask(TrivetMiddleware(app, store="memory"), scope, body)
    seen = app.scopes[0]
    same = ("type", "method", "scheme", "path", "raw_path", "query_string", "client", "state")
    assert {name: seen[name] for name in same} == {name: scope[name] for name in same}
    headers = dict(seen["headers"])
    assert headers[b"host"] == b"app.example"
    assert (headers[b"authorization"], headers[b"x-own"]) == (b"Bearer k", b"1")
    assert headers[b"content-length"] == str(len(body)).encode()
    assert not [name for name in headers if b"trivet" in name]
    assert app.bodies == [body]


@pytest.mark.parametrize(
    "scope",
    [
        with_header(b"authorization", b"Bearer other"),
        with_header(b"cookie", b"session=other"),
        with_header(b"host", b"other.example"),
        with_header(b"x-own", b"other"),
        scope_of(query_string=b"a=other"),
        scope_of("/chat/completions"),
    ],
    ids=["key", "cookie", "host", "header", "query", "path"],
)
async def test_whatever_the_app_may_go_by_tells_requests_apart(scope: Scope) -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory")
    await ask(wrapped)
    assert (await ask(wrapped, scope)).exact["fwd"] == "miss"
    assert len(app.scopes) == 2


@pytest.mark.parametrize(
    "scope",
    [
        scope_of("/ping"),
        scope_of(method="GET"),
        scope_of("/v1/threads/1/messages"),
        {**scope_of(), "type": "websocket"},
    ],
    ids=["path", "method", "another-api", "websocket"],
)
async def test_what_is_no_llm_request_goes_straight_to_the_app(scope: Scope) -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory")
    if scope["type"] == "http":
        await ask(wrapped, scope)
    else:
        await wrapped(scope, _never, _nothing)
    assert app.scopes == [scope]
    assert app.scopes[0] is scope


async def _never() -> Message:
    return {"type": "websocket.disconnect"}


async def _nothing(message: Message) -> None:
    return None


async def test_a_mounted_app_is_known_by_its_path_below_the_mount() -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory")
    scope = scope_of("/sub" + CHAT, root_path="/sub")
    assert (await ask(wrapped, scope)).exact["stored"] is True
    assert (app.scopes[0]["path"], app.scopes[0]["root_path"]) == ("/sub" + CHAT, "/sub")


async def test_apis_under_other_paths_are_apart_and_reach_the_app_there() -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory", under=("", "/api", "/api/llm/"))
    paths = [CHAT, "/api" + CHAT, "/api/llm" + CHAT]
    for path in paths:
        assert (await ask(wrapped, scope_of(path))).exact["stored"] is True
        assert (await ask(wrapped, scope_of(path))).exact["hit"] is True
    assert [scope["path"] for scope in app.scopes] == paths


async def test_the_app_says_whose_a_request_is() -> None:
    app = LlmApp()
    wrapped = TrivetMiddleware(app, store="memory", tenant=lambda scope: scope.get("user"))
    assert (await ask(wrapped, scope_of(user="a"))).exact["stored"] is True
    assert (await ask(wrapped, scope_of(user="a"))).exact["hit"] is True
    assert (await ask(wrapped, scope_of(user="b"))).exact["fwd"] == "miss"
    claimed = scope_of(user="b")
    claimed["headers"].append((b"trivet-tenant", b"a"))
    assert (await ask(wrapped, claimed)).exact["hit"] is True
    assert b"cache-status" not in (await ask(wrapped, scope_of(user=None))).headers
    assert len(app.scopes) == 3


async def test_a_stream_passes_as_it_is_made_and_is_replayed() -> None:
    go = asyncio.Event()

    async def stream(body: bytes, send: Send) -> None:
        await start(send, b"text/event-stream")
        for part in (event({"role": "assistant", "content": "a"}), event({"content": "b"})):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await go.wait()
        end = event({}, "stop") + b"data: [DONE]\n\n"
        await send({"type": "http.response.body", "body": end})

    app = LlmApp(stream)
    wrapped = TrivetMiddleware(app, store="memory")
    exchange = Exchange(wrapped, scope_of(), body_of(stream=True))
    await exchange.head(5)
    got = await exchange.some(5)
    assert got.startswith(event({"role": "assistant", "content": "a"}))
    go.set()
    got += await rest(exchange)
    await exchange.task
    assert got.endswith(b"data: [DONE]\n\n")
    replayed = await ask(wrapped, scope_of(), body_of(stream=True))
    assert replayed.exact["hit"] is True
    assert b'"ab"' in replayed.body
    assert len(app.scopes) == 1


async def test_a_stream_that_the_app_breaks_off_is_broken_off_and_not_stored() -> None:
    async def half(body: bytes, send: Send) -> None:
        await start(send, b"text/event-stream")
        part = event({"role": "assistant", "content": "a"})
        await send({"type": "http.response.body", "body": part, "more_body": True})
        raise ValueError("boom")

    app = LlmApp(half)
    wrapped = TrivetMiddleware(app, store="memory")
    for _ in range(2):
        exchange = Exchange(wrapped, scope_of(), body_of(stream=True))
        await exchange.head(5)
        with pytest.raises(BrokenOffError):
            await rest(exchange)
    assert len(app.scopes) == 2


async def test_what_the_app_raises_is_raised() -> None:
    async def fails(body: bytes, send: Send) -> None:
        raise ValueError("boom")

    wrapped = TrivetMiddleware(LlmApp(fails), store="memory")
    exchange = Exchange(wrapped, scope_of(), body_of())
    await asyncio.wait([exchange.task])
    assert isinstance(exchange.task.exception(), ValueError)


async def test_an_error_of_the_app_is_its_own_and_not_stored() -> None:
    async def refuses(body: bytes, send: Send) -> None:
        await start(send, status=502)
        await send({"type": "http.response.body", "body": b'{"error": "mine"}'})

    app = LlmApp(refuses)
    wrapped = TrivetMiddleware(app, store="memory")
    for _ in range(2):
        told = await ask(wrapped)
        assert (told.status, told.body) == (502, b'{"error": "mine"}')
    assert len(app.scopes) == 2


async def test_a_caller_who_leaves_is_told_to_the_app() -> None:
    left = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    exchange = Exchange(TrivetMiddleware(waits, store="memory"), scope_of(), body_of())
    for _ in range(200):
        await asyncio.sleep(0)
    exchange.leave()
    async with asyncio.timeout(5):
        await left.wait()
        await exchange.task


async def test_the_end_of_the_apps_life_closes_the_tiers() -> None:
    async def lives(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await receive()
            await start(send)
            await send({"type": "http.response.body", "body": answer("x")})

    wrapped = TrivetMiddleware(lives, store="sqlite:")
    assert (await ask(wrapped)).exact["stored"] is True
    await wrapped({"type": "lifespan"}, _never, _nothing)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await ask(wrapped)).exact["hit"] is True
    await wrapped({"type": "lifespan"}, _never, _nothing)


async def test_wrong_settings_are_refused_when_the_app_is_made() -> None:
    with pytest.raises(ConfigError):
        TrivetMiddleware(LlmApp(), store="nosuch")
