from __future__ import annotations

import pytest
from loop_builders import SIZE, request

from trivet.prefix.engine.scheduler import Limits, Plan, Scheduler
from trivet.prefix.engine.sequence import Sequence
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.shares import Share, Shares

TOKEN = 9


def scheduler_of(
    capacity: int = 64, *, shares: Shares | None = None, grid: int = 1, **limits: int
) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(capacity, SIZE, shares=shares)
    return Scheduler(pool, Limits(**limits), grid), pool


def added(scheduler: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        assert scheduler.add(sequence) == ""


def step(scheduler: Scheduler, now: float = 0.0) -> Plan:
    """Plan, compute, and draw a token for each sequence that comes to its end."""
    plan = scheduler.plan(now)
    sampled = [chunk for chunk in plan.chunks if chunk.sampled]
    for chunk in plan.chunks:
        scheduler.done(chunk)
    for chunk in sampled:
        sequence = chunk.sequence
        if sequence.generated + 1 >= sequence.params.max_tokens:
            scheduler.finish(sequence)
        else:
            scheduler.token(sequence, TOKEN)
    return plan


def sizes(plan: Plan) -> list[tuple[int, int]]:
    """Number and tokens of each chunk."""
    return [(chunk.sequence.number, chunk.stop - chunk.start) for chunk in plan.chunks]


def test_a_step_has_a_token_of_each_decode_and_prompts_within_the_budget() -> None:
    scheduler, _ = scheduler_of(step_tokens=10)
    added(scheduler, request(1, range(6), "a"), request(2, range(7), "b"))
    assert sizes(step(scheduler)) == [(1, 6), (2, 4)]
    assert sizes(step(scheduler)) == [(1, 1), (2, 3)]
    assert sizes(step(scheduler)) == [(1, 1), (2, 1)]


def test_the_turn_is_of_the_tenant_that_was_given_least() -> None:
    scheduler, _ = scheduler_of(step_tokens=8)
    added(scheduler, request(1, range(40), "long"), request(2, range(4), "short"))
    assert sizes(step(scheduler)) == [(1, 8)]
    added(scheduler, request(3, range(4), "other"))
    assert sizes(scheduler.plan(0.0)) == [(3, 4), (2, 4)]


def test_a_pause_earns_nothing() -> None:
    scheduler, _ = scheduler_of(step_tokens=8)
    added(scheduler, request(1, range(4), "back", most=1), request(2, range(100), "busy"))
    for _ in range(6):
        step(scheduler)
    added(scheduler, request(3, range(60), "back"))
    served = [sizes(step(scheduler))[0][0] for _ in range(4)]
    assert served.count(2) == 2


def test_a_tenants_requests_come_in_their_order() -> None:
    scheduler, _ = scheduler_of(step_tokens=100, max_running=2)
    added(scheduler, *(request(number, [number] * 9) for number in (1, 2, 3)))
    assert sizes(scheduler.plan(0.0)) == [(1, 9), (2, 9)]


def test_a_tenant_alone_takes_all_places_and_gives_one_back_at_once() -> None:
    scheduler, pool = scheduler_of(max_running=8)
    added(scheduler, *(request(number, [number], "a", most=99) for number in range(1, 9)))
    step(scheduler)
    assert [*scheduler.running] == [1, 2, 3, 4, 5, 6, 7, 8]
    added(scheduler, request(9, [9], "b", most=1))
    assert sizes(step(scheduler))[-1] == (9, 1)
    assert 8 not in scheduler.running
    pool.check_integrity()


def test_no_more_is_taken_back_than_was_lent() -> None:
    scheduler, _ = scheduler_of(max_running=8)
    added(scheduler, *(request(number, [number], "a", most=99) for number in range(1, 9)))
    step(scheduler)
    for number, tenant in enumerate("bcd", 9):
        added(scheduler, request(number, [number], tenant, most=99))
    step(scheduler)
    assert [*scheduler.running] == [1, 2, 3, 4, 5, 6, 9, 10]


def test_what_was_taken_back_is_lent_again_once_nobody_else_waits() -> None:
    scheduler, _ = scheduler_of(max_running=4)
    added(scheduler, *(request(number, [number], "a", most=99) for number in range(1, 5)))
    step(scheduler)
    added(scheduler, request(5, [5], "b", most=1))
    step(scheduler)
    assert [*scheduler.running] == [1, 2, 3]
    step(scheduler)
    assert [*scheduler.running] == [1, 2, 3, 4]


def test_on_a_grid_the_last_quarter_of_the_places_is_kept() -> None:
    scheduler, _ = scheduler_of(max_running=8, grid=SIZE)
    added(scheduler, *(request(number, [number], "a", most=99) for number in range(1, 9)))
    step(scheduler)
    assert [*scheduler.running] == [1, 2, 3, 4, 5, 6]
    added(scheduler, request(9, [9], "b", most=1))
    assert sizes(scheduler.plan(0.0))[-1] == (9, 1)


def test_the_kept_places_are_for_tenants_that_run_nothing() -> None:
    scheduler, _ = scheduler_of(max_running=4)
    added(scheduler, request(1, [1], "a"), request(2, [2], "a"), request(3, [3], "a"))
    added(scheduler, request(4, [4], "b"), request(5, [5], "b"))
    step(scheduler)
    assert [*scheduler.running] == [1, 4, 2]
    added(scheduler, request(6, [6], "c"), request(7, [7], "c"))
    step(scheduler)
    assert [*scheduler.running] == [1, 4, 2, 6]


@pytest.mark.parametrize(("places", "open_to_all"), [(1, 1), (2, 1), (4, 3), (7, 6), (32, 24)])
def test_the_last_quarter_of_the_places_is_kept(places: int, open_to_all: int) -> None:
    assert Limits(max_running=places).open_places == open_to_all


def test_a_tenant_has_only_so_many_running() -> None:
    scheduler, _ = scheduler_of(max_running_per_tenant=1)
    added(scheduler, request(1, [1], "a"), request(2, [2], "a"), request(3, [3], "b"))
    assert sizes(scheduler.plan(0.0)) == [(1, 1), (3, 1)]


def test_queues_are_bounded_by_tenant_and_in_all() -> None:
    scheduler, _ = scheduler_of(max_waiting=3, max_waiting_per_tenant=2)
    added(scheduler, request(1, [1], "a"), request(2, [1], "a"))
    assert scheduler.add(request(3, [1], "a")) == "tenant-queue-full"
    added(scheduler, request(4, [1], "b"))
    assert scheduler.add(request(5, [1], "c")) == "queue-full"


def test_a_prompt_that_no_wait_makes_fit_does_not_wait() -> None:
    scheduler, _ = scheduler_of(4)
    assert scheduler.add(request(1, range(17))) == "too-long"
    assert scheduler.idle


def test_an_answer_that_grows_beyond_the_pool_ends_with_length() -> None:
    scheduler, pool = scheduler_of(2)
    only = request(1, range(7), most=50)
    added(scheduler, only)
    plans = [step(scheduler) for _ in range(3)]
    assert plans[-1].ended == [(only, "length")]
    assert only.tokens == [*range(7), TOKEN, TOKEN]
    assert (scheduler.idle, pool.state().used) == (True, 0)


def test_a_shared_prefix_that_is_being_computed_is_waited_for() -> None:
    scheduler, pool = scheduler_of(step_tokens=8)
    first, second = request(1, [5] * 17), request(2, [5] * 17)
    added(scheduler, first, second, request(3, [6] * 4))
    assert sizes(step(scheduler)) == [(1, 8)]
    assert sizes(step(scheduler)) == [(1, 8)]
    # What is waited for is there; what does not wait was not kept back.
    assert sizes(step(scheduler)) == [(1, 1), (2, 1), (3, 4)]
    assert second.cached_tokens == 16
    assert pool.counters()["acme"].hits == 16


def test_what_waits_for_a_prefix_does_not_block_those_behind_it() -> None:
    scheduler, _ = scheduler_of(step_tokens=12)
    added(scheduler, request(1, [5] * 9), request(2, [5] * 9), request(3, [6] * 3))
    assert sizes(scheduler.plan(0.0)) == [(1, 9), (3, 3)]


def test_nobody_waits_behind_one_that_stopped() -> None:
    scheduler, _ = scheduler_of(step_tokens=4)
    first, second = request(1, [5] * 17), request(2, [5] * 17)
    added(scheduler, first, second)
    step(scheduler)
    assert second.awaits is None
    step(scheduler)
    scheduler.finish(first)
    assert sizes(step(scheduler)) == [(2, 4)]
    assert second.cached_tokens == 8


def test_who_may_not_reuse_waits_for_no_prefix() -> None:
    scheduler, _ = scheduler_of(step_tokens=100)
    second = request(2, [5] * 9)
    second.reuse = False
    added(scheduler, request(1, [5] * 9), second)
    assert sizes(scheduler.plan(0.0)) == [(1, 9), (2, 9)]


def test_a_deadline_ends_the_waiting_and_the_running() -> None:
    scheduler, pool = scheduler_of(max_running=1)
    running, waiting = request(1, [5] * 9), request(2, [6] * 9)
    running.deadline = waiting.deadline = 10.0
    added(scheduler, running, waiting)
    step(scheduler, 9.9)
    assert pool.state().used == 3
    plan = scheduler.plan(10.0)
    assert plan.ended == [(running, "deadline"), (waiting, "deadline")]
    assert (plan.chunks, pool.state().used, scheduler.idle) == ([], 0, True)


def test_what_is_cancelled_gives_its_blocks_back_at_once() -> None:
    scheduler, pool = scheduler_of()
    one = request(1, range(9))
    added(scheduler, one)
    plan = scheduler.plan(0.0)
    scheduler.finish(one)
    assert pool.state().used == 0
    scheduler.done(plan.chunks[0])
    pool.check_integrity()
    assert (pool.state().cached, scheduler.idle) == (0, True)


def test_the_youngest_of_the_tenant_that_holds_most_is_preempted() -> None:
    scheduler, pool = scheduler_of(6)
    old, young = request(1, [5] * 8, "big"), request(2, [6] * 8, "big")
    small = request(3, [7] * 8, "small")
    added(scheduler, old, young, small)
    step(scheduler)
    assert [*scheduler.running] == [1, 3]
    assert (young.preempted, young.table, young.tokens[-1]) == (True, None, TOKEN)
    assert young in scheduler.waiting
    assert pool.counters()["big"].preemptions == 1
    pool.check_integrity()


def test_a_preempted_sequence_goes_on_before_its_tenants_others_and_keeps_its_tokens() -> None:
    scheduler, pool = scheduler_of(6, max_running=3)
    first, second = request(1, [5] * 12, most=2), request(2, [6] * 12, most=9)
    third = request(3, [7] * 4)
    added(scheduler, first, second, third)
    step(scheduler)
    assert second.preempted
    step(scheduler)
    assert sizes(scheduler.plan(0.0))[0][0] == 2
    assert second.tokens == [*[6] * 12, TOKEN]
    assert (second.cached_tokens, pool.counters()["acme"].preempted_requests) == (0, 1)


def test_at_its_quota_a_tenant_preempts_its_own() -> None:
    shares = Shares({"small": Share(quota=4)})
    scheduler, _ = scheduler_of(10, shares=shares)
    big = request(1, [5] * 20, "big")
    old, young = request(2, [6] * 8, "small"), request(3, [7] * 8, "small")
    added(scheduler, big, old, young)
    step(scheduler)
    assert [*scheduler.running] == [1, 2]
    assert young.preempted


def test_a_large_request_is_passed_by_one_pool_of_tokens_and_then_waited_for() -> None:
    scheduler, _ = scheduler_of(8, step_tokens=100)
    large = request(1000, [5] * 30, "large", most=3)
    added(scheduler, request(0, [1] * 12, "small", most=5), large)
    passed = 0
    for number in range(1, 60):
        added(scheduler, request(number, [number] * 12, f"small-{number}", most=5))
        step(scheduler)
        if large.table is not None or large.generated:
            break
        passed = max([*scheduler.running])
    assert large.generated == 1
    assert passed * 12 <= 2 * 8 * SIZE


def test_a_large_request_comes_to_its_end_among_endless_small_ones() -> None:
    scheduler, pool = scheduler_of(8, step_tokens=100)
    large = request(1000, [5] * 24, "large", most=8)
    added(scheduler, large)
    for number in range(1, 400):
        added(scheduler, request(number, [number] * 7, f"small-{number % 3}", most=20))
        step(scheduler)
        pool.check_integrity()
        if large.number not in scheduler.running and large not in scheduler.waiting:
            break
    assert large.generated == 7
    assert large.preempted


def test_nobody_waits_behind_one_that_waits_for_its_own_tenant() -> None:
    scheduler, _ = scheduler_of(16, step_tokens=100)
    large = request(2, [6] * 60, "large")
    added(scheduler, request(1, [5] * 24, "large", most=99), large)
    for number in range(3, 22):
        added(scheduler, request(number, [number] * 8, "other", most=1))
        step(scheduler)
    # More than a pool of tokens has passed.
    assert [*scheduler.running] == [1]
    assert scheduler.waiting.all() == [large]


def test_a_quota_that_is_used_up_blocks_nobody_else() -> None:
    shares = Shares({"small": Share(quota=10)})
    scheduler, _ = scheduler_of(16, shares=shares, step_tokens=100)
    waiting = request(2, [6] * 24, "small")
    added(scheduler, request(1, [5] * 20, "small", most=20), waiting)
    for number in range(3, 22):
        added(scheduler, request(number, [number] * 8, "other", most=1))
        step(scheduler)
    # More than a pool of tokens has passed.
    assert [*scheduler.running] == [1]
    assert scheduler.waiting.all() == [waiting]


def test_on_a_grid_prompts_are_cut_at_it_and_answers_computed_one_by_one() -> None:
    scheduler, _ = scheduler_of(64, grid=SIZE, step_tokens=11)
    one = request(1, range(14))
    added(scheduler, one)
    spans = [[(c.start, c.stop) for c in step(scheduler).chunks] for _ in range(3)]
    assert spans == [[(0, 8)], [(8, 14)], [(14, 15)]]


def test_on_a_grid_only_whole_cells_of_prompts_are_shared() -> None:
    scheduler, pool = scheduler_of(64, grid=SIZE)
    added(scheduler, request(1, [5] * 10, most=9))
    while not scheduler.idle:
        step(scheduler)
    assert pool.state().cached == 2
    # 10 of the prompt, and 6 of the answer, filled two more.


def test_on_a_grid_nobody_waits_for_blocks_that_will_not_be_shared() -> None:
    scheduler, _ = scheduler_of(64, grid=SIZE)
    first = request(1, [5] * 9, most=20)
    added(scheduler, first)
    for _ in range(5):
        step(scheduler)
    scheduler._preempt(first)
    step(scheduler)
    added(scheduler, request(2, [*first.tokens, 3]))
    assert 2 in [number for number, _ in sizes(scheduler.plan(0.0))]


def test_a_step_in_which_nobody_decodes_may_take_more_of_prompts() -> None:
    scheduler, _ = scheduler_of(step_tokens=4, prefill_tokens=9)
    added(scheduler, request(1, range(6), "a"), request(2, range(20), "b"))
    assert sizes(step(scheduler)) == [(1, 6), (2, 3)]
    assert sizes(step(scheduler)) == [(1, 1), (2, 4)]
