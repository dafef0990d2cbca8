"""What the routing bench stands on: its trace, its replicas, the peer's rule."""

from __future__ import annotations

from itertools import pairwise

from bench.fleet_sim import Engine, Oracle, Outcome, Replica, Router, Simulation, Trivet
from bench.fleet_trace import Shape, Span, Turn, best_share, trace
from bench.peers.sglang_policy import BALANCE_ABS, CacheAware

SHAPE = Shape(conversations=60, tenants=5, rate=2.0)


def turn(number: int = 0, *spans: tuple[str, int]) -> Turn:
    return Turn(0.0, number, 0, tuple(Span(*one) for one in spans), 10)


def ran(make: type[Oracle] | None = None, replicas: int = 4) -> Outcome:
    simulation = Simulation(Engine(), replicas)
    router: Router = Oracle(simulation) if make else Trivet(simulation, "affinity")
    return simulation.run(trace(SHAPE), router)


def test_a_trace_is_the_same_for_the_same_seed_and_in_time() -> None:
    turns = trace(SHAPE)
    assert turns == trace(SHAPE)
    assert all(one.at <= other.at for one, other in pairwise(turns))
    assert len({one.conversation for one in turns}) == SHAPE.conversations


def test_blocks_are_shared_as_far_as_prompts_are_the_same() -> None:
    one = turn(0, ("system", 100), ("a", 100)).blocks(16)
    other = turn(1, ("system", 100), ("b", 100)).blocks(16)
    shared = [a == b for a, b in zip(one, other, strict=True)]
    assert shared == [True] * 6 + [False] * 6
    assert turn(0, ("system", 100), ("a", 100), ("c", 50)).blocks(16)[: len(one)] == one


def test_steps_are_what_the_router_would_see() -> None:
    asked = turn(0, ("system", 600), ("a", 100))
    assert asked.steps().tokens == (256, 512)
    assert asked.steps().total == 700


def test_a_replica_keeps_the_newest_and_the_beginnings() -> None:
    one = Replica(Engine(blocks=10, block=16))
    first = turn(0, ("a", 160)).blocks(16)
    one.keep(first)
    one.keep(turn(1, ("b", 64)).blocks(16))
    assert len(one.cache) == 10
    assert one.cached(first, 160) == 6 * 16


def test_no_policy_has_more_than_one_cache_without_end() -> None:
    best = best_share(trace(SHAPE), Engine().block)
    assert 0.5 < ran().share <= best
    assert ran(Oracle).share <= best


def test_affinity_is_near_the_oracle() -> None:
    assert ran().share >= 0.95 * ran(Oracle).share


def test_all_that_began_has_ended() -> None:
    simulation = Simulation(Engine(), 4)
    outcome = simulation.run(trace(SHAPE), Trivet(simulation, "round-robin"))
    assert [one.running for one in simulation.replicas] == [0] * 4
    assert max(abs(one.waiting) for one in simulation.replicas) < 1e-6
    assert sum(outcome.computed) == outcome.total - outcome.cached


class TestCacheAware:
    def test_a_match_of_more_than_the_threshold_is_followed(self) -> None:
        policy = CacheAware(4, lambda: 0.0)
        asked = turn(0, ("system", 2560))
        worker = policy.choose(asked)
        assert {policy.choose(asked) for _ in range(10)} == {worker}

    def test_without_a_match_the_smallest_tree_is_asked(self) -> None:
        policy = CacheAware(3, lambda: 0.0)
        found = [policy.choose(turn(at, (f"s{at}", 2560))) for at in range(6)]
        assert sorted(found) == [0, 0, 1, 1, 2, 2]

    def test_where_loads_are_far_apart_the_least_loaded_is_asked(self) -> None:
        policy = CacheAware(2, lambda: 0.0)
        asked = turn(0, ("system", 2560))
        found = [policy.choose(asked) for _ in range(BALANCE_ABS + 2)]
        assert set(found[:-1]) == {found[0]}
        assert found[-1] != found[0]
