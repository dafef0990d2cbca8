from typing import Any

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.metric_names import METRICS
from trivet.middleware.observe import books as module
from trivet.middleware.observe.books import Books, statement
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.observe.series import OTHER, Names, Series
from trivet.prefix.markers.money import Post, book_call
from trivet.telemetry import ModelCall, SemanticLookup

PRICING = Pricing()
PRICING.wait()
MODEL = "claude-sonnet-4-5"
"""Its prices double beyond 200,000 tokens."""
Sums = dict[tuple[str, ...], float]


class Ledger:
    def __init__(self, pricing: Pricing = PRICING) -> None:
        self.series = {metric.name: Series(metric) for metric in METRICS}
        self.books = Books(self.series, Names(10), pricing)

    def sums(self, name: str = "trivet_money_usd_total") -> Sums:
        self.books.settle()
        return {labels: cell[0] for labels, cell in self.series[name].cells.items()}

    def statement(self) -> dict[str, Any]:
        self.books.settle()
        return statement(
            {
                name: [[list(labels), cell[0]] for labels, cell in one.cells.items()]
                for name, one in self.series.items()
            }
        )


def call(usage: Usage | None, **changes: Any) -> ModelCall:
    return ModelCall("acme", "chat", "messages", MODEL, "anthropic", usage)._replace(**changes)


def posts(sums: Sums) -> dict[str, float]:
    return {labels[-1]: amount for labels, amount in sums.items()}


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    total = draw(st.integers(0, 400_000))
    read = draw(st.integers(0, total))
    write = draw(st.integers(0, total - read))
    return Usage(total, draw(st.integers(0, 9_000)), read, write, draw(st.integers(0, write)))


def test_a_call_is_booked_under_its_tenant_route_and_model() -> None:
    ledger = Ledger()
    ledger.books.call(call(Usage(1_000_0, 100, 6_000, 3_000, 1_000)))
    named = ("acme", "chat", MODEL)
    spent = (1_000 * 3 + 6_000 * 0.3 + 2_000 * 3.75 + 1_000 * 6 + 100 * 15) / 1e6
    assert ledger.sums() == {
        (*named, "spent"): pytest.approx(spent),
        (*named, "saved-prefix"): pytest.approx(6_000 * 2.7e-6),
        (*named, "prefix-writes"): pytest.approx((2_000 * 0.75 + 1_000 * 3) / 1e6),
    }
    assert ledger.sums("trivet_model_tokens_total") == {
        (*named, "request", "input"): 10_000,
        (*named, "request", "output"): 100,
        (*named, "request", "cache_read"): 6_000,
        (*named, "request", "cache_write"): 3_000,
        (*named, "request", "cache_write_long"): 1_000,
    }


@given(st.lists(usages(), max_size=8))
def test_calls_that_are_summed_up_cost_what_each_of_them_costs(made: list[Usage]) -> None:
    """Also where some prompts are beyond the length from which a token costs twice as much."""
    ledger = Ledger()
    expected: dict[Post, float] = {}
    for usage in made:
        ledger.books.call(call(usage))
        prices = PRICING.prices(MODEL, "anthropic", usage, usage.input_tokens)
        assert prices is not None
        for post, amount in book_call("request", usage, prices).items():
            expected[post] = expected.get(post, 0.0) + amount
    found = {post: amount for post, amount in posts(ledger.sums()).items() if amount}
    wanted = {post: amount for post, amount in expected.items() if amount}
    assert found == pytest.approx(wanted)


def test_no_price_depends_on_the_length_of_a_prompt_that_is_summed_up() -> None:
    starts = {
        tier.start
        for provider in genai_prices.data_snapshot.get_snapshot().providers
        for model in provider.models
        for given in (model.prices if isinstance(model.prices, list) else [model.prices])
        for value in vars(getattr(given, "prices", given)).values()
        for tier in getattr(value, "tiers", ())
    }
    assert starts
    assert min(starts) >= module._FLAT


@pytest.mark.parametrize("purpose", ["audit", "judge", "keep-warm", "warm"])
def test_what_a_cache_asks_for_its_own_ends_is_its_cost_and_saves_nothing(purpose: str) -> None:
    ledger = Ledger()
    ledger.books.call(call(Usage(1_000, 100, 500), purpose=purpose))
    assert posts(ledger.sums()).keys() == {purpose}
    total = ledger.statement()["total"]
    assert total["net-saved"] == -total[purpose]
    assert total["without-caches"] == 0
    assert {labels[3] for labels in ledger.sums("trivet_model_tokens_total")} == {purpose}


def test_a_lookup_costs_what_the_policy_says_also_where_it_ends_in_a_hit() -> None:
    """K6: saved is the hit's stored cost, and the lookup's cost stands against it."""
    ledger = Ledger()
    ledger.books.saved(("acme", "chat", MODEL), "semantic", 0.01, 2)
    for kind in ("hit", "hit", "miss", "shadow", "bypass"):
        ledger.books.lookup(SemanticLookup("acme", kind, "", "", 0.01, "chat", MODEL, 0.0002))
    assert posts(ledger.sums()) == pytest.approx({"saved-semantic": 0.02, "lookup": 0.0008})
    assert ledger.statement()["total"]["net-saved"] == pytest.approx(0.0192)


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (call(None), "usage"),
        (call(Usage(10, 0, 20)), "usage"),
        (call(Usage(10, 1), model="mine"), "price"),
    ],
)
def test_a_call_that_cannot_be_priced_is_counted_apart(event: ModelCall, what: str) -> None:
    ledger = Ledger()
    ledger.books.call(event)
    assert ledger.sums() == {}
    assert posts(ledger.sums("trivet_unpriced_calls_total")) == {what: 1}
    assert ledger.statement()["unpriced_calls"] == 1


def test_calls_wait_for_the_price_list() -> None:
    class Late(Pricing):
        ready = False

        @property
        def loading(self) -> bool:
            return not self.ready

        def start(self) -> None: ...

        def prices(self, *about: Any) -> Any:
            return PRICING.prices(*about) if self.ready else None

    late = Late()
    ledger = Ledger(late)
    ledger.books.call(call(Usage(1_000, 0)))
    assert ledger.sums() == {}
    late.ready = True
    assert posts(ledger.sums()) == {"spent": pytest.approx(0.003)}


def test_names_are_bounded_and_no_sentence_becomes_one() -> None:
    ledger = Ledger()
    for number in range(500):
        ledger.books.call(call(Usage(10, 1), route=f"r{number}", model=f"m{number}"))
    ledger.books.call(call(Usage(10, 1), route="a route with spaces"))
    found = {labels[1:3] for labels in ledger.sums("trivet_model_tokens_total")}
    assert (OTHER, OTHER) in found
    assert len({route for route, _ in found}) == 201
    assert not any(" " in name for pair in found for name in pair)


def test_the_statement_adds_up_by_tenant_route_and_model() -> None:
    ledger = Ledger()
    for tenant, route in (("a", "x"), ("a", "y"), ("b", "y")):
        ledger.books.call(call(Usage(1_000_0, 0), tenant=tenant, route=route))
    told = ledger.statement()
    assert told["total"]["spent"] == pytest.approx(0.09)
    assert {name: one["spent"] for name, one in told["tenants"].items()} == {
        "a": pytest.approx(0.06),
        "b": pytest.approx(0.03),
    }
    assert told["routes"]["y"]["spent"] == pytest.approx(0.06)
    assert told["models"].keys() == {MODEL}
