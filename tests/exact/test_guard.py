"""The time budget and the circuit breaker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from entries import entry, key

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.memory import MemoryStore
from trivet.exact.purges import Changes
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.telemetry import Event, StoreOperation, StoreState

FREE = Bound()
QUICK = Budget(get_s=0.02, put_s=0.05, purge_s=0.2, failures=3, probe_s=0.03)


class Frail(MemoryStore):
    """A store in memory that fails or waits as a test says."""

    name = "frail"

    def __init__(self) -> None:
        super().__init__()
        self.trouble: dict[str, BaseException | float] = {}
        self.calls: list[str] = []

    async def _meet(self, call: str) -> None:
        self.calls.append(call)
        trouble = self.trouble.get(call)
        if isinstance(trouble, BaseException):
            raise trouble
        if trouble is not None:
            await asyncio.sleep(trouble)

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        await self._meet("get")
        return await super().get(tenant, key)

    async def put(self, entry: Entry, bound: Bound) -> str:
        await self._meet("put")
        return await super().put(entry, bound)

    async def purge(self, tenant: str, label: str | None, at: float) -> int:
        await self._meet("purge")
        return await super().purge(tenant, label, at)

    async def ready(self) -> None:
        await self._meet("ready")

    async def changes(self, cursor: int) -> Changes:
        await self._meet("changes")
        return Changes(cursor, ())


class Rig:
    """A guarded frail store, and what it told."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = Frail()
        self.told: list[Event] = []
        self.store = GuardedStore(self.inner, budget, self.told.append, clock)

    def states(self) -> list[tuple[str, str]]:
        return [(e.state, e.reason) for e in self.told if isinstance(e, StoreState)]

    def outcomes(self) -> list[str]:
        return [e.outcome for e in self.told if isinstance(e, StoreOperation)]

    async def fails(self, times: int, call: Callable[[], Awaitable[object]]) -> list[str]:
        reasons = []
        for _ in range(times):
            with pytest.raises(StoreError) as caught:
                await call()
            reasons.append(caught.value.reason)
        return reasons

    async def until(self, state: str) -> None:
        async with asyncio.timeout(20):
            while not self.states() or self.states()[-1][0] != state:
                await asyncio.sleep(0.005)

    def get(self) -> Awaitable[object]:
        return self.store.get("t1", key("a"))

    def put(self) -> Awaitable[object]:
        return self.store.put(entry("a"), FREE)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig(QUICK)
    yield rig
    await rig.store.close()


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def timed(clock: Clock) -> AsyncIterator[Rig]:
    """A rig whose breakers go by `clock`."""
    rig = Rig(QUICK, clock)
    yield rig
    await rig.store.close()


async def test_a_healthy_store_is_told_up_once_and_every_call_is_counted(rig: Rig) -> None:
    await rig.get()
    made = entry("a", created=time.time(), stale_until=time.time() + 99)
    await rig.store.put(made, FREE)
    assert await rig.get() is made
    assert await rig.store.purge("t1", None, time.time()) == 1
    assert rig.states() == [("up", "")]
    assert rig.outcomes() == ["miss", "ok", "hit", "ok"]
    sizes = [event.size for event in rig.told if isinstance(event, StoreOperation)]
    assert sizes == [0, made.size, made.size, 0]


async def test_a_slow_get_ends_at_its_budget(rig: Rig) -> None:
    rig.inner.trouble["get"] = 60.0
    assert await rig.fails(1, rig.get) == ["timeout"]
    assert rig.states() == []


async def test_failures_in_a_row_open_the_breaker_and_then_calls_cost_nothing(rig: Rig) -> None:
    await rig.get()
    rig.inner.trouble.update(get=StoreError("refused"), ready=StoreError("refused"))
    assert await rig.fails(6, rig.get) == ["refused"] * 3 + ["open"] * 3
    assert rig.inner.calls.count("get") == 4
    assert rig.states() == [("up", ""), ("down", "refused")]
    assert rig.outcomes() == ["miss"] + ["refused"] * 3 + ["open"] * 3


