from __future__ import annotations

import asyncio
import socket
import sys
from importlib import import_module
from typing import Any

import pytest
import zmq
import zmq.asyncio

from trivet.errors import ConfigError
from trivet.middleware.fleets.kv_events import KvEvents, Numbers, Order
from trivet.prefix.routing.kv_events_wire import Batch, Cleared

msgpack: Any = import_module("msgpack")
CLEARED = [1.0, [{"type": "AllBlocksCleared"}]]


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def message(number: int, payload: Any) -> list[bytes]:
    return [b"kv", number.to_bytes(8, "big"), msgpack.packb(payload)]


class TestNumbers:
    def test_they_tell_of_gaps_repeats_and_a_new_beginning(self) -> None:
        numbers = Numbers()
        given = [5, 6, 6, 8, 7, 9, 300, 0, 1]
        found: list[Order] = [numbers.order(number) for number in given]
        assert found == [
            *("next", "next", "seen", "gap", "seen", "next"),
            *("gap", "restarted", "next"),
        ]

    def test_a_publisher_that_begins_anew_soon_is_noticed(self) -> None:
        numbers = Numbers()
        assert [numbers.order(number) for number in (0, 1, 2, 0, 1)] == [
            *("next", "next", "next", "restarted", "next"),
        ]


class TestKvEvents:
    def make(self) -> tuple[KvEvents, list[tuple[Batch, Order]]]:
        taken: list[tuple[Batch, Order]] = []
        made = KvEvents(f"tcp://127.0.0.1:{free()}", lambda *told: taken.append(told))
        return made, taken

    async def test_events_come_over_the_socket(self) -> None:
        port = free()
        taken: list[tuple[Batch, Order]] = []
        context = zmq.asyncio.Context()
        publisher = context.socket(zmq.PUB)
        publisher.bind(f"tcp://127.0.0.1:{port}")
        made = KvEvents(f"tcp://127.0.0.1:{port}", lambda *told: taken.append(told))
        following = asyncio.create_task(made.follow())
        async with asyncio.timeout(10):
            number = 0
            while not taken:
                await publisher.send_multipart(message(number, CLEARED))
                number += 1
                await asyncio.sleep(0.02)
        assert taken[0][0] == Batch((Cleared(),))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        made.close()
        publisher.close(linger=0)
        context.term()

    async def test_a_repeated_batch_counts_once(self) -> None:
        made, taken = self.make()
        for _ in range(3):
            made.take(message(4, CLEARED))
        assert taken == [(Batch((Cleared(),)), "next")]
        made.close()

    @pytest.mark.parametrize(
        "frames",
        [
            [],
            [b"kv", b"short", b"\xc0"],
            [b"kv", bytes(8)],
            [b"kv", bytes(8), b"\xc1"],
            [b"kv", bytes(8), b""],
        ],
    )
    async def test_what_is_no_message_is_counted_and_left(self, frames: list[bytes]) -> None:
        made, taken = self.make()
        made.take(frames)
        made.take(message(1, CLEARED))
        assert made.bad == 1
        assert [told for told, _ in taken] == [Batch((Cleared(),))]
        made.close()

    def test_without_the_extra_it_says_which_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "msgpack", None)
        with pytest.raises(ConfigError, match=r"trivet\[fleet\]"):
            KvEvents("tcp://127.0.0.1:1", lambda *told: None)
