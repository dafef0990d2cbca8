"""The engine on a model that is no model: requests from submit to their last part."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from loop_builders import END, SIZE, Clock, answer, engine_of

from trivet.errors import RequestError
from trivet.prefix.engine.engine import Engine, Generation, Output
from trivet.prefix.engine.generation import Mailbox
from trivet.prefix.engine.kv_movers import host_mover
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.scheduler import Limits
from trivet.prefix.pool.events import BlocksStored
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import Share, Shares


def greedy(most: int = 8, **changed: Any) -> SamplingParams:
    return SamplingParams(most, 0.0, **changed)


def asked(
    engine: Engine,
    prompt: Sequence[int],
    params: SamplingParams | None = None,
    tenant: str = "acme",
    deadline_s: float | None = None,
) -> Generation:
    return engine.submit(
        list(prompt),
        params or greedy(),
        tenant=tenant,
        salt=f"{tenant}-salt",
        deadline_s=deadline_s,
    )


def turned(engine: Engine, most: int = 2000) -> None:
    """Step until nothing is left, checking the books each time."""
    for _ in range(most):
        engine.turn()
        engine.pool.check_integrity()
        if not engine.stepper.live:
            return
    raise AssertionError("the engine does not come to an end")


async def parts_of(generation: Generation) -> list[Output]:
    return [part async for part in generation]


async def whole(generation: Generation) -> Output:
    parts = await parts_of(generation)
    tokens = tuple(token for part in parts for token in part.tokens)
    text = "".join(part.text for part in parts)
    last = parts[-1]
    return Output(text, tokens, None, last.finish, last.output_tokens, last.stopped_by)


class DeadEnd:
    """A grammar that any two tokens follow, and no third."""

    complete = False

    def __init__(self) -> None:
        self._left = 2

    def start(self, schema: str, salt: str) -> DeadEnd:
        return self

    def allowed(self, vocabulary: int) -> torch.Tensor:
        return torch.full((vocabulary,), self._left > 0)

    def accept(self, token: int) -> bool:
        self._left -= 1
        return True


def letters(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token % 26) for token in tokens)


def assert_all_back(engine: Engine) -> None:
    engine.pool.check_integrity()
    stats = engine.stats()
    assert (stats.pool.used, stats.waiting, stats.running) == (0, 0, 0)


async def test_an_answer_is_what_the_model_says() -> None:
    engine, _ = engine_of()
    prompt = [5, 6, 7] * 7
    generation = asked(engine, prompt)
    turned(engine)
    expected = answer(prompt, 8)
    assert await whole(generation) == Output(letters(expected), tuple(expected), None, "length", 8)
    assert (generation.prompt_tokens, generation.cached_tokens) == (21, 0)
    assert_all_back(engine)


async def test_a_second_one_finds_the_prefix_and_says_the_same() -> None:
    engine, _ = engine_of()
    prompt = [5, 6, 7] * 7
    for cached in (0, 20):
        generation = asked(engine, prompt)
        turned(engine)
        assert list((await whole(generation)).tokens) == answer(prompt, 8)
        assert generation.cached_tokens == cached


async def test_an_answer_is_a_prefix_of_the_next_prompt() -> None:
    engine, _ = engine_of()
    first = asked(engine, [5] * 10, greedy(11))
    turned(engine)
    prompt = [*[5] * 10, *(await whole(first)).tokens, 9]
    second = asked(engine, prompt)
    turned(engine)
    assert list((await whole(second)).tokens) == answer(prompt, 8)
    assert second.cached_tokens == 20


async def test_without_reuse_all_is_computed_anew() -> None:
    engine, _ = engine_of()
    for _ in range(2):
        generation = engine.submit([5] * 9, greedy(), tenant="a", salt="s", reuse=False)
        turned(engine)
        await whole(generation)
        assert generation.cached_tokens == 0


async def test_another_salt_finds_nothing() -> None:
    engine, _ = engine_of()
    for salt in ("one", "two"):
        generation = engine.submit([5] * 9, greedy(), tenant="acme", salt=salt)
        turned(engine)
        await whole(generation)
        assert generation.cached_tokens == 0


async def test_many_at_once_in_little_memory_say_what_each_would_alone() -> None:
    limits = Limits(max_running=8, step_tokens=16)
    engine, runner = engine_of(24, limits=limits)
    prompts = [[number % 5 + 2] * (3 + number % 11) + [number] for number in range(32)]
    generations = [
        asked(engine, prompt, greedy(4 + at % 15), f"tenant-{at % 3}")
        for at, prompt in enumerate(prompts)
    ]
    turned(engine)
    for at, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
        assert list((await whole(generation)).tokens) == answer(prompt, 4 + at % 15)
    assert sum(each.preemptions for each in engine.stats().tenants.values()) > 0
    # Two places are kept for a fourth tenant, and lent to the last one that is left.
    assert 6 <= max(map(len, runner.steps)) <= 8
    assert_all_back(engine)


async def test_places_that_were_lent_and_given_back_change_no_answer() -> None:
    engine, runner = engine_of(limits=Limits(max_running=4))
    first = [asked(engine, [number] * 9, greedy(12)) for number in range(2, 7)]
    for _ in range(4):
        engine.turn()
    assert len(runner.steps[-1]) == 4
    late = asked(engine, [8] * 9, greedy(2), "late")
    engine.turn()
    assert len(runner.steps[-1]) == 4
    turned(engine)
    assert list((await whole(late)).tokens) == answer([8] * 9, 2)
    for number, generation in enumerate(first, 2):
        assert list((await whole(generation)).tokens) == answer([number] * 9, 12)
    assert engine.stats().tenants["acme"].preemptions == 1
    assert_all_back(engine)


async def test_evicted_prefixes_come_back_from_host_memory() -> None:
    engine, runner = engine_of(8)
    tier = OffloadTier(16, host_mover(runner.memory, 16))
    engine.pool.offload = tier
    for prompt in ([5] * 20, [6] * 28, [5] * 20):
        generation = asked(engine, prompt, greedy(3))
        turned(engine)
        assert list((await whole(generation)).tokens) == answer(prompt, 3)
    assert generation.cached_tokens == 16
    assert engine.stats().tenants["acme"].offload_hits > 0
    assert engine.stats().tiers[0].used > 0


async def test_in_bitwise_mode_the_tokens_are_the_same() -> None:
    engine, _ = engine_of(14, grid=SIZE, limits=Limits(step_tokens=5))
    prompts = [[5] * 10, [5] * 9 + [6], [5] * 14]
    generations = [asked(engine, prompt, greedy(12)) for prompt in prompts]
    turned(engine)
    for prompt, generation in zip(prompts, generations, strict=True):
        assert list((await whole(generation)).tokens) == answer(prompt, 12)
    assert generations[2].cached_tokens == 8


async def test_an_end_token_stops_and_counts_and_has_no_text() -> None:
    engine, _ = engine_of()
    prompt = [5] * 6
    expected = answer(prompt, 3)
    engine.intake._facts = replace(engine.intake._facts, end_tokens=frozenset({expected[2]}))
    stopped = asked(engine, prompt)
    ignoring = asked(engine, prompt, greedy(5, ignore_eos=True))
    turned(engine)
    text = letters(expected[:2])
    assert await whole(stopped) == Output(text, tuple(expected), None, "stop", 3)
    assert (await whole(ignoring)).output_tokens == 5
    assert_all_back(engine)


async def test_a_stop_string_across_tokens_is_swallowed() -> None:
    engine, _ = engine_of()
    prompt = [5] * 6
    expected = answer(prompt, 8)
    stop = letters(expected[3:5])
    generation = asked(engine, prompt, greedy(stop=(stop,)))
    turned(engine)
    found = await whole(generation)
    assert found.text == letters(expected)[: letters(expected).index(stop)]
    assert (found.finish, found.stopped_by) == ("stop", stop)
    assert_all_back(engine)


async def test_logprobs_come_with_their_tokens() -> None:
    engine, _ = engine_of()
    generation = asked(engine, [5] * 6, greedy(3, logprobs=2))
    turned(engine)
    (part,) = await parts_of(generation)
    assert part.logprobs is not None
    assert tuple(drawn.token for drawn in part.logprobs) == part.tokens
    assert [len(drawn.top) for drawn in part.logprobs] == [2, 2, 2]
    assert [drawn.top[0] == (drawn.token, drawn.logprob) for drawn in part.logprobs] == [True] * 3


async def test_a_seed_gives_the_same_answer_also_after_a_preemption() -> None:
    params = SamplingParams(16, 1.5, seed=3)
    alone, _ = engine_of()
    expected = asked(alone, [5] * 8, params)
    turned(alone)
    crowded, _ = engine_of(10)
    others = [asked(crowded, [6 + number] * 8, greedy(16)) for number in range(2)]
    found = asked(crowded, [5] * 8, params)
    turned(crowded)
    assert (await whole(found)).tokens == (await whole(expected)).tokens
    assert crowded.stats().tenants["acme"].preemptions > 0
    for other in others:
        assert (await whole(other)).finish == "length"


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ([], "empty_prompt"),
        ([99], "invalid_token"),
        ([-1], "invalid_token"),
        ([5] * 200, "context_length_exceeded"),
    ],
)
async def test_what_can_never_be_answered_is_refused(prompt: list[int], code: str) -> None:
    engine, _ = engine_of()
    with pytest.raises(RequestError) as refused:
        asked(engine, prompt)
    assert (refused.value.status, refused.value.code) == (400, code)


async def test_a_prompt_longer_than_the_tenants_memory_is_refused_before_it_waits() -> None:
    engine, _ = engine_of(20, shares=Shares({"acme": Share(quota=4), "globex": Share(floor=3)}))
    with pytest.raises(RequestError, match="4 are the most"):
        asked(engine, [5] * 17)
    with pytest.raises(RequestError, match="17 are the most"):
        asked(engine, [5] * 69, tenant="initech")
    assert asked(engine, [5] * 69, tenant="globex")
    turned(engine)


async def test_an_answer_ends_where_the_context_does() -> None:
    engine, _ = engine_of(context=20)
    generation = asked(engine, [5] * 15, greedy(1000))
    turned(engine)
    found = await whole(generation)
    assert (found.finish, found.output_tokens) == ("length", 5)


async def test_an_answer_ends_where_the_memory_does() -> None:
    engine, _ = engine_of(5)
    generation = asked(engine, [5] * 15, greedy(1000))
    turned(engine)
    found = await whole(generation)
    assert (found.finish, found.output_tokens) == ("length", 6)
    assert engine.stats().tenants["acme"].preemptions == 0


async def test_queues_that_are_full_refuse_with_a_code() -> None:
    engine, _ = engine_of(limits=Limits(max_waiting=3, max_waiting_per_tenant=2))
    asked(engine, [5], tenant="a")
    engine.turn()
    kept = [asked(engine, [5], tenant="a") for _ in range(2)]
    with pytest.raises(RequestError) as one_tenants:
        asked(engine, [5], tenant="a")
    kept.append(asked(engine, [5], tenant="b"))
    with pytest.raises(RequestError) as all_full:
        asked(engine, [5], tenant="c")
    assert (one_tenants.value.status, one_tenants.value.code) == (429, "tenant-queue-full")
    assert (all_full.value.status, all_full.value.code) == (503, "queue-full")
    turned(engine)
    assert engine.stats().refused == {"tenant-queue-full": 1, "queue-full": 1}


async def test_a_request_without_blocks_waits_until_its_deadline() -> None:
    clock = Clock()
    engine, _ = engine_of(6, clock=clock)
    running = asked(engine, [5] * 8, greedy(14))
    waiting = asked(engine, [6] * 20, tenant="other", deadline_s=30.0)
    engine.turn()
    clock.now += 29.9
    engine.turn()
    assert engine.stats().waiting == 1
    clock.now += 0.1
    engine.turn()
    assert engine.stats().waiting == 0
    assert await parts_of(waiting) == [Output(finish="deadline")]
    turned(engine)
    assert (await whole(running)).finish == "length"


async def test_a_deadline_in_mid_answer_keeps_what_was_said() -> None:
    clock = Clock()
    engine, _ = engine_of(clock=clock)
    generation = asked(engine, [5] * 8, deadline_s=5.0)
    for _ in range(3):
        engine.turn()
    clock.now += 5
    engine.turn()
    found = await whole(generation)
    assert (found.finish, found.output_tokens) == ("deadline", 3)
    assert_all_back(engine)


async def test_who_leaves_frees_its_blocks_before_the_next_step() -> None:
    engine, _ = engine_of()
    running, waiting = asked(engine, [5] * 8), None
    engine.turn()
    waiting = asked(engine, [6] * 8)
    running.cancel()
    waiting.cancel()
    running.cancel()
    engine.turn()
    assert_all_back(engine)
    assert [(await whole(each)).finish for each in (running, waiting)] == ["cancelled"] * 2
    assert engine.stats().finished == {"cancelled": 2}


async def test_no_numbers_end_one_sequence_and_poison_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, runner = engine_of(12)
    runner.nan_token = END
    sick = asked(engine, [5] * 8 + [END] * 6)
    well = asked(engine, [6] * 8)
    turned(engine)
    assert (await whole(sick)).finish == "error"
    assert list((await whole(well)).tokens) == answer([6] * 8, 8)
    assert not runner.memory.keys[0].isnan().any()
    assert_all_back(engine)
    again = asked(engine, [7] * 40, greedy(3))
    turned(engine)
    assert list((await whole(again)).tokens) == answer([7] * 40, 3)
    assert len(caplog.records) == 1


async def test_kv_that_is_no_numbers_is_not_shared_though_its_logits_are() -> None:
    engine, runner = engine_of(12)
    runner.broken = [0]
    sick, well = asked(engine, [5] * 8), asked(engine, [6] * 8)
    engine.turn()
    runner.broken = []
    turned(engine)
    assert (await whole(sick)).finish == "error"
    assert list((await whole(well)).tokens) == answer([6] * 8, 8)
    assert_all_back(engine)
    again = asked(engine, [5] * 8, greedy(3))
    turned(engine)
    assert (list((await whole(again)).tokens), again.cached_tokens) == (answer([5] * 8, 3), 0)


async def test_nothing_of_a_prompt_is_shared_that_gave_no_numbers() -> None:
    engine, runner = engine_of(12, limits=Limits(step_tokens=8))
    runner.nan_token = END
    generation = asked(engine, [END] * 16)
    turned(engine)
    assert (await whole(generation)).finish == "error"
    assert engine.stats().pool.cached == 0


async def test_a_step_that_raises_ends_its_sequences_and_the_engine_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, runner = engine_of(limits=Limits(max_running=2))
    generations = [asked(engine, [5 + number] * 8) for number in range(3)]
    engine.turn()
    runner.failing = RuntimeError("out of memory")
    engine.turn()
    assert len(caplog.records) == 1
    assert not runner.memory.keys[0].isnan().any()
    turned(engine)
    finishes = [(await whole(each)).finish for each in generations]
    assert finishes == ["error", "error", "length"]
    assert engine.stats().failed_steps == 1
    assert_all_back(engine)


async def test_an_answer_that_cannot_be_read_ends_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = engine_of()
    sick, well = asked(engine, [5] * 8), asked(engine, [6] * 8)
    engine.turn()

    def broken(_: object) -> str:
        raise ValueError("no such token")

    monkeypatch.setattr(engine.stepper.live[1].composer._text, "_decode", broken)
    turned(engine)
    assert (await whole(sick)).finish == "error"
    assert list((await whole(well)).tokens) == answer([6] * 8, 8)
    assert len(caplog.records) == 1
    assert_all_back(engine)


async def test_an_answer_whose_grammar_allows_no_token_ends_with_that_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, _ = engine_of()
    monkeypatch.setattr(engine.intake, "grammars", DeadEnd())
    stuck = asked(engine, [5] * 8, greedy(json_schema="{}"))
    well = asked(engine, [6] * 8)
    turned(engine)
    said = await whole(stuck)
    assert (said.finish, len(said.tokens)) == ("grammar", 2)
    assert (await whole(well)).finish == "length"
    assert engine.stats().finished == {"grammar": 1, "length": 1}
    assert_all_back(engine)


async def test_a_slow_reader_gets_all_in_one_part() -> None:
    engine, _ = engine_of()
    generation = asked(engine, [5] * 8, greedy(50))
    turned(engine)
    parts = await parts_of(generation)
    assert [(len(part.tokens), part.finish) for part in parts] == [(50, "length")]


async def test_a_reader_hears_of_each_step() -> None:
    engine, _ = engine_of()
    generation = asked(engine, [5] * 8, greedy(3))
    heard: list[int] = []
    while engine.stepper.live or not heard:
        engine.turn()
        heard.append((await anext(generation)).output_tokens)
    assert heard == [1, 2, 3]


async def test_a_loop_is_woken_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_of()
    for number in range(5):
        asked(engine, [5 + number] * 4, greedy(1))
    calls = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: calls.append(call))
    engine.turn()
    assert len(calls) == 1


async def test_a_reader_whose_loop_is_closed_is_taken_for_gone() -> None:
    engine, _ = engine_of()

    async def submitting() -> Generation:
        return asked(engine, [5] * 8, greedy(50))

    thread = threading.Thread(target=lambda: asyncio.run(submitting()))
    thread.start()
    thread.join()
    engine.turn()
    engine.turn()
    assert engine.stats().finished == {"cancelled": 1}
    assert_all_back(engine)
    assert Mailbox().send() == []


async def test_platform_prefixes_are_shared_by_tenants() -> None:
    engine, _ = engine_of(platform=((3,) * 8,))
    for tenant, cached in (("acme", 0), ("globex", 8)):
        generation = asked(engine, [3] * 8 + [6] * 3, tenant=tenant)
        turned(engine)
        assert list((await whole(generation)).tokens) == answer([3] * 8 + [6] * 3, 8)
        assert generation.cached_tokens == cached
    assert engine.stats().pool.pinned == 2


async def test_routers_are_told_which_blocks_there_are() -> None:
    engine, _ = engine_of()
    asked(engine, [5] * 9)
    turned(engine)
    stored = engine.events.since(0)
    assert stored is not None
    assert [len(event.hashes) for event in stored if isinstance(event, BlocksStored)] == [2, 1, 1]


async def test_the_figures_add_up() -> None:
    engine, runner = engine_of(limits=Limits(step_tokens=6))
    asked(engine, [5] * 9, greedy(4))
    turned(engine)
    stats = engine.stats()
    assert (stats.steps, stats.computed_tokens, stats.generated_tokens) == (5, 12, 4)
    assert stats.finished == {"length": 1}
    assert (stats.block_size, stats.block_bytes) == (SIZE, SIZE * 2 * 4)
    assert stats.kv_bytes == 64 * stats.block_bytes == runner.memory.nbytes


# With its thread.


async def test_the_thread_answers_and_closes() -> None:
    engine, _ = engine_of()
    engine.start()
    prompts = [[5 + number] * 9 for number in range(6)]
    found = await asyncio.gather(*(whole(asked(engine, prompt)) for prompt in prompts))
    assert [list(each.tokens) for each in found] == [answer(prompt, 8) for prompt in prompts]
    await engine.close()
    await engine.close()
    assert_all_back(engine)


async def test_closing_lets_running_requests_end_and_takes_no_more() -> None:
    engine, _ = engine_of()
    generation = asked(engine, [5] * 9, greedy(40))
    engine.start()
    closing = asyncio.create_task(engine.close(60.0))
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as refused:
        asked(engine, [5])
    assert (refused.value.status, refused.value.code) == (503, "draining")
    assert (await whole(generation)).finish == "length"
    await closing


async def test_closing_ends_what_does_not_end_in_time() -> None:
    engine, _ = engine_of(400, context=2000)
    generations = [asked(engine, [5 + number] * 9, greedy(1500)) for number in range(3)]
    engine.start()
    await anext(generations[0])
    await engine.close()
    assert [(await whole(each)).finish for each in generations] == ["cancelled"] * 3
    assert_all_back(engine)


async def test_an_engine_that_never_started_closes_too() -> None:
    engine, _ = engine_of()
    generation = asked(engine, [5] * 9)
    await engine.close()
    assert (await whole(generation)).finish == "cancelled"


async def test_thousands_of_tiny_requests_come_to_their_end() -> None:
    engine, _ = engine_of(200, limits=Limits(max_waiting=4000, max_waiting_per_tenant=4000))
    engine.start()
    generations = [asked(engine, [5, number % 30], greedy(1)) for number in range(2000)]
    found = await asyncio.gather(*map(whole, generations))
    assert {each.finish for each in found} == {"length"}
    await engine.close()
    assert_all_back(engine)