async def test_calls_that_time_out_together_are_one_failure(rig: Rig) -> None:
    rig.inner.trouble["get"] = 60.0
    for _ in range(2):
        ended = await asyncio.gather(*(rig.get() for _ in range(8)), return_exceptions=True)
        assert [str(error)[:7] for error in ended] == ["timeout"] * 8
    assert rig.states() == []
    await rig.fails(1, rig.get)
    assert [state for state, _ in rig.states()] == ["down"]


@pytest.mark.parametrize(
    ("reason", "states"), [("timeout", []), ("refused", [("down", "refused")])]
)
async def test_a_timeout_of_a_call_that_began_before_one_was_counted_says_nothing_more(
    reason: str,
    states: list[tuple[str, str]],
    timed: Rig,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = [asyncio.Event() for _ in range(4)]
    waiting = iter(release)

    async def failing(call: str) -> None:
        if call == "get":
            await next(waiting).wait()
        raise StoreError(reason)

    monkeypatch.setattr(timed.inner, "_meet", failing)
    calls = []
    for begun in range(4):
        clock.now = float(begun)
        calls.append(asyncio.ensure_future(timed.get()))
        await asyncio.sleep(0)
    for ended, event in enumerate(release):
        clock.now = 10.0 + ended
        event.set()
        await asyncio.wait({calls[ended]})
        assert isinstance(calls[ended].exception(), StoreError)
    assert timed.states() == states


async def test_timeouts_of_calls_that_began_after_one_was_counted_open_the_breaker(
    timed: Rig, clock: Clock
) -> None:
    timed.inner.trouble["get"] = StoreError("timeout")
    for began in range(QUICK.failures):
        assert timed.states() == []
        clock.now = float(began)
        assert await timed.fails(1, timed.get) == ["timeout"]
    assert timed.states() == [("down", "timeout")]
    assert await timed.fails(1, timed.get) == ["open"]


async def test_a_success_in_between_keeps_the_breaker_closed(rig: Rig) -> None:
    for _ in range(4):
        rig.inner.trouble["get"] = StoreError("refused")
        await rig.fails(2, rig.get)
        del rig.inner.trouble["get"]
        await rig.get()
    assert rig.states() == [("up", "")]


async def test_a_probe_in_the_background_closes_the_breaker(rig: Rig) -> None:
    rig.inner.trouble.update(get=StoreError("refused"), ready=StoreError("refused"))
    await rig.fails(3, rig.get)
    async with asyncio.timeout(20):
        while rig.inner.calls.count("ready") < 2:
            await asyncio.sleep(0.005)
    assert rig.states() == [("down", "refused")]
    rig.inner.trouble.clear()
    await rig.until("up")
    assert await rig.get() is None
    assert rig.states() == [("down", "refused"), ("up", "")]


async def test_failing_writes_degrade_the_store_and_reads_go_on(timed: Rig, clock: Clock) -> None:
    rig = timed
    await rig.get()
    rig.inner.trouble["put"] = StoreError("full", "full: no room")
    assert await rig.fails(5, rig.put) == ["full"] * 3 + ["open"] * 2
    assert await rig.get() is None
    assert rig.states() == [("up", ""), ("degraded", "full: no room")]
    clock.now += QUICK.probe_s
    assert await rig.fails(2, rig.put) == ["full", "open"]
    rig.inner.trouble.clear()
    clock.now += QUICK.probe_s
    await rig.put()
    assert rig.states()[1:] == [("degraded", "full: no room"), ("up", "")]


async def test_a_store_that_comes_back_is_tried_for_writes_anew(timed: Rig) -> None:
    rig = timed
    rig.inner.trouble["put"] = StoreError("readonly")
    await rig.fails(3, rig.put)
    rig.inner.trouble.update(get=StoreError("refused"), ready=StoreError("refused"))
    await rig.fails(3, rig.get)
    del rig.inner.trouble["ready"]
    await rig.until("up")
    assert await rig.fails(4, rig.put) == ["readonly"] * 3 + ["open"]
    assert [state for state, _ in rig.states()] == ["degraded", "down", "up", "degraded"]


async def test_trouble_that_no_retry_changes_opens_the_breaker_at_once(rig: Rig) -> None:
    rig.inner.trouble.update(
        get=StoreError("auth", "auth: wrong password"), ready=StoreError("auth")
    )
    assert await rig.fails(2, rig.get) == ["auth", "open"]
    assert rig.states() == [("down", "auth: wrong password")]


async def test_a_store_that_is_not_ready_at_the_start_is_down_at_once(rig: Rig) -> None:
    rig.inner.trouble["ready"] = StoreError("refused")
    with pytest.raises(StoreError, match="refused"):
        await rig.store.ready()
    assert await rig.fails(1, rig.get) == ["open"]
    rig.inner.trouble.clear()
    await rig.store.ready()
    assert [state for state, _ in rig.states()] == ["down", "up"]


async def test_an_entry_that_cannot_be_stored_is_no_failure_of_the_store(rig: Rig) -> None:
    await rig.get()
    rig.inner.trouble["put"] = StoreError("unstorable")
    assert await rig.fails(5, rig.put) == ["unstorable"] * 5
    assert rig.states() == [("up", "")]


async def test_a_purge_is_tried_although_writes_are_open(rig: Rig) -> None:
    rig.inner.trouble["put"] = StoreError("full")
    await rig.fails(3, rig.put)
    assert await rig.store.purge("t1", None, 1.0) == 0
    assert "purge" in rig.inner.calls


@pytest.mark.parametrize(
    "foreign", [ValueError("x"), KeyError("k"), OSError(5, "io"), RuntimeError()]
)
async def test_no_foreign_exception_gets_through(rig: Rig, foreign: Exception) -> None:
    for call in ("get", "put", "purge", "changes"):
        rig.inner.trouble[call] = foreign
    calls = [rig.get, rig.put, lambda: rig.store.purge("t1", None, 1.0)]
    for call_it in [*calls, lambda: rig.store.changes(0)]:
        assert await rig.fails(1, call_it) == ["internal"]


async def test_a_caller_that_goes_away_is_no_failure_of_the_store(rig: Rig) -> None:
    rig.inner.trouble["get"] = 60.0
    for _ in range(5):
        task = asyncio.ensure_future(rig.get())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert rig.states() == []
    assert rig.outcomes() == ["cancelled"] * 5


async def test_an_event_loop_that_stood_still_is_no_trouble_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(Budget(get_s=0.05))
    made = entry("a", stale_until=time.time() + 99)
    await rig.store.put(made, FREE)
    ready = asyncio.Event()

    async def answered(tenant: str, key: ExactKey) -> Entry:
        await ready.wait()
        await asyncio.sleep(0)
        return made

    monkeypatch.setattr(rig.inner, "get", answered)
    for _ in range(4):
        ready.clear()
        task = asyncio.ensure_future(rig.get())
        await asyncio.sleep(0)
        ready.set()
        time.sleep(0.1)
        assert await task is made
    await rig.store.close()


async def test_the_feed_and_the_counts_are_not_asked_for_while_reads_are_open(rig: Rig) -> None:
    assert (await rig.store.usage(None)).entries == 0
    assert (await rig.store.changes(7)).cursor == 7
    rig.inner.trouble.update(get=StoreError("refused"), ready=StoreError("refused"))
    await rig.fails(3, rig.get)
    assert await rig.fails(1, lambda: rig.store.usage(None)) == ["open"]
    assert await rig.fails(1, lambda: rig.store.changes(0)) == ["open"]


async def test_a_delete_goes_through(rig: Rig) -> None:
    made = entry("a", stale_until=time.time() + 99)
    await rig.store.put(made, FREE)
    await rig.store.delete("t1", made.key)
    assert await rig.get() is None


async def test_closing_ends_the_probe_and_is_idempotent(rig: Rig) -> None:
    rig.inner.trouble.update(get=StoreError("refused"), ready=StoreError("refused"))
    await rig.fails(3, rig.get)
    await rig.store.close()
    await rig.store.close()
    assert len(asyncio.all_tasks()) == 1
