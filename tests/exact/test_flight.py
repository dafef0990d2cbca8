"""The broadcast buffer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import UpstreamError
from trivet.exact.flight import (
    Failed,
    Flight,
    FlightLimits,
    Head,
    Subscription,
    Unstored,
)
from trivet.messages import ExactKey

KEY = ExactKey(b"k" * 32)
HEAD = Head(200, ((b"content-type", b"text/event-stream"),), True)
DONE = Unstored("test")
BROKEN = Failed(UpstreamError("broken", "The upstream broke off.", 504))


def make(
    keep_bytes: int = 1 << 20, window: int = 1 << 20, lag_s: float = 0.05, stall_s: float = 5.0
) -> Flight:
    return Flight(KEY, "t", FlightLimits(keep_bytes, window, lag_s, stall_s))


async def read_all(subscription: Subscription) -> list[bytes]:
    return [chunk async for chunk in subscription]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_every_subscriber_gets_every_chunk_in_order_from_the_first() -> None:
    flight = make()
    early = flight.subscribe()
    reading = asyncio.create_task(read_all(early))
    flight.start(HEAD)
    await flight.push(b"a")
    await settle()
    late = flight.subscribe()
    await flight.push(b"b")
    flight.finish(DONE)
    assert await reading == [b"a", b"b"]
    assert await read_all(late) == [b"a", b"b"]
    assert await late.head() == HEAD
    assert await late.result() == DONE


async def test_chunks_arrive_while_the_flight_is_in_the_air() -> None:
    flight = make()
    subscription = flight.subscribe()
    flight.start(HEAD)
    for chunk in (b"a", b"b", b"c"):
        waiting = asyncio.create_task(subscription.__anext__())
        await settle()
        assert not waiting.done()
        await flight.push(chunk)
        assert await waiting == chunk


async def test_head_waits_until_there_is_one() -> None:
    flight = make()
    heads = [asyncio.create_task(flight.subscribe().head()) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in heads)
    flight.start(HEAD)
    assert await asyncio.gather(*heads) == [HEAD] * 3


async def test_a_flight_that_fails_before_a_head_gives_failed_as_its_head() -> None:
    flight = make()
    subscription = flight.subscribe()
    flight.finish(BROKEN)
    assert await subscription.head() == BROKEN
    assert await subscription.result() == BROKEN


async def test_a_failure_after_the_head_is_raised_behind_the_last_chunk() -> None:
    flight = make()
    subscription = flight.subscribe()
    flight.start(HEAD)
    await flight.push(b"a")
    flight.finish(BROKEN)
    assert await subscription.__anext__() == b"a"
    with pytest.raises(UpstreamError) as caught:
        await subscription.__anext__()
    assert (caught.value.reason, caught.value.status) == ("broken", 504)


async def test_each_reader_gets_an_error_of_its_own() -> None:
    flight = make()
    readers = [flight.subscribe() for _ in range(2)]
    flight.start(HEAD)
    flight.finish(BROKEN)
    raised = await asyncio.gather(*map(read_all, readers), return_exceptions=True)
    assert raised[0] is not raised[1]
    assert BROKEN.error.__traceback__ is None


async def test_only_the_first_finish_counts() -> None:
    flight = make()
    flight.start(HEAD)
    flight.finish(DONE)
    flight.finish(BROKEN)
    assert await flight.subscribe().result() == DONE


async def test_an_answer_without_a_head_cannot_be_complete() -> None:
    flight = make()
    with pytest.raises(RuntimeError):
        flight.finish(DONE)
    with pytest.raises(RuntimeError):
        await flight.push(b"a")
    assert not flight.done


async def test_a_second_head_is_refused() -> None:
    flight = make()
    flight.start(HEAD)
    with pytest.raises(RuntimeError):
        flight.start(HEAD)


async def test_a_finished_flight_takes_no_bytes() -> None:
    flight = make()
    flight.start(HEAD)
    flight.finish(DONE)
    with pytest.raises(UpstreamError) as caught:
        await flight.push(b"late")
    assert caught.value.reason == "abandoned"


async def test_an_empty_chunk_is_nothing() -> None:
    flight = make()
    subscription = flight.subscribe()
    flight.start(HEAD)
    await flight.push(b"")
    await flight.push(b"a")
    flight.finish(DONE)
    assert await subscription.read(10) == b"a"
    assert await subscription.read(10) == b""


async def test_read_joins_what_is_there_up_to_its_limit() -> None:
    flight = make()
    subscription = flight.subscribe()
    flight.start(HEAD)
    for chunk in (b"ab", b"cd", b"ef"):
        await flight.push(chunk)
    flight.finish(DONE)
    assert await subscription.read(3) == b"abcd"
    assert await subscription.read(3) == b"ef"
    assert await subscription.read(3) == b""


async def test_the_producer_waits_when_all_are_behind_by_the_window() -> None:
    flight = make(window=4)
    subscription = flight.subscribe()
    flight.start(HEAD)
    await flight.push(b"1234")
    pushing = asyncio.create_task(flight.push(b"5"))
    await settle()
    assert not pushing.done()
    assert await subscription.__anext__() == b"1234"
    await pushing


async def test_a_sole_slow_reader_is_waited_for_as_long_as_it_moves() -> None:
    flight = make(window=1, lag_s=0.0, stall_s=5.0)
    subscription = flight.subscribe()
    flight.start(HEAD)

    async def produce() -> None:
        for number in range(20):
            await flight.push(b"%02d" % number)
        flight.finish(DONE)

    producing = asyncio.create_task(produce())
    got = []
    async for chunk in subscription:
        got.append(chunk)
        await asyncio.sleep(0.005)
    await producing
    assert got == [b"%02d" % number for number in range(20)]


async def test_a_slow_reader_is_detached_for_the_sake_of_the_others() -> None:
    flight = make(window=4, lag_s=0.03)
    slow, quick = flight.subscribe(), flight.subscribe()
    reading = asyncio.create_task(read_all(quick))
    flight.start(HEAD)
    for _ in range(10):
        await flight.push(b"123")
    flight.finish(DONE)
    assert b"".join(await reading) == b"123" * 10
    with pytest.raises(UpstreamError) as caught:
        await slow.__anext__()
    assert caught.value.reason == "lagging"
    assert await slow.result() == DONE


async def test_readers_that_take_nothing_at_all_are_detached_in_the_end() -> None:
    flight = make(window=4, stall_s=0.02)
    stuck = flight.subscribe()
    flight.start(HEAD)
    await flight.push(b"12345")
    assert flight.deserted
    with pytest.raises(UpstreamError) as caught:
        await stuck.__anext__()
    assert caught.value.reason == "lagging"


async def test_a_reader_that_leaves_lets_the_producer_go_on() -> None:
    flight = make(window=1)
    slow, other = flight.subscribe(), flight.subscribe()
    flight.start(HEAD)
    pushing = asyncio.create_task(flight.push(b"123"))
    await settle()
    slow.leave()
    await settle()
    assert not pushing.done()
    other.leave()
    await pushing


async def test_an_overflown_flight_is_no_longer_joinable_and_drops_what_all_have_read() -> None:
    changes: list[bool] = []
    limits = FlightLimits(keep_bytes=4, window=100)
    flight = Flight(KEY, "t", limits, watch=lambda flight: changes.append(flight.joinable))
    subscription = flight.subscribe()
    flight.start(HEAD)
    await flight.push(b"1234")
    assert flight.joinable
    assert await subscription.__anext__() == b"1234"
    await flight.push(b"5")
    assert changes == [False]
    assert not flight.whole
    assert flight._chunks == [b"5"]
    with pytest.raises(RuntimeError):
        flight.subscribe()
    await flight.push(b"6")
    flight.finish(DONE)
    assert await read_all(subscription) == [b"5", b"6"]


async def test_memory_is_bounded_by_what_the_slowest_lags() -> None:
    flight = make(keep_bytes=10, window=100)
    subscription = flight.subscribe()
    flight.start(HEAD)
    for _ in range(1000):
        await flight.push(b"x" * 10)
        assert await subscription.__anext__() == b"x" * 10
        assert len(flight._chunks) <= 2


async def test_leaving_is_idempotent_and_ends_the_iteration() -> None:
    flight = make()
    subscription, other = flight.subscribe(), flight.subscribe()
    waiting = asyncio.create_task(subscription.__anext__())
    await settle()
    subscription.leave()
    subscription.leave()
    with pytest.raises(UpstreamError) as caught:
        await waiting
    assert caught.value.reason == "left"
    assert not flight.deserted
    other.leave()
    assert flight.deserted


async def test_a_cancelled_reader_disturbs_nobody() -> None:
    flight = make()
    first, second = flight.subscribe(), flight.subscribe()
    waits = [
        asyncio.create_task(wait)
        for wait in (first.head(), first.result(), second.head(), second.result())
    ]
    await settle()
    waits[0].cancel()
    waits[1].cancel()
    await settle()
    flight.start(HEAD)
    flight.finish(DONE)
    assert await waits[2] == HEAD
    assert await waits[3] == DONE
    assert await first.head() == HEAD


async def test_a_thousand_subscribers_get_the_same_bytes() -> None:
    flight = make()
    readers = [asyncio.create_task(read_all(flight.subscribe())) for _ in range(1000)]
    await settle()
    flight.start(HEAD)
    for number in range(20):
        await flight.push(b"%d," % number)
        await asyncio.sleep(0)
    flight.finish(DONE)
    expected = b"".join(b"%d," % number for number in range(20))
    assert {b"".join(chunks) for chunks in await asyncio.gather(*readers)} == {expected}


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=8), max_size=30),
    joins=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    naps=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    keep=st.integers(0, 100),
    window=st.integers(1, 100),
)
def test_whoever_can_join_reads_the_whole_answer(
    chunks: list[bytes], joins: list[int], naps: list[int], keep: int, window: int
) -> None:
    async def reader(flight: Flight, nap: int) -> bytes:
        subscription, got = flight.subscribe(patience_s=60.0), []
        async for chunk in subscription:
            got.append(chunk)
            for _ in range(nap):
                await asyncio.sleep(0)
        return b"".join(got)

    async def scenario() -> None:
        flight = make(keep_bytes=keep, window=window)
        readers: list[asyncio.Task[bytes]] = []
        flight.start(HEAD)
        for number, chunk in enumerate([*chunks, b""]):
            for place, join in enumerate(joins):
                if join == number and flight.joinable:
                    nap = naps[place % len(naps)]
                    readers.append(asyncio.create_task(reader(flight, nap)))
                    await asyncio.sleep(0)
            await flight.push(chunk)
        flight.finish(DONE)
        assert set(await asyncio.gather(*readers)) <= {b"".join(chunks)}

    asyncio.run(scenario())
