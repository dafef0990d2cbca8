"""The first request of a new prefix goes alone."""

from __future__ import annotations

import asyncio

from trivet.middleware.prefix_tier.fan_out import FanOut, Lead

A, B, C = b"a", b"b", b"c"


async def _spin() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_siblings_wait_for_the_first_byte() -> None:
    gate = FanOut()
    lead = await gate.enter([A], [A], 5)
    siblings = [asyncio.create_task(gate.enter([A], [], 5)) for _ in range(3)]
    await _spin()
    assert not any(task.done() for task in siblings)
    lead.began()
    await asyncio.gather(*siblings)
    assert len(gate) == 0


async def test_nobody_waits_without_a_budget() -> None:
    gate = FanOut()
    await gate.enter([A], [A], 0)
    async with asyncio.timeout(1):
        await gate.enter([A], [A], 0)


async def test_the_wait_is_bounded() -> None:
    gate = FanOut()
    await gate.enter([A], [A], 5)
    async with asyncio.timeout(5):
        await gate.enter([A], [], 0.01)


async def test_other_prefixes_go_at_once() -> None:
    """Keys hold the tenant, so another tenant's are others."""
    gate = FanOut()
    await gate.enter([A], [A], 5)
    async with asyncio.timeout(1):
        await gate.enter([B], [B], 5)


async def test_after_a_failure_one_leads_and_the_others_wait_on() -> None:
    gate = FanOut()
    went: list[Lead] = []

    async def sibling() -> None:
        went.append(await gate.enter([A], [A], 5))

    with await gate.enter([A], [A], 5):
        tasks = [asyncio.create_task(sibling()) for _ in range(3)]
        await _spin()
    await _spin()
    assert len(went) == 1
    went[0].began()
    await asyncio.gather(*tasks)
    assert len(went) == 3


async def test_a_sibling_leads_for_what_it_writes_beyond_the_shared_part() -> None:
    gate = FanOut()
    lead = await gate.enter([A, B], [A, B], 5)
    task = asyncio.create_task(gate.enter([A, C], [A, C], 5))
    await _spin()
    lead.began()
    await task
    assert len(gate) == 1
    async with asyncio.timeout(1):
        await gate.enter([A], [A], 5)


async def test_a_cancelled_sibling_leaves_nothing_behind() -> None:
    gate = FanOut()
    with await gate.enter([A], [A], 5):
        task = asyncio.create_task(gate.enter([A], [A], 5))
        await _spin()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(gate) == 0


async def test_the_first_byte_is_not_a_failure_afterwards() -> None:
    gate = FanOut()
    with await gate.enter([A], [A], 5) as lead:
        task = asyncio.create_task(gate.enter([A], [A], 5))
        await _spin()
        lead.began()
    await task
    assert len(gate) == 0
