from __future__ import annotations

from collections import Counter

import pytest
from fleet_builders import replicas, steps
from hypothesis import given
from hypothesis import strategies as st

from trivet.prefix.routing.choose import ReplicaState, RoutingPolicy, choose

LONG = "All of this stands in front of every question. " * 200
PROMPT = steps(LONG)
TOLD = PROMPT.tokens[-1]


class TestAffinity:
    def test_the_replica_that_holds_the_longest_prefix_is_asked(self) -> None:
        choice = choose("affinity", replicas(8), PROMPT, {2: TOLD // 2, 5: TOLD}, 0)
        assert choice == (5, "known", TOLD)

    def test_a_prefix_is_not_worth_a_longer_queue_than_itself(self) -> None:
        states = replicas(8, waiting={5: 10.0 * TOLD})
        assert choose("affinity", states, PROMPT, {5: TOLD}, 0).replica != 5

    def test_a_short_queue_is_worth_a_prefix(self) -> None:
        states = replicas(8, waiting={5: 0.5 * TOLD})
        assert choose("affinity", states, PROMPT, {5: TOLD}, 0).replica == 5

    def test_an_overloaded_replica_loses_its_affinity_and_the_others_keep_theirs(self) -> None:
        load = dict.fromkeys(range(8), 2.0) | {5: 60.0}
        states = replicas(8, load=load)
        assert choose("affinity", states, PROMPT, {5: TOLD, 2: TOLD}, 0).replica == 2
        assert choose("affinity", states, PROMPT, {3: TOLD}, 0) == (3, "known", TOLD)

    def test_a_replica_that_does_not_have_what_it_was_sent_is_believed_less(self) -> None:
        states = replicas(2, trust={0: 0.05})
        assert choose("affinity", states, PROMPT, {0: TOLD, 1: TOLD // 2}, 0).replica == 1

    def test_an_unknown_prompt_goes_to_its_home_whatever_the_turn(self) -> None:
        found = {choose("affinity", replicas(64), PROMPT, {}, turn) for turn in range(50)}
        assert len(found) == 1
        assert found.pop().reason == "home"

    def test_a_later_turn_that_nobody_here_knows_goes_where_its_first_went(self) -> None:
        first = choose("affinity", replicas(64), steps("Hello " * 100), {}, 0)
        later = steps("Hello " * 100, "Hi.", "How are you?")
        assert choose("affinity", replicas(64), later, {}, 7).replica == first.replica

    def test_homes_are_spread_evenly(self) -> None:
        homes = Counter(
            choose("affinity", replicas(8), steps(f"Question {at}"), {}, 0).replica
            for at in range(2000)
        )
        assert len(homes) == 8
        assert max(homes.values()) < 1.3 * 250

    def test_a_replica_that_goes_moves_only_its_own_conversations(self) -> None:
        asked = [steps(f"Question {at}") for at in range(300)]
        before = [choose("affinity", replicas(8), one, {}, 0).replica for one in asked]
        without = replicas(8, up={3: False})
        after = [choose("affinity", without, one, {}, 0).replica for one in asked]
        moved = [old for old, new in zip(before, after, strict=True) if old != new]
        assert set(moved) == {3}
        assert 3 not in after

    def test_proxies_that_name_the_replicas_in_another_order_choose_alike(self) -> None:
        states = replicas(16)
        for at in range(50):
            asked = steps(f"Question {at}")
            one = choose("affinity", states, asked, {}, 0)
            assert choose("affinity", states[::-1], asked, {}, 1).replica == one.replica

    def test_slow_start_lets_a_replica_take_a_part_of_its_load(self) -> None:
        states = replicas(2, load={0: 2.0, 1: 2.0}, weight={1: 0.1})
        found = Counter(
            choose("affinity", states, steps(f"Question {at}"), {}, 0).replica for at in range(200)
        )
        assert found[0] == 200


class TestOthers:
    def test_round_robin_takes_turns(self) -> None:
        found = [
            choose("round-robin", replicas(3), PROMPT, {0: TOLD}, at).replica for at in (0, 1, 2, 3)
        ]
        assert found == [0, 1, 2, 0]

    def test_least_load_asks_who_has_least_to_do(self) -> None:
        states = replicas(3, load={0: 2.0, 1: 1.0, 2: 2.0})
        assert choose("least-load", states, PROMPT, {0: TOLD}, 0).replica == 1

    def test_least_load_counts_a_slow_start(self) -> None:
        states = replicas(2, load={0: 3.0}, weight={1: 0.1})
        assert choose("least-load", states, PROMPT, {}, 0).replica == 0

    @pytest.mark.parametrize("policy", ["affinity", "least-load", "round-robin"])
    def test_who_is_down_is_not_asked(self, policy: RoutingPolicy) -> None:
        states = replicas(4, up={0: False, 1: False, 3: False})
        found = {choose(policy, states, PROMPT, {0: TOLD}, turn).replica for turn in range(8)}
        assert found == {2}

    @pytest.mark.parametrize("policy", ["affinity", "least-load", "round-robin"])
    def test_where_all_are_down_one_is_asked(self, policy: RoutingPolicy) -> None:
        states = replicas(2, up={0: False, 1: False})
        assert choose(policy, states, PROMPT, {}, 0).replica in (0, 1)

    def test_without_a_prompt_load_decides(self) -> None:
        states = replicas(2, load={0: 5.0})
        assert choose("affinity", states, None, {}, 0) == (1, "load", 0)


@given(
    st.lists(
        st.builds(
            ReplicaState,
            st.integers(0, 100),
            st.integers(0, 2**64 - 1),
            st.booleans(),
            st.floats(0.1, 1),
            st.floats(0, 1000),
            st.floats(0, 1e7),
            st.floats(0, 1),
        ),
        min_size=1,
        max_size=20,
        unique_by=lambda one: one.replica,
    ),
    st.dictionaries(st.integers(0, 100), st.integers(0, 3000)),
    st.sampled_from(["affinity", "least-load", "round-robin"]),
)
def test_someone_who_is_there_is_always_chosen(
    states: list[ReplicaState], known: dict[int, int], policy: RoutingPolicy
) -> None:
    choice = choose(policy, states, PROMPT, known, 5)
    alive = [one.replica for one in states if one.up] or [one.replica for one in states]
    assert choice.replica in alive
