from __future__ import annotations

from typing import Any

import pytest
from console_parts import Telling, asked, done

from trivet.errors import RequestError
from trivet.messages import Usage
from trivet.middleware.console.history import Span
from trivet.middleware.console.views.overview import (
    KINDS,
    failures_of,
    flush_of,
    over,
    seconds_of,
    show,
    totals,
)
from trivet.middleware.observe.figures import AT, NAMES, row_of
from trivet.middleware.observe.metrics import PrometheusObserver


def counted(*requests: Any) -> list[float]:
    metrics = PrometheusObserver()
    for request in requests:
        metrics(request)
    return row_of(metrics)


def miss(**given: Any) -> Any:
    return done(outcome="miss", tier=None, total_s=0.25, upstream_s=0.2, **given)


def test_each_request_is_in_one_kind() -> None:
    named = [name for names in KINDS.values() for name in names]
    assert len(named) == len(set(named))
    known = {name for name in NAMES if name.startswith("requests:")}
    assert known - set(named) == {"requests:prefix:hit", "requests:none:hit"}


def test_the_hit_rate_is_of_what_a_cache_may_answer() -> None:
    told = totals(counted(done(), done(), miss(), done(outcome="bypass", tier=None)))
    assert told["hit_rate"] == pytest.approx(2 / 3)
    assert (told["requests"], told["kinds"]["bypass"]) == (4, 1)


def test_without_requests_nothing_is_made_up() -> None:
    told = totals(counted())
    assert told["hit_rate"] is None
    assert told["seconds"] == {"was": 0, "without": None, "saved": None, "mean_call": None}
    assert told["latency"]["hit"] == {
        "count": 0,
        "mean": None,
        "p50": None,
        "p95": None,
        "p99": None,
    }


def test_a_hit_saved_the_mean_call_of_the_same_time() -> None:
    told = seconds_of(counted(done(), done(), miss()))
    assert told["mean_call"] == pytest.approx(0.2)
    assert told["saved"] == pytest.approx(0.4)
    assert told["was"] == pytest.approx(0.2 + 0.05 + 2 * 0.0002)
    assert told["without"] == pytest.approx(0.4 + 0.2 + 0.05 + 2 * 0.0002)


def test_what_is_spent_and_saved_is_what_the_books_say() -> None:
    row = [0.0] * len(NAMES)
    row[AT["money:spent"]], row[AT["money:saved-exact"]] = 2.0, 3.0
    row[AT["money:audit"]] = 0.5
    told = totals(row)["money"]
    assert (told["net-saved"], told["without-caches"]) == (2.5, 5.0)


def test_saved_tokens_are_those_of_the_answers() -> None:
    told = totals(counted(done(usage=Usage(7, 3))))
    assert told["saved_tokens"] == {"input": 7, "output": 3}


def test_a_span_has_a_value_for_each_bucket() -> None:
    nothing = [0.0] * len(NAMES)
    told = over(Span(100, 10, [nothing, counted(done(), miss())]))
    assert (told["first"], told["width"]) == (100, 10)
    assert told["requests"]["exact"] == [0, 1]
    assert told["hit_rate"] == [None, 0.5]
    assert told["own_p95"][0] is None
    assert 0 < told["upstream_p95"][1] <= 0.25


def test_a_quantile_beyond_the_last_bucket_is_told_as_its_bound() -> None:
    told = totals(counted(done(total_s=99.0)))
    assert told["latency"]["hit"]["p99"] == 5.0


def guard(**given: Any) -> dict[str, Any]:
    usual = {"share": 0.8, "baseline": 0.8, "load": 5.0, "flooded": False, "in_flight": 1}
    return {**usual, "waiting": 0, "shed": 2, "max_calls": None, "baseline_known": True, **given}


def test_of_several_processes_the_worst_load_is_told() -> None:
    told = flush_of([guard(), guard(baseline=0.9, load=10.0, share=0.2, flooded=True)])
    assert told is not None
    assert (told["load"], told["share"], told["flooded"]) == (10.0, 0.2, True)
    assert (told["in_flight"], told["shed"]) == (2, 4)
    assert flush_of([]) is None


def test_what_fails_most_is_told_first() -> None:
    one = {"of": 9, "rows": [["openai", "timeout", 2], ["azure", "refused", 3]]}
    told = failures_of([one, {"of": 5, "rows": [["openai", "timeout", 4]]}])
    assert told == {"of": 14, "rows": [["openai", "timeout", 6], ["azure", "refused", 3]]}


async def test_the_page_is_whole_without_a_request() -> None:
    told = await show(asked(Telling()))
    assert told["range"] == "15m"
    assert told["state"]["components"][0]["name"] == "server"
    assert told["flush"] is None


async def test_an_unknown_range_is_refused() -> None:
    with pytest.raises(RequestError, match="one of 15m, 1h, 6h, 24h"):
        await show(asked(Telling(), range="1y"))
