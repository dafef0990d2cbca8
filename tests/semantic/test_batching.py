"""One embedder, many coroutines: batches, sharing, and every kind of trouble."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from stand_ins import ToldEmbedder, vector_of

from trivet.errors import EmbedderError
from trivet.semantic.batching import BatchedEmbedder, Limits
from trivet.telemetry import Event, StoreState

_LONG_S = 60.0
_QUICK = Limits(failures=2, probe_s=0.01, check_s=0.0)
_NO_PROBE = Limits(failures=2, probe_s=_LONG_S)


class Gate:
    """Holds the embedding thread until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, texts: list[str]) -> None:
        self.reached.set()
        assert self.opened.wait(_LONG_S)

    async def wait_until_reached(self) -> None:
        await asyncio.to_thread(self.reached.wait, _LONG_S)


@asynccontextmanager
async def batched(
    embedder: ToldEmbedder,
    deadline_s: float = _LONG_S,
    limits: Limits = _NO_PROBE,
    observer: Callable[[Event], None] = lambda event: None,
    max_batch: int = 16,
) -> AsyncIterator[BatchedEmbedder]:
    made = BatchedEmbedder(embedder, max_batch, deadline_s, limits, observer)
    try:
        yield made
    finally:
        await made.close()


async def reason_of(made: BatchedEmbedder, text: str = "x", tenant: str = "") -> str:
    with pytest.raises(EmbedderError) as caught:
        await made.embed(text, tenant)
    return caught.value.reason


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LONG_S):
        while not true():
            await asyncio.sleep(0.001)


def failing(texts: list[str]) -> None:
    raise EmbedderError("endpoint", "no route")


async def test_a_vector_is_one_dimensional_and_read_only() -> None:
    async with batched(ToldEmbedder()) as made:
        vector = await made.embed("hello")
    assert np.array_equal(vector, vector_of("hello"))
    assert vector.base is None
    assert not vector.flags.writeable


async def test_calls_of_one_turn_make_one_batch_off_the_loops_thread() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder) as made:
        vectors = await asyncio.gather(*(made.embed(text) for text in "abc"))
    assert embedder.batches == [["a", "b", "c"]]
    assert threading.get_ident() not in embedder.threads
    assert all(np.array_equal(v, vector_of(t)) for v, t in zip(vectors, "abc", strict=True))


async def test_what_comes_while_a_batch_runs_makes_the_next_batches() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    async with batched(embedder, max_batch=2) as made:
        calls = [asyncio.create_task(made.embed("first"))]
        await gate.wait_until_reached()
        calls += [asyncio.create_task(made.embed(text)) for text in "abc"]
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*calls)
    assert embedder.batches == [["first"], ["a", "b"], ["c"]]


async def test_long_texts_are_not_batched_together() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder) as made:
        await asyncio.gather(made.embed("a" * 100_000), made.embed("b" * 100_000))
    assert [len(batch) for batch in embedder.batches] == [1, 1]


async def test_equal_texts_in_flight_are_embedded_once() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    async with batched(embedder) as made:
        calls = [asyncio.create_task(made.embed("same")) for _ in range(3)]
        await gate.wait_until_reached()
        calls.append(asyncio.create_task(made.embed("same")))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*calls)
    assert embedder.batches == [["same"]]


async def test_a_recent_text_is_never_embedded_again() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder) as made:
        first = await made.embed("same")
        assert await made.embed("same") is first
    assert embedder.batches == [["same"]]


async def test_vectors_are_not_shared_between_tenants() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder) as made:
        await asyncio.gather(made.embed("same", "a"), made.embed("same", "b"))
        await made.embed("same", "c")
    assert embedder.batches == [["same", "same"], ["same"]]


async def test_recent_texts_are_bounded_by_bytes() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder, limits=Limits(recent_bytes=1000)) as made:
        for text in ["a", "b", "c", "a", "d" * 2000, "d" * 2000]:
            await made.embed(text)
    assert [batch[0][:1] for batch in embedder.batches] == ["a", "b", "c", "a", "d", "d"]


async def test_a_caller_is_told_at_the_deadline_while_the_batch_goes_on() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    async with batched(embedder, deadline_s=0.01) as made:
        assert await reason_of(made, "slow") == "timeout"
        gate.opened.set()
        await until(lambda: made._batch is None)
        assert np.array_equal(await made.embed("slow"), vector_of("slow"))
    assert embedder.batches == [["slow"]]


