"""What is kept of each route for the console: bounded, of its own tenant, and gone when told so."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.prefix_tier.route_log import BREAKS, RouteLog
from trivet.middleware.prefix_tier.shapes import Examined, Shape
from trivet.prefix.doctor.live import Finding
from trivet.prefix.doctor.quotes import Quote
from trivet.prefix.prompts.outline import Level
from trivet.telemetry import HeadRefused, PrefixUse

SHAPE = Shape((), "m", "anthropic", 0, 0, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def use(tokens: int, cached: int, tenant: str = "t1", route: str = "r") -> PrefixUse:
    return PrefixUse(tenant, route, tokens, cached, False)


def broken(tenant: str = "t1", text: str = "", route: str = "r") -> Examined:
    quote = Quote(text, text, 0) if text else None
    named = (Level.SYSTEM, ("system",), 3, "uuid", "a uuid", "leave it out")
    found = Finding(tenant, route, *named, 5, 7, True, quote=quote)
    return Examined(tenant, route, SHAPE, found, bool(text))


def buckets(log: RouteLog, width: str = "30") -> list[list[int]]:
    told = log.route("t1", "r")
    assert told is not None
    found: list[list[int]] = told["buckets"][width]
    return found


def test_calls_are_summed_by_time() -> None:
    clock = Clock()
    log = RouteLog(clock=clock)
    for cached in (10, 0):
        log(use(100, cached))
    clock.now += 60
    log(use(50, 50))
    log(HeadRefused("malformed"))
    log(use(0, 0))
    start = 1_000_000 // 30 * 30
    assert buckets(log) == [[start, 2, 200, 10], [start + 60, 1, 50, 50]]
    assert buckets(log, "600") == [[1_000_000 // 600 * 600, 3, 250, 60]]


def test_a_clock_that_is_set_back_keeps_buckets_in_order() -> None:
    clock = Clock()
    log = RouteLog(clock=clock)
    log(use(1, 0))
    clock.now -= 3_000
    log(use(1, 0))
    assert [one[1] for one in buckets(log)] == [2]


def test_a_break_is_told_with_its_place_and_its_shape() -> None:
    log = RouteLog()
    log.examined(broken(text="the text"))
    told = log.route("t1", "r")
    assert told is not None
    (one,) = told["breaks"]
    assert (one["place"], one["cause"]) == ("system, character 3", "uuid")
    assert one["quote"] == ["the text", "the text"]
    assert told["seen"]["cache"] == "anthropic"


def test_no_route_is_told_to_another_tenant() -> None:
    log = RouteLog()
    log.examined(broken("t1", "mine"))
    assert log.route("t2", "r") is None
    log.examined(broken("t2"))
    told = log.route("t2", "r")
    assert told is not None
    assert "mine" not in repr(told)


def test_what_was_told_with_text_is_forgotten_once_the_policy_says_so() -> None:
    log = RouteLog()
    log.examined(broken("t1", "mine"))
    log.examined(broken("t2", "theirs"))
    log.examined(broken("t1"))
    log.forget_texts(["t2"])
    one, other = log.route("t1", "r"), log.route("t2", "r")
    assert one is not None
    assert other is not None
    assert [each["quote"] for each in one["breaks"]] == [None]
    assert len(other["breaks"]) == 1
    assert log.size == 2 * 2 * len("theirs")


def test_a_purged_tenant_leaves_nothing() -> None:
    log = RouteLog()
    log.examined(broken("t1", "mine"))
    log.forget("t1")
    assert log.route("t1", "r") is None
    assert log.size == 0


EVENTS = st.lists(
    st.tuples(st.sampled_from(["t1", "t2", "t3"]), st.sampled_from("abcd"), st.integers(0, 900)),
    max_size=80,
)


@given(EVENTS)
def test_memory_is_bounded_whatever_comes(events: list[tuple[str, str, int]]) -> None:
    log = RouteLog(most=5_000, routes=4)
    for tenant, route, size in events:
        log.examined(broken(tenant, "x" * size, route))
        log(use(10, 5, tenant, route))
        routes: list[dict[str, Any]] = log.routes()
        assert len(routes) <= 4
        assert all(one["breaks"] <= BREAKS for one in routes)
        assert log.size <= 5_000 or len(routes) == 1
