"""Reads that travel together, and work that crosses to a thread together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from trivet.errors import StoreError
from trivet.exact.lane import Lane
from trivet.exact.merge import MergedReads


class Reads:
    """A read that a test holds back or breaks."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.trouble: Exception | None = None

    async def __call__(self, names: Sequence[bytes]) -> Sequence[bytes | None]:
        self.calls.append(list(names))
        await self.gate.wait()
        if self.trouble:
            raise self.trouble
        return [name.upper() for name in names]


async def test_names_of_one_tick_and_group_are_read_once_together() -> None:
    reads = Reads()
    merged = MergedReads(reads)
    asked = [(b"1", b"a"), (b"2", b"b"), (b"1", b"c"), (b"1", b"a")]
    found = await asyncio.gather(*(merged.get(group, name) for group, name in asked))
    assert found == [b"A", b"B", b"C", b"A"]
    assert reads.calls == [[b"a", b"c"], [b"b"]]
    await merged.close()


async def test_while_two_reads_are_on_their_way_the_next_one_fills() -> None:
    reads = Reads()
    reads.gate.clear()
    merged = MergedReads(reads)
    waiting = []
    for number in range(6):
        waiting.append(merged.get(b"", b"n%d" % number))
        await asyncio.sleep(0.001)
    assert reads.calls == [[b"n0"], [b"n1"]]
    reads.gate.set()
    assert await asyncio.gather(*waiting) == [b"N%d" % number for number in range(6)]
    assert reads.calls[2:] == [[b"n2", b"n3", b"n4", b"n5"]]
    assert merged._flying == {}
    await merged.close()


async def test_a_long_queue_is_read_in_several_calls() -> None:
    reads = Reads()
    merged = MergedReads(reads)
    waiting = [merged.get(b"", b"n%d" % number) for number in range(600)]
    assert len(await asyncio.gather(*waiting)) == 600
    assert [len(call) for call in reads.calls] == [256, 256, 88]
    await merged.close()


async def test_who_gave_up_is_not_read_for() -> None:
    reads = Reads()
    merged = MergedReads(reads)
    gone, here = merged.get(b"", b"a"), merged.get(b"", b"b")
    gone.cancel()
    assert await here == b"B"
    assert reads.calls == [[b"b"]]
    await merged.close()


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [(StoreError("refused"), "refused"), (ValueError("odd"), "internal")],
)
async def test_trouble_is_told_to_everybody_who_waits(trouble: Exception, reason: str) -> None:
    reads = Reads()
    reads.trouble = trouble
    merged = MergedReads(reads)
    found = await asyncio.gather(
        *(merged.get(b"", name) for name in (b"a", b"b", b"a")), return_exceptions=True
    )
    assert [getattr(item, "reason", None) for item in found] == [reason] * 3
    await merged.close()


async def test_closing_tells_those_who_wait() -> None:
    reads = Reads()
    reads.gate.clear()
    merged = MergedReads(reads)
    waiting = []
    for number in range(3):
        waiting.append(merged.get(b"", b"n%d" % number))
        await asyncio.sleep(0.001)
    await merged.close()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(item, "reason", None) for item in found] == ["closed"] * 3
    with pytest.raises(StoreError, match="closed"):
        merged.get(b"", b"x")


async def test_jobs_of_one_tick_cross_together_and_get_their_own_outcome() -> None:
    batches: list[list[int]] = []

    def work(jobs: Sequence[int]) -> list[object]:
        batches.append(list(jobs))
        return [StoreError("odd") if job % 2 else job * 10 for job in jobs]

    lane: Lane[int] = Lane(work, lambda closing: None, idle_s=60.0, most=100)
    found = await asyncio.gather(*(lane.do(n) for n in range(4)), return_exceptions=True)
    assert [getattr(item, "reason", item) for item in found] == [0, "odd", 20, "odd"]
    assert batches == [[0, 1, 2, 3]]
    await lane.close()


async def test_a_lane_takes_only_so_many_jobs() -> None:
    lane: Lane[int] = Lane(lambda jobs: list(jobs), lambda closing: None, idle_s=60.0, most=2)
    first, second = lane.do(1), lane.do(2)
    with pytest.raises(StoreError, match="busy"):
        lane.do(3)
    first.cancel()
    assert await second == 2
    assert await lane.do(3) == 3
    await lane.close()


async def test_an_idle_lane_is_told_so_and_once_more_at_the_end() -> None:
    seen: list[bool] = []
    lane: Lane[int] = Lane(lambda jobs: list(jobs), seen.append, idle_s=0.005, most=2)
    assert await lane.do(1) == 1
    async with asyncio.timeout(20):
        while len(seen) < 2:
            await asyncio.sleep(0.005)
    await lane.close()
    await lane.close()
    assert set(seen[:-1]) == {False}
    assert seen[-1] is True


def test_a_loop_that_ended_leaves_the_thread_alive_and_well() -> None:
    done: list[int] = []

    def work(jobs: Sequence[int]) -> list[int]:
        done.extend(jobs)
        return list(jobs)

    lane: Lane[int] = Lane(work, lambda closing: None, idle_s=60.0, most=9)

    async def start() -> None:
        lane.do(1)
        await asyncio.sleep(0)

    asyncio.run(start())
    asyncio.run(lane.close())
    assert done == [1]


async def test_a_lane_that_was_never_used_closes() -> None:
    lane: Lane[int] = Lane(lambda jobs: list(jobs), lambda closing: None, idle_s=1.0, most=1)
    await lane.close()
    with pytest.raises(StoreError, match="closed"):
        lane.do(1)
