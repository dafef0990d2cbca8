"""A slow verifier behind a queue: batches, deadlines, and a breaker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from trivet.semantic import bounded_verifier as module
from trivet.semantic.bounded_verifier import BoundedVerifier
from trivet.semantic.types import TextPair, Verdict
from trivet.telemetry import Event, StoreState


class Told:
    """Scores a pair by its cosine, notes the batches, and hangs or fails as it is told."""

    name, fingerprint = "told", "v1"

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.goes.set()
        self.begun = threading.Event()
        self.error: BaseException | None = None
        self.short = False
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        self.batches.append([pair.asked for pair in pairs])
        self.threads.add(threading.get_ident())
        self.begun.set()
        assert self.goes.wait(20)
        if self.error is not None:
            raise self.error
        return [Verdict(pair.cosine) for pair in pairs][self.short :]


class Rig:
    def __init__(self, deadline_s: float = 20.0) -> None:
        self.model = Told()
        self.told: list[Event] = []
        self.verifier = BoundedVerifier(self.model, deadline_s, self.told.append)

    async def ask(self, text: str = "a", tenant: str = "t1") -> Verdict | str:
        return await self.verifier.verify(TextPair("stored", text, 0.5), tenant)

    def asks(self, *texts: str, tenant: str = "t1") -> list[asyncio.Task[Verdict | str]]:
        return [asyncio.create_task(self.ask(text, tenant)) for text in texts]

    async def hang(self) -> None:
        """The next batch hangs until `model.goes` is set."""
        self.model.begun.clear()
        self.model.goes.clear()


Start = Callable[..., Rig]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    rigs: list[Rig] = []

    def begin(deadline_s: float = 20.0) -> Rig:
        rigs.append(Rig(deadline_s))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.model.goes.set()
        await rig.verifier.close()


async def begun(rig: Rig) -> None:
    assert await asyncio.to_thread(rig.model.begun.wait, 20)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.01)


async def test_a_verdict_comes_from_a_thread_of_its_own(start: Start) -> None:
    rig = start()
    assert await rig.ask() == Verdict(0.5)
    assert await rig.ask("b") == Verdict(0.5)
    (thread,) = rig.model.threads
    assert thread != threading.get_ident()


async def test_what_is_asked_together_is_one_batch(start: Start) -> None:
    rig = start()
    assert await asyncio.gather(*rig.asks(*"abc")) == [Verdict(0.5)] * 3
    assert rig.model.batches == [["a", "b", "c"]]


async def test_a_slow_model_costs_a_call_its_deadline_and_the_loop_goes_on(start: Start) -> None:
    rig = start(0.05)
    await rig.hang()
    turns = 0
    (asked,) = rig.asks("a")
    while not asked.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert asked.result() == "verifier-timeout"
    assert turns > 3


async def test_what_nobody_waits_for_any_more_is_not_verified(start: Start) -> None:
    rig = start()
    await rig.hang()
    first, second, third = rig.asks("a"), rig.asks("b"), rig.asks("c")
    await begun(rig)
    for one in (*first, *second):
        one.cancel()
    await asyncio.gather(*first, *second, return_exceptions=True)
    rig.model.goes.set()
    assert await third[0] == Verdict(0.5)
    assert "b" not in [text for batch in rig.model.batches[1:] for text in batch]


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit("odd")])
async def test_a_model_that_fails_is_a_reason_and_is_asked_again(
    start: Start, error: BaseException
) -> None:
    rig = start()
    rig.model.error = error
    assert await rig.ask() == "verifier-crash"
    rig.model.error = None
    assert await rig.ask() == Verdict(0.5)
    assert rig.told == []


async def test_too_few_verdicts_are_a_failure(start: Start) -> None:
    rig = start()
    rig.model.short = True
    assert await rig.ask() == "verifier-crash"


async def test_failures_in_a_row_open_the_breaker_and_a_try_closes_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.05)
    rig = start()
    rig.model.error = ValueError("odd")
    assert [await rig.ask() for _ in range(3)] == ["verifier-crash"] * 3
    assert await rig.ask() == "verifier-open"
    assert rig.verifier.trouble == "told failed: ValueError('odd')"
    assert rig.told == [StoreState("verifier:told", "down", rig.verifier.trouble)]
    rig.model.error = None

    async def answers() -> bool:
        return await rig.ask() == Verdict(0.5)

    await until(answers)
    assert rig.verifier.trouble == ""
    assert rig.told[1:] == [StoreState("verifier:told", "up", "")]


async def test_a_model_that_hangs_costs_three_deadlines_and_then_nothing(start: Start) -> None:
    rig = start(0.03)
    await rig.hang()
    assert [await rig.ask() for _ in range(3)] == ["verifier-timeout"] * 3
    assert [await rig.ask() for _ in range(100)] == ["verifier-open"] * 100
    assert len(rig.model.batches) == 1
    assert rig.verifier.trouble == "A verdict took more than 0.03 s."


async def test_calls_that_are_late_together_are_one_failure(start: Start) -> None:
    rig = start(0.05)
    await rig.hang()
    assert await asyncio.gather(*rig.asks(*"abcdefgh")) == ["verifier-timeout"] * 8
    assert rig.verifier.trouble == ""


async def test_a_late_verdict_closes_nothing(start: Start) -> None:
    rig = start(0.03)
    await rig.hang()
    for _ in range(3):
        await rig.ask()
    rig.model.goes.set()
    await asyncio.sleep(0.1)
    assert rig.verifier.trouble


async def test_one_tenant_leaves_room_for_the_others(start: Start) -> None:
    rig = start()
    await rig.hang()
    waits = rig.asks("a")
    await begun(rig)
    waits += rig.asks(*map(str, range(16)))
    await asyncio.sleep(0)
    assert await rig.ask("more") == "verifier-busy"
    waits += rig.asks("b", tenant="t2")
    await asyncio.sleep(0)
    rig.model.goes.set()
    assert await asyncio.gather(*waits) == [Verdict(0.5)] * 18
    assert max(map(len, rig.model.batches)) == 4


async def test_the_queue_is_bounded(start: Start) -> None:
    rig = start()
    await rig.hang()
    waits = rig.asks("a")
    await begun(rig)
    for tenant in "abcd":
        waits += rig.asks(*map(str, range(16)), tenant=tenant)
    await asyncio.sleep(0)
    assert await rig.ask(tenant="e") == "verifier-busy"
    rig.model.goes.set()
    assert await asyncio.gather(*waits) == [Verdict(0.5)] * 65


async def test_closing_lets_nobody_wait(start: Start) -> None:
    rig = start()
    await rig.hang()
    waits = rig.asks("a")
    await begun(rig)
    waits += rig.asks("b")
    await asyncio.sleep(0)
    closing = asyncio.create_task(rig.verifier.close())
    assert await asyncio.gather(*waits) == ["verifier-closed"] * 2
    rig.model.goes.set()
    await closing
    assert await rig.ask() == "verifier-closed"
