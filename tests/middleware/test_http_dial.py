"""Addresses raced against each other, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from raw_upstream import both_loops, serving

from trivet.middleware.http_client import dial
from trivet.middleware.http_client.dial import Address, first_connected, resolve


@contextmanager
def black_hole() -> Iterator[Address]:
    """An address whose queue is full: a connection is neither made nor refused."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield socket.AF_INET, full.getsockname()
        for filler in fillers:
            filler.close()


@contextmanager
def refusing() -> Iterator[Address]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield socket.AF_INET, taken.getsockname()


async def stay(*_: Any) -> None:
    await asyncio.sleep(60)


@both_loops
async def test_an_address_that_refuses_is_followed_by_the_next() -> None:
    async with serving(stay) as upstream:
        good: Address = (socket.AF_INET, (upstream.host, upstream.port))
        with refusing() as bad, black_hole() as hole:
            for addresses in ([bad, good], [good, bad], [bad, bad, good], [bad, hole, good]):
                made = await first_connected(addresses)
                assert made.getpeername() == good[1]
                made.close()


@both_loops
async def test_a_slow_address_is_overtaken_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "ATTEMPT_DELAY_S", 0.05)
    async with serving(stay) as upstream:
        good: Address = (socket.AF_INET, (upstream.host, upstream.port))
        with black_hole() as hole:
            made = await first_connected([hole, good])
            assert made.getpeername() == good[1]
            made.close()


@both_loops
async def test_the_first_addresss_error_is_told_when_all_fail() -> None:
    with refusing() as bad:
        with pytest.raises(ConnectionRefusedError):
            await first_connected([bad, bad])
        with pytest.raises(ConnectionRefusedError):
            await first_connected([bad])


@both_loops
async def test_a_race_may_be_cancelled_at_any_step() -> None:
    async with serving(stay) as upstream:
        good: Address = (socket.AF_INET, (upstream.host, upstream.port))
        with refusing() as bad, black_hole() as hole:
            for steps in range(12):
                for addresses in ([hole, hole], [bad, good], [good, good]):
                    task = asyncio.create_task(first_connected(addresses))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        task.result().close()


@both_loops
async def test_families_alternate_and_literals_are_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    four = [(socket.AF_INET, 1, 6, "", (f"192.0.2.{at}", 80)) for at in (1, 2, 3)]
    six = [(socket.AF_INET6, 1, 6, "", ("2001:db8::1", 80, 0, 0))]

    class Loop:
        async def getaddrinfo(self, *_: Any, **__: Any) -> list[Any]:
            return six + four

    monkeypatch.setattr("asyncio.get_running_loop", Loop)
    found = await resolve("api.test", 80)
    monkeypatch.undo()
    assert [address[0] for _, address in found] == [
        "2001:db8::1",
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.3",
    ]
    assert await resolve("192.0.2.9", 1) == [(socket.AF_INET, ("192.0.2.9", 1))]
    assert await resolve("::1", 1) == [(socket.AF_INET6, ("::1", 1))]
    assert loop.is_running()