async def test_what_nobody_waits_for_any_more_is_not_embedded() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    async with batched(embedder) as made:
        first = asyncio.create_task(made.embed("first"))
        await gate.wait_until_reached()
        given_up = asyncio.create_task(made.embed("given up"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        gate.opened.set()
        await first
        await made.embed("last")
    assert embedder.batches == [["first"], ["last"]]


async def test_one_caller_that_is_cancelled_does_not_disturb_another() -> None:
    gate = Gate()
    async with batched(ToldEmbedder(gate)) as made:
        one, other = (asyncio.create_task(made.embed("same")) for _ in range(2))
        await gate.wait_until_reached()
        one.cancel()
        gate.opened.set()
        assert np.array_equal(await other, vector_of("same"))


async def test_a_full_queue_refuses() -> None:
    gate = Gate()
    async with batched(ToldEmbedder(gate), limits=Limits(queue=2)) as made:
        calls = [asyncio.create_task(made.embed(text)) for text in "ab"]
        await gate.wait_until_reached()
        assert await reason_of(made, "c") == "busy"
        gate.opened.set()
        await asyncio.gather(*calls)


@pytest.mark.parametrize("error", [ValueError("bug"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_the_thread_raises_is_an_embedder_error(error: BaseException) -> None:
    def crash(texts: list[str]) -> None:
        raise error

    async with batched(ToldEmbedder(crash), limits=Limits(failures=9)) as made:
        assert await reason_of(made) == "crash"
        assert await reason_of(made) == "crash"


@pytest.mark.parametrize(
    ("made_of", "reason"),
    [
        (np.ones((1, 5), np.float32), "shape"),
        (np.ones((2, 4), np.float32), "shape"),
        (np.ones(4, np.float32), "shape"),
        ([[1.0, 0.0, 0.0, 0.0]], "shape"),
        (np.full((1, 4), np.nan, np.float32), "not-finite"),
        (np.full((1, 4), np.inf, np.float32), "not-finite"),
        (np.ones((1, 4), np.float32), "length"),
    ],
)
async def test_what_breaks_the_contract_is_refused(made_of: object, reason: str) -> None:
    async with batched(ToldEmbedder(lambda texts: made_of)) as made:
        assert await reason_of(made) == reason


async def test_a_wrong_dimension_opens_the_breaker_at_once() -> None:
    wrong = np.ones((1, 5), np.float32)
    async with batched(ToldEmbedder(lambda texts: wrong)) as made:
        await reason_of(made)
        assert await reason_of(made) == "open"
        assert "(1, 5)" in made.trouble


async def test_failures_in_a_row_open_the_breaker_and_a_probe_closes_it() -> None:
    events: list[Event] = []
    embedder = ToldEmbedder()
    async with batched(embedder, limits=_QUICK, observer=events.append) as made:
        await made.embed("fine")
        embedder.before = failing
        assert [await reason_of(made, text) for text in "abc"] == ["endpoint", "endpoint", "open"]
        assert made.trouble == "no route"
        embedder.before = lambda texts: None
        await until(lambda: not made.trouble)
        await made.embed("fine again")
    assert events == [
        StoreState("embedder:told", "up", ""),
        StoreState("embedder:told", "down", "no route"),
        StoreState("embedder:told", "up", ""),
    ]


async def test_a_success_between_failures_keeps_the_breaker_closed() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder) as made:
        for text in "abc":
            embedder.before = failing
            assert await reason_of(made, text) == "endpoint"
            embedder.before = lambda texts: None
            await made.embed(text)


async def test_an_embedder_that_hangs_soon_costs_nothing() -> None:
    events: list[Event] = []
    gate = Gate()
    async with batched(ToldEmbedder(gate), 0.01, _QUICK, events.append) as made:
        reasons = [await reason_of(made, text) for text in "abc"]
        assert reasons == ["timeout", "timeout", "open"]
        gate.opened.set()
        await until(lambda: not made.trouble)
    assert [event.state for event in events if isinstance(event, StoreState)] == ["down", "up"]


async def test_calls_that_are_late_together_are_one_failure() -> None:
    gate = Gate()
    async with batched(ToldEmbedder(gate), 0.01, Limits(failures=2, probe_s=_LONG_S)) as made:
        found = await asyncio.gather(*(made.embed(text) for text in "abc"), return_exceptions=True)
        assert all(isinstance(one, EmbedderError) and one.reason == "timeout" for one in found)
        assert not made.trouble
        gate.opened.set()


async def test_a_slow_embedder_does_not_flap() -> None:
    events: list[Event] = []
    slow = threading.Event()
    embedder = ToldEmbedder(lambda texts: slow.wait(0.05) and None)
    async with batched(embedder, 0.01, _QUICK, events.append) as made:
        for text in "abcd":
            await reason_of(made, text)
        await until(lambda: len(embedder.batches) > 4)
    assert len(events) == 1


async def test_one_refused_text_does_not_fail_those_beside_it() -> None:
    def refuse_bad(texts: list[str]) -> None:
        if "bad" in texts:
            raise EmbedderError("text", "HTTP 400")

    async with batched(ToldEmbedder(refuse_bad)) as made:
        calls = (made.embed("a"), made.embed("bad"), made.embed("b"))
        one, bad, other = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(bad, EmbedderError)
        assert bad.reason == "text"
        assert np.array_equal(np.stack([one, other]), np.stack([vector_of("a"), vector_of("b")]))  # type: ignore[list-item]
        for _ in range(5):
            assert await reason_of(made, "bad") == "text"
        assert not made.trouble


async def test_a_model_that_changed_on_disk_is_left_until_it_is_back() -> None:
    embedder = ToldEmbedder()
    async with batched(embedder, limits=_QUICK) as made:
        await made.embed("before")
        embedder.now = "replaced"
        assert await reason_of(made, "after") == "changed"
        assert await reason_of(made, "before") == "changed"
        assert embedder.batches == [["before"]]
        embedder.now = "opened"
        await until(lambda: not made.trouble)
        await made.embed("before")


async def test_a_model_that_is_gone_from_disk_has_changed() -> None:
    embedder = ToldEmbedder()

    def gone() -> str:
        raise EmbedderError("missing", "no such folder")

    embedder.fingerprint_now = gone  # type: ignore[method-assign]
    async with batched(embedder, limits=_QUICK) as made:
        assert await reason_of(made) == "changed"


async def test_closing_answers_who_waits_and_lets_go_of_the_embedder() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    made = BatchedEmbedder(embedder, 1, _LONG_S)
    calls = [asyncio.create_task(made.embed(text)) for text in "ab"]
    await gate.wait_until_reached()
    gate.opened.set()
    await made.close()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [one.reason for one in found if isinstance(one, EmbedderError)][-1:] == ["closed"]
    assert await reason_of(made) == "closed"
    assert embedder.closed


async def test_closing_does_not_wait_for_a_thread_that_hangs() -> None:
    gate = Gate()
    made = BatchedEmbedder(ToldEmbedder(gate), 1, _LONG_S)
    call = asyncio.create_task(reason_of(made))
    await gate.wait_until_reached()
    await made.close()
    assert await call == "closed"
    gate.opened.set()


async def test_closing_before_any_use_is_fine() -> None:
    embedder = ToldEmbedder()
    await BatchedEmbedder(embedder).close()
    assert embedder.closed


async def test_a_thread_that_cannot_be_started_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with batched(ToldEmbedder()) as made:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            assert await reason_of(made) == "crash"
        assert np.array_equal(await made.embed("x"), vector_of("x"))


async def test_no_tenant_waits_for_all_of_anothers_texts() -> None:
    gate = Gate()
    embedder = ToldEmbedder(gate)
    batched = BatchedEmbedder(embedder, max_batch=2, deadline_s=30)
    calls = [asyncio.create_task(batched.embed(f"a{number}", "one")) for number in range(9)]
    await asyncio.to_thread(gate.reached.wait)
    calls.append(asyncio.create_task(batched.embed("b", "two\nbob")))
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(*calls)
    assert "b" in embedder.batches[1]
    await batched.close()


async def test_one_tenant_does_not_fill_the_queue() -> None:
    gate = Gate()
    batched = BatchedEmbedder(ToldEmbedder(gate), 1, 30, Limits(queue=80))
    calls = [asyncio.create_task(batched.embed(f"a{number}", "one")) for number in range(40)]
    await asyncio.sleep(0.01)
    calls.append(asyncio.create_task(batched.embed("b", "two")))
    await asyncio.sleep(0.01)
    gate.opened.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in found if isinstance(one, EmbedderError)]
    assert {one.reason for one in refused} == {"busy"}
    assert len(refused) >= 40 - 22
    assert not isinstance(found[-1], BaseException)
    await batched.close()
