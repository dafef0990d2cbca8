"""The last lookups of a tenant: what is kept of them, for how long, and how much at most."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic_parts import call_of, policy

from trivet.middleware.call import Call
from trivet.middleware.semantic_tier.hit_log import LONGEST, ROWS, HitLog, Row
from trivet.policies.intents import Intent
from trivet.semantic.decide import Decision, Kind
from trivet.semantic.tier import Asking, Looked
from trivet.semantic.types import Intention, Neighbour, Partition, Record
from trivet.telemetry import SemanticLookup

EVER = float("inf")


def record(tenant: str) -> Record:
    named = (Partition(b"p" * 32), b"k" * 32, "stored", b"", Intent.INFORMATIONAL)
    return Record("ab" * 16, tenant, *named, 0.0, 9e9)


def asked(
    text: str = "q", tenant: str = "t1", kind: str = "hit", *, kept: bool = True, score: float = 0.9
) -> tuple[Call, SemanticLookup]:
    """A lookup that ended, and its event."""
    call = call_of("anything", owner=policy(tenant, mode="replace", store_text=kept))
    near = Neighbour(record(tenant), 0.95)
    made: Kind = "shadow" if kind == "shadow" else "hit" if kind == "hit" else "miss"
    asking = Asking(tenant, call.policy.semantic, text, b"r" * 32, "who")
    intention = Intention(Intent.INFORMATIONAL, True)
    decision = Decision(made, "", near, score, 0.8)
    call.looked = Looked(decision, asking, None, None, intention)
    return call, SemanticLookup(tenant, kind, "why", "informational", 0.0, "chat", "m1")


def noted(log: HitLog, *given: Any, **more: Any) -> None:
    log.noted(*asked(*given, **more))


def only(log: HitLog, kind: Any = "hits", tenant: str = "t1") -> Row:
    (row,) = log.before(tenant, kind, EVER, 9)
    return row


def test_a_hit_is_kept_with_what_was_asked_and_its_numbers() -> None:
    log = HitLog(clock=lambda: 5.0)
    noted(log, "how high is it")
    row = only(log)
    assert (row.at, row.text, row.record) == (5.0, "how high is it", "ab" * 16)
    assert (row.cosine, row.score, row.threshold) == (0.95, 0.9, 0.8)


def test_no_text_is_kept_where_the_policy_does_not_say_so() -> None:
    log = HitLog()
    noted(log, "how high is it", kept=False)
    assert only(log).text is None


def test_a_shadow_is_a_hit_only_where_it_would_have_served() -> None:
    log = HitLog()
    noted(log, kind="shadow", score=0.5)
    assert log.before("t1", "hits", EVER, 9) == []
    noted(log, kind="shadow", score=0.9)
    assert only(log).told == "shadow"


def test_what_the_gate_refused_is_kept_apart() -> None:
    log = HitLog()
    noted(log, "cancel it", kind="bypass")
    assert only(log, "refused").text == "cancel it"
    assert log.count("t1") == {"hits": 0, "refused": 1}


def test_a_miss_is_not_kept() -> None:
    log = HitLog()
    noted(log, kind="miss")
    assert log.count("t1") == {"hits": 0, "refused": 0}


def test_no_row_is_found_by_another_tenant() -> None:
    log = HitLog()
    noted(log)
    row = only(log)
    assert log.find("t1", row.id) is row
    assert log.find("t2", row.id) is None
    assert log.before("t2", "hits", EVER, 9) == []


def test_rows_come_newest_first_and_by_time() -> None:
    now = iter(range(100))
    log = HitLog(clock=lambda: float(next(now)))
    for number in range(5):
        noted(log, f"q{number}")
    assert [row.text for row in log.before("t1", "hits", EVER, 2)] == ["q4", "q3"]
    assert [row.text for row in log.before("t1", "hits", 3.0, 9)] == ["q2", "q1", "q0"]


def test_the_newest_hit_of_a_pair_learns_its_draw() -> None:
    log = HitLog()
    for text in ("one", "two", "one"):
        noted(log, text)
    log.drawn("t1", "ab" * 16, "one", "the draw")
    assert [row.draw for row in log.before("t1", "hits", EVER, 9)] == ["the draw", "", ""]
    log.drawn("t2", "ab" * 16, "two", "foreign")
    assert [row.draw for row in log.before("t1", "hits", EVER, 9)] == ["the draw", "", ""]


def test_a_purged_tenant_leaves_nothing() -> None:
    log = HitLog()
    noted(log)
    noted(log, tenant="t2")
    log.forget("t1")
    assert log.before("t1", "hits", EVER, 9) == []
    log.forget("t2")
    assert log.size == 0


def test_texts_go_once_the_policy_says_so_and_rows_stay() -> None:
    log = HitLog()
    noted(log, "how high is it")
    before = log.size
    log.forget_texts("t1")
    assert only(log).text is None
    assert log.size == before - 2 * len("how high is it")


@pytest.mark.parametrize("kind", ["hit", "bypass"])
def test_rows_of_a_tenant_are_bounded(kind: str) -> None:
    log = HitLog()
    for number in range(ROWS + 10):
        noted(log, "x" * (LONGEST + number), kind=kind)
    assert sum(log.count("t1").values()) == ROWS
    assert log.size <= ROWS * (700 + 2 * LONGEST)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3_000)), max_size=60))
def test_bytes_over_all_tenants_are_bounded_and_counted(events: list[tuple[str, int]]) -> None:
    log = HitLog(most=20_000)
    for tenant, size in events:
        noted(log, "x" * size, tenant)
        left = [row.size for one in "abcdef" for row in log.before(one, "hits", EVER, 999)]
        assert log.size == sum(left)
        assert log.size <= 20_000 or len({one for one, _ in events}) == 1 or len(left) < len(events)
