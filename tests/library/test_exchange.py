"""One request through an ASGI app: what is told, when, and what happens when somebody leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from trivet.library.exchange import BrokenOffError, Exchange, Receive, Scope, Send

START = {"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_an_answer_is_taken_as_it_comes() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(b"one", more=True))
        await go.wait()
        await send(body(b"two"))

    exchange = Exchange(app, {}, b"")
    assert await exchange.head() == (201, [(b"a", b"b")])
    assert await exchange.some() == b"one"
    assert not exchange.ended
    go.set()
    assert await exchange.some() == b"two"
    assert await exchange.some() == b""
    assert exchange.ended


async def test_a_body_in_parts_reaches_the_app_in_parts() -> None:
    got: list[dict[str, Any]] = []

    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while not got or got[-1]["more_body"]:
            got.append(dict(await receive()))
        await send(START)
        await send(body(b""))

    exchange = Exchange(app, {}, parts())
    await exchange.head()
    assert [(one["body"], one["more_body"]) for one in got] == [
        (b"a", True),
        (b"b", True),
        (b"", False),
    ]


async def test_who_leaves_is_told_to_the_app_as_a_disconnect() -> None:
    told: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        told.append((await receive())["type"])
        await send(body(b"into the void"))

    exchange = Exchange(app, {}, b"")
    await exchange.head()
    exchange.leave()
    exchange.leave()
    await exchange.task
    assert told == ["http.disconnect"]
    assert exchange.taken() == b""


async def test_an_app_that_is_not_read_waits_and_goes_on_when_its_caller_leaves() -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send(START)
        for _ in range(100):
            await send(body(b"x" * 65536, more=True))
            sent += 1

    exchange = Exchange(app, {}, b"")
    await exchange.head()
    for _ in range(50):
        await asyncio.sleep(0)
    assert sent == 4
    exchange.leave()
    await exchange.task
    assert sent == 100


async def test_an_app_that_ends_early_breaks_off() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(b"half", more=True))

    exchange = Exchange(app, {}, b"")
    await exchange.head()
    assert await exchange.some() == b"half"
    with pytest.raises(BrokenOffError) as caught:
        await exchange.some()
    assert caught.value.__cause__ is None


async def test_what_the_app_raises_before_its_answer_is_the_cause() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("boom")

    with pytest.raises(BrokenOffError) as caught:
        await Exchange(app, {}, b"").head()
    assert isinstance(caught.value.__cause__, ValueError)


async def test_what_the_app_raises_after_its_answer_began_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(b"all"))
        raise ValueError("boom")

    exchange = Exchange(app, {}, b"")
    with caplog.at_level(logging.ERROR, "trivet"):
        await asyncio.wait([exchange.task])
        await asyncio.sleep(0)
    assert await exchange.some() == b"all"
    assert [record.message for record in caplog.records] == [
        "the app failed after its answer had begun"
    ]


async def test_silence_is_a_timeout() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await receive()

    exchange = Exchange(app, {}, b"")
    with pytest.raises(TimeoutError):
        await exchange.head(0.01)
    exchange.leave()
    await exchange.task
