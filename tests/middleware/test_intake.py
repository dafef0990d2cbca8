"""Bodies are bounded in size and in silence, and large ones are decoded elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from trivet.errors import RequestError
from trivet.middleware.arrival.headers import RequestHeaders
from trivet.middleware.arrival.intake import LARGE, MANY, SLOWEST, ClientGone, Intake, Receive
from trivet.middleware.dialects.base import Headers


def coming(*pieces: bytes, more: bool = False) -> Receive:
    """The caller sends `pieces`; with `more` it then falls silent, else the body is whole."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        if left:
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": more or bool(left)}
        await asyncio.Event().wait()
        raise AssertionError

    return receive


def trickle(*pieces: bytes, end: bool = False) -> Receive:
    """A piece every 10 ms: `pieces` once, or the last of them for ever."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        body = left.pop(0) if end or len(left) > 1 else left[0]
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    return receive


async def leaving() -> dict[str, Any]:
    return {"type": "http.disconnect"}


@pytest.fixture
def intake() -> Iterator[Intake]:
    made = Intake(max_body=10, silence=0.05)
    yield made
    made.close()


class TestRead:
    @pytest.mark.parametrize("pieces", [(b"",), (b"abc",), (b"abc", b"", b"def"), (b"x" * 10,)])
    async def test_the_pieces_are_put_together(
        self, intake: Intake, pieces: tuple[bytes, ...]
    ) -> None:
        assert await intake.read(coming(*pieces)) == b"".join(pieces)

    @pytest.mark.parametrize("pieces", [(b"x" * 11,), (b"x" * 6, b"x" * 5)])
    async def test_too_much_is_a_413(self, intake: Intake, pieces: tuple[bytes, ...]) -> None:
        with pytest.raises(RequestError) as caught:
            await intake.read(coming(*pieces))
        assert (caught.value.status, caught.value.code) == (413, "request_too_large")
        assert "10 bytes" in caught.value.message

    async def test_too_much_is_refused_before_the_rest_comes(self, intake: Intake) -> None:
        with pytest.raises(RequestError) as caught:
            await intake.read(coming(b"x" * 6, b"x" * 6, more=True))
        assert caught.value.status == 413

    async def test_silence_is_a_408(self, intake: Intake) -> None:
        with pytest.raises(RequestError) as caught:
            await intake.read(coming(b"abc", more=True))
        assert (caught.value.status, caught.value.code) == (408, "request_timeout")

    async def test_a_trickle_is_a_408_though_it_is_never_silent(self, intake: Intake) -> None:
        with pytest.raises(RequestError) as caught:
            await intake.read(trickle(b"x"))
        assert (caught.value.status, caught.value.code) == (408, "request_timeout")
        assert "bytes a second" in caught.value.message

    async def test_a_slow_body_that_brings_enough_is_read_to_its_end(self) -> None:
        made = Intake(max_body=1 << 20, silence=0.3)
        pieces = [b"x" * SLOWEST] * 40  # Each is a second's worth, and takes a fraction of one.
        assert len(await made.read(trickle(*pieces, end=True))) == 40 * SLOWEST

    async def test_a_caller_who_leaves_is_no_error_of_his(self, intake: Intake) -> None:
        with pytest.raises(ClientGone):
            await intake.read(leaving)


class TestCheckLength:
    @pytest.mark.parametrize("declared", [None, b"0", b"10", b"ten", b""])
    def test_what_may_fit_passes(self, intake: Intake, declared: bytes | None) -> None:
        intake.check_length(declared)

    def test_what_says_it_is_too_large_is_a_413(self, intake: Intake) -> None:
        with pytest.raises(RequestError) as caught:
            intake.check_length(b"11")
        assert caught.value.status == 413


class TestStream:
    async def test_pieces_come_as_they_arrive_beyond_any_size(self, intake: Intake) -> None:
        ends: list[bool] = []
        stream = intake.stream(coming(b"x" * 9, b"", b"y" * 9), lambda: ends.append(True))
        assert await anext(stream) == b"x" * 9
        assert ends == []
        assert [piece async for piece in stream] == [b"y" * 9]
        assert ends == [True]

    async def test_a_trickle_is_a_408_and_not_an_end(self, intake: Intake) -> None:
        ends: list[bool] = []
        with pytest.raises(RequestError) as caught:
            async for _ in intake.stream(trickle(b"x"), lambda: ends.append(True)):
                pass
        assert (caught.value.status, ends) == (408, [])

    async def test_an_upstream_that_takes_it_slowly_costs_the_caller_nothing(
        self, intake: Intake
    ) -> None:
        pieces = [b"x"] * 5
        got = []
        async for piece in intake.stream(coming(*pieces), lambda: None):
            await asyncio.sleep(0.03)
            got.append(piece)
        assert got == pieces

    async def test_silence_is_a_408_and_not_an_end(self, intake: Intake) -> None:
        ends: list[bool] = []
        with pytest.raises(RequestError) as caught:
            async for _ in intake.stream(coming(b"x", more=True), lambda: ends.append(True)):
                pass
        assert caught.value.status == 408
        assert ends == []


def where(raw: bytes, _headers: Headers) -> int:
    return os.getpid() if raw else 0


def failing(raw: bytes, _headers: Headers) -> int:
    raise RequestError(400, "not good", field="model", code="bad")


def dying(raw: bytes, _headers: Headers) -> int:
    if raw[:4] == b"once" and os.getpid() != int(raw[4:20]):
        os._exit(1)
    return os.getpid()


HEADERS = RequestHeaders([(b"x", b"y")])


class TestDecode:
    async def test_a_small_body_is_decoded_here(self, intake: Intake) -> None:
        assert await intake.decode(where, b"x", HEADERS, "acme") == os.getpid()

    async def test_a_large_body_is_decoded_in_another_process(self, intake: Intake) -> None:
        first = await intake.decode(where, b"x" * LARGE, HEADERS, "acme")
        assert first != os.getpid()
        assert await intake.decode(where, b"x" * LARGE, HEADERS, "acme") == first
        assert await intake.decode(where, b"," * MANY, HEADERS, "acme") == first

    async def test_the_callers_mistake_comes_back_whole_and_the_helper_lives(
        self, intake: Intake
    ) -> None:
        helper = await intake.decode(where, b"x" * LARGE, HEADERS, "acme")
        with pytest.raises(RequestError) as caught:
            await intake.decode(failing, b"x" * LARGE, HEADERS, "acme")
        error = caught.value
        assert (error.status, error.message, error.field, error.code) == (
            400,
            "not good",
            "model",
            "bad",
        )
        assert await intake.decode(where, b"x" * LARGE, HEADERS, "acme") == helper

    async def test_a_helper_that_dies_costs_time_and_not_the_request(self, intake: Intake) -> None:
        raw = b"once%016d" % os.getpid() + b"x" * LARGE
        assert await intake.decode(dying, raw, HEADERS, "acme") == os.getpid()

    async def test_tenants_take_turns_however_many_bodies_one_of_them_sends(
        self, intake: Intake
    ) -> None:
        ended: list[str] = []

        async def send(tenant: str) -> None:
            await intake.decode(where, b"x" * LARGE, HEADERS, tenant)
            ended.append(tenant)

        await asyncio.gather(*map(send, "aaaabbc"))
        assert ended == list("abcabaa")

    async def test_a_body_that_is_refused_does_not_hold_up_its_tenants_next(
        self, intake: Intake
    ) -> None:
        found = await asyncio.gather(
            intake.decode(failing, b"x" * LARGE, HEADERS, "acme"),
            intake.decode(where, b"x" * LARGE, HEADERS, "acme"),
            return_exceptions=True,
        )
        assert isinstance(found[0], RequestError)
        assert isinstance(found[1], int)

    async def test_a_caller_who_gives_up_waiting_leaves_its_tenants_place_to_the_next(
        self, intake: Intake
    ) -> None:
        first, second, third = (
            asyncio.create_task(intake.decode(where, b"x" * LARGE, HEADERS, "acme"))
            for _ in range(3)
        )
        await asyncio.sleep(0)
        second.cancel()
        assert await first == await third
        assert second.cancelled()

    async def test_a_tenant_at_rest_costs_no_memory(self, intake: Intake) -> None:
        await intake.decode(where, b"x" * LARGE, HEADERS, "acme")
        assert len(intake._turns) == 0

    async def test_nothing_is_left_to_close_where_nothing_was_large(self) -> None:
        made = Intake(10, 1)
        made.close()
        made.close()
