from __future__ import annotations

from trivet.prefix.routing.replica_health import (
    FAILURES,
    FIRST_S,
    LEAST_WEIGHT,
    LONGEST_S,
    SLOW_START_S,
    ReplicaHealth,
)


def ejected(now: float) -> ReplicaHealth:
    health = ReplicaHealth()
    assert health.failed(now, "gone", checked=True)
    return health


def test_a_new_replica_has_its_full_weight() -> None:
    health = ReplicaHealth()
    assert (health.up(0.0), health.weight(0.0)) == (True, 1.0)


def test_it_takes_several_failures_in_a_row_to_eject() -> None:
    health = ReplicaHealth()
    for _ in range(FAILURES - 1):
        assert not health.failed(10, "cut")
    health.answered()
    for _ in range(FAILURES - 1):
        assert not health.failed(10, "cut")
    assert health.up(10)
    assert health.failed(10, "cut")
    assert not health.up(10)
    assert health.reason == "cut"


def test_a_failed_check_ejects_at_once() -> None:
    assert not ejected(10).up(10)


def test_it_comes_back_little_by_little() -> None:
    health = ejected(10)
    back = 10 + FIRST_S
    assert health.up(back)
    assert health.weight(back) == LEAST_WEIGHT
    assert health.weight(back + SLOW_START_S / 2) == 0.5
    assert health.weight(back + SLOW_START_S) == 1.0


def test_who_fails_again_stays_away_for_longer_up_to_a_bound() -> None:
    health, now, pauses = ReplicaHealth(), 0.0, []
    for _ in range(10):
        health.failed(now, "gone", checked=True)
        pause = next(s for s in range(1, 100) if health.up(now + s))
        pauses.append(pause)
        now += pause
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == LONGEST_S


def test_one_failure_is_enough_in_slow_start() -> None:
    health = ejected(0)
    assert health.failed(FIRST_S + 1, "cut")
    assert not health.up(FIRST_S + 1)


def test_only_the_failure_that_ejects_says_so() -> None:
    health = ejected(0)
    assert not health.failed(0.1, "gone", checked=True)
