"""Callers that write or read too slowly are let go, and keep nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trivet.errors import RequestError
from trivet.prefix.engine import http_io, stall_guard
from trivet.prefix.engine.stall_guard import StallGuard


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


def receiving(*pieces: bytes) -> Any:
    """Receives the pieces, and then nothing for ever."""
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive() -> Any:
        return left.pop(0) if left else await never()

    return receive


async def test_a_half_body_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_io, "BODY_S", 0.01)
    with pytest.raises(RequestError) as refused:
        await http_io.Bodies().read(receiving(b"half"))
    assert refused.value.status == 408


async def test_bodies_that_are_coming_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = http_io.Bodies(most=10, together=15)
    first = asyncio.create_task(bodies.read(receiving(b"x" * 10)))
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as refused:
        await bodies.read(receiving(b"x" * 6))
    assert refused.value.status == 503
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    monkeypatch.setattr(http_io, "BODY_S", 0.01)
    with pytest.raises(RequestError) as refused:
        await bodies.read(receiving(b"x" * 10))
    assert refused.value.status == 408


async def test_a_head_and_a_whole_reply_wait_no_longer_than_a_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_io, "STALL_S", 0.01)
    with pytest.raises(http_io.ClientGone):
        await http_io.start(never, 200, [])
    with pytest.raises(http_io.ClientGone):
        await http_io.reply(never, 200, b"{}", [])


async def big(scope: Any, receive: Any, send: Any) -> None:
    await http_io.reply(send, 200, b"x" * (64 << 20), [])


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_a_connection_without_a_head_or_a_reader_is_dropped(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(stall_guard, "HEAD_S", 0.05)
    monkeypatch.setattr(stall_guard, "STALL_S", 0.05)
    import uvicorn

    config = uvicorn.Config(big, port=0, http=StallGuard, lifespan="off", log_level="critical")
    config.load()
    server = uvicorn.Server(config)
    listening = await asyncio.get_running_loop().create_server(
        lambda: StallGuard(config, server.server_state, {}), "127.0.0.1", 0
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await asyncio.sleep(0.02)
        assert len(server.server_state.connections) == 1
        async with asyncio.timeout(10):
            while server.server_state.connections:
                await asyncio.sleep(0.01)
        writer.close()
