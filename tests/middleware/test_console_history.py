from __future__ import annotations

import asyncio
from typing import Any

import pytest
from console_parts import Clock, Telling, done
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import StoreError
from trivet.middleware.console import history as module
from trivet.middleware.console.history import RANGES, History, kept, sample
from trivet.middleware.observe.figures import AT, NAMES, row_of
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.recent import Recent, RecentRequests

HITS = "requests:exact:hit"


def row(hits: float = 0.0) -> list[float]:
    made = [0.0] * len(NAMES)
    made[AT[HITS]] = hits
    return made


def hits(history: History, name: str = "15m") -> list[float]:
    return [bucket[AT[HITS]] for bucket in history.span(name).rows]


def test_what_grew_since_the_last_time_is_in_the_bucket_of_now() -> None:
    clock = Clock(1_000_000.0)
    history = History(clock)
    history.add(1, row(3))
    clock.at += 10
    history.add(1, row(8))
    assert hits(history)[-2:] == [3, 5]
    assert sum(hits(history)) == 8


def test_two_processes_are_summed() -> None:
    history = History(Clock())
    history.add(1, row(3))
    history.add(2, row(4))
    history.add(1, row(5))
    assert hits(history)[-1] == 9


def test_a_process_that_began_anew_under_the_same_number_loses_nothing() -> None:
    history = History(Clock())
    history.add(1, row(7))
    history.add(1, row(2))
    assert hits(history)[-1] == 9


@pytest.mark.parametrize("name", RANGES)
def test_a_span_ends_now_and_has_all_its_buckets(name: str) -> None:
    clock = Clock(1_234_567.0)
    history = History(clock)
    wanted, span = RANGES[name], history.span(name)
    assert len(span.rows) == wanted.buckets
    last = span.first + (wanted.buckets - 1) * wanted.width
    assert last <= clock.at < last + wanted.width


def test_what_is_older_than_a_range_is_in_the_longer_ones_only() -> None:
    clock = Clock()
    history = History(clock)
    history.add(1, row(5))
    clock.at += 2 * 3600
    assert [sum(hits(history, name)) for name in RANGES] == [0, 0, 5, 5]


def test_a_clock_that_was_set_back_keeps_the_buckets_in_order() -> None:
    clock = Clock()
    history = History(clock)
    history.add(1, row(5))
    clock.at -= 600
    history.add(1, row(9))
    clock.at += 600
    assert hits(history)[-1] == 9


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), max_size=60))
def test_nothing_is_lost_or_counted_twice(steps: list[tuple[int, int]]) -> None:
    clock = Clock()
    history = History(clock)
    total = 0
    for pause, grown in steps:
        clock.at += pause / 10
        total += grown
        history.add(1, row(total))
    assert all(sum(hits(history, name)) == total for name in RANGES)


def test_memory_is_bounded_whatever_comes() -> None:
    clock = Clock()
    history = History(clock)
    for number in range(1_000):
        clock.at += 997
        history.add(number, row(1))
    assert len(history._last) == 256
    assert sum(hits(history, "24h")) == 87


async def test_processes_are_asked_while_the_proxy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_S", 0.001)
    history = History()
    async with kept(history, Telling({"figures": [[1, row(2)]]})):
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            if sum(hits(history)):
                break
    assert sum(hits(history)) == 2


async def test_a_process_that_does_not_answer_is_asked_again() -> None:
    class Failing(Telling):
        async def tell(self, topic: str, asked: Any = None) -> list[Any]:
            raise StoreError("timeout")

    history = History()
    await sample(history, Failing())
    assert sum(hits(history)) == 0


def test_a_row_has_every_request_once() -> None:
    metrics = PrometheusObserver()
    metrics(done())
    metrics(done(outcome="miss", tier=None, upstream_s=0.2, total_s=0.3, status=502))
    found = row_of(metrics)
    assert found[AT[HITS]] == 1
    assert found[AT["requests:none:miss"]] == 1
    assert sum(found[AT[name]] for name in NAMES if name.startswith("requests:")) == 2
    assert found[AT["failed"]] == 1
    assert found[AT["saved-tokens:input"]] == 200
    assert sum(found[AT[f"upstream:{index}"]] for index in range(14)) == 1
    assert sum(found[AT[f"own-hit:{index}"]] for index in range(14)) == 1


def test_the_last_requests_are_kept_the_newest_first() -> None:
    recent = RecentRequests(kept=2)
    for name in ("a", "b", "c"):
        recent(done(model=name))
    assert [one.model for one in recent.newest(5)] == ["c", "b"]
    assert [one.model for one in recent.newest(1)] == ["c"]
    assert len(recent) == 2


def test_a_kept_request_has_what_its_caller_was_told() -> None:
    recent = RecentRequests()
    recent(done(upstream_s=0.1, total_s=0.3))
    (one,) = recent.newest(1)
    assert isinstance(one, Recent)
    assert (one.id, one.cache_status) == ("req_1", "trivet-exact; hit; ttl=9")
    assert (one.tenant, one.route, one.tier, one.input_tokens) == ("acme", "support", "exact", 200)
    assert one.own_s == pytest.approx(0.2)


def test_what_a_caller_chose_is_kept_only_so_far() -> None:
    recent = RecentRequests()
    recent(done(model="m" * 9_000, route="r" * 9_000, reply_headers=[], usage=None, tier=None))
    (one,) = recent.newest(1)
    assert (len(one.model), len(one.route), one.id, one.tier) == (128, 128, "", "")
    assert one.input_tokens is None


def test_a_purged_tenant_leaves_nothing_behind() -> None:
    recent = RecentRequests(kept=3)
    for tenant in ("acme", "globex", "acme"):
        recent(done(tenant=tenant))
    recent.forget("acme")
    assert [one.tenant for one in recent.newest(9)] == ["globex"]
    assert recent.newest(9, "acme") == []


def test_failures_are_counted_by_upstream_and_reason() -> None:
    recent = RecentRequests()
    recent(done())
    for _ in range(2):
        recent(done(status=502, outcome="error", reason="upstream-refused"))
    assert recent.failures() == {("openai", "upstream-refused"): 2}
