"""What a store in trouble may cost the answer that is to be stored, and what a late timer says."""

from __future__ import annotations

import asyncio
import time

import pytest
from entries import entry, key

from trivet.errors import StoreError
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.memory import MemoryStore
from trivet.exact.purges import Changes
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier
from trivet.messages import ExactKey
from trivet.telemetry import Event, StoreOperation, ignore

FREE = Bound()


class Slow(MemoryStore):
    """A store in memory whose writes wait for `gate`, and whose reads fail while `broken`."""

    name = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.broken = False
        self.puts = 0

    async def put(self, entry: object, bound: Bound) -> str:
        self.puts += 1
        await self.gate.wait()
        return ""

    async def get(self, tenant: str, key: ExactKey) -> None:
        if self.broken:
            raise StoreError("refused")

    async def changes(self, cursor: int) -> Changes:
        return Changes(cursor, ())


async def test_an_answer_does_not_wait_longer_than_the_patience_for_its_write() -> None:
    store = Slow()
    tier = ExactTier(store, ignore, patience_s=0.01)
    assert await tier.keep(entry("a"), FREE) == "store-slow"
    assert store.puts == 1
    store.gate.set()
    assert await tier.keep(entry("b"), FREE) == ""


async def test_a_write_that_its_caller_no_longer_waits_for_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Slow()
    done: list[str] = []

    async def put(entry: object, bound: Bound) -> str:
        await store.gate.wait()
        done.append("stored")
        return ""

    monkeypatch.setattr(store, "put", put)
    tier = ExactTier(store, ignore, patience_s=0.01)
    waiting = asyncio.create_task(tier.keep(entry("a"), FREE))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.gate.set()
    await asyncio.sleep(0.01)
    assert done == ["stored"]


async def test_no_write_is_tried_while_reads_are_refused() -> None:
    store, told = Slow(), list[Event]()
    guarded = GuardedStore(store, Budget(failures=1, probe_s=60.0), told.append)
    store.broken = True
    with pytest.raises(StoreError, match="refused"):
        await guarded.get("t1", key("a"))
    for _ in range(3):
        with pytest.raises(StoreError, match="open"):
            await guarded.put(entry("a"), FREE)
    assert store.puts == 0
    puts = [e.outcome for e in told if isinstance(e, StoreOperation) and e.operation == "put"]
    assert puts == ["open"] * 3
    await guarded.close()


async def test_an_event_loop_that_is_busy_all_the_time_is_no_trouble_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer takes five turns of the loop, each of which is as long as the budget."""
    store = Slow()

    async def get(tenant: str, key: ExactKey) -> None:
        for _ in range(5):
            time.sleep(0.05)
            await asyncio.sleep(0)

    monkeypatch.setattr(store, "get", get)
    guarded = GuardedStore(store, Budget(get_s=0.05), ignore)
    assert await guarded.get("t1", key("a")) is None
    await guarded.close()


async def test_a_store_that_never_answers_is_given_up_however_busy_the_loop_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Slow()

    async def get(tenant: str, key: ExactKey) -> None:
        while True:
            time.sleep(0.03)
            await asyncio.sleep(0)

    monkeypatch.setattr(store, "get", get)
    guarded = GuardedStore(store, Budget(get_s=0.01), ignore)
    with pytest.raises(StoreError, match="timeout"):
        await guarded.get("t1", key("a"))
    await guarded.close()
