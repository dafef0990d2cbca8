import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.eval.economics import Step
from trivet.messages import Usage
from trivet.prefix.backends.usage import usage_of
from trivet.prefix.caches.base import Billed
from trivet.prefix.markers.money import (
    Post,
    Prices,
    Purpose,
    bill,
    book_call,
    book_hit,
    cost_of,
    net_saved,
    prefix_saving,
    prices_by_rules,
    without_caches,
)
from trivet.prefix.markers.rules import NOTHING, rules_for

SONNET = Prices(3e-6, 15e-6, 0.3e-6, 3.75e-6, 6e-6)
RULES = rules_for("anthropic", "claude-sonnet-4-5")


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    total = draw(st.integers(0, 1_000_000))
    read = draw(st.integers(0, total))
    write = draw(st.integers(0, total - read))
    return Usage(total, draw(st.integers(0, 50_000)), read, write, draw(st.integers(0, write)))


def test_openais_cached_tokens_lie_within_the_prompt() -> None:
    """K1: 17,903 prompt tokens, 17,817 of them cached: 86 cost the full price."""
    answer = {
        "usage": {
            "prompt_tokens": 17_903,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 17_817},
        }
    }
    usage = usage_of(answer)
    assert usage == Usage(17_903, 0, 17_817)
    cost = cost_of(usage, Prices(2.0, 8.0, 0.5, 2.0, 2.0))
    assert (cost.uncached, cost.read) == (86 * 2.0, 17_817 * 0.5)


def test_anthropics_three_sums_are_one_prompt() -> None:
    """K2: input 5, read 128,955, creation 1,253: 130,213 in all, each token priced once."""
    answer = {
        "usage": {
            "input_tokens": 5,
            "output_tokens": 0,
            "cache_read_input_tokens": 128_955,
            "cache_creation_input_tokens": 1_253,
        }
    }
    usage = usage_of(answer)
    assert usage == Usage(130_213, 0, 128_955, 1_253)
    cost = cost_of(usage, SONNET)
    assert cost.total == pytest.approx(5 * 3e-6 + 128_955 * 0.3e-6 + 1_253 * 3.75e-6)


def test_gemini_s_cached_tokens_are_charged_once() -> None:
    """K3: 262,960 tokens, 257,955 of them cached: misses * p + hits * p_read."""
    usage = usage_of(
        {"usageMetadata": {"promptTokenCount": 262_960, "cachedContentTokenCount": 257_955}}
    )
    assert usage == Usage(262_960, 0, 257_955)
    prices = Prices(1.0, 8.0, 0.1, 1.0, 1.0)
    assert cost_of(usage, prices).total == pytest.approx(5_005 * 1.0 + 257_955 * 0.1)


def test_both_reads_and_writes_are_taken_from_the_input() -> None:
    """K4: with creation tokens above 0 both are subtracted, and nothing twice."""
    cost = cost_of(Usage(1_000, 0, 600, 300), Prices(1.0, 1.0, 0.1, 1.25, 2.0))
    assert cost == (100.0, 60.0, 375.0, 0.0, 0.0)


def test_a_longer_lifetime_has_its_own_write_price() -> None:
    cost = cost_of(Usage(1_000, 0, 0, 1_000, 400), Prices(1.0, 1.0, 0.1, 1.25, 2.0))
    assert cost.write == 600 * 1.25 + 400 * 2.0


def test_a_hit_costs_nothing_and_saves_what_its_answer_cost() -> None:
    """K5: its prefix reads were booked when it was paid, and are not booked again."""
    paid = book_call("request", Usage(1_000, 10, 900), SONNET)
    hit = book_hit("exact", paid["spent"])
    assert hit == {"saved-exact": paid["spent"]}
    assert book_hit("semantic", 0.5) == {"saved-semantic": 0.5}


def test_what_a_lookup_costs_stands_against_what_hits_save() -> None:
    """K6: a hit that saves 1 cent after a lookup of 0.02 cents is worth 0.98 cents."""
    sums: dict[Post, float] = {"saved-semantic": 0.01, "lookup": 0.0002}
    assert net_saved(sums) == pytest.approx(0.0098)


@pytest.mark.parametrize("purpose", ["audit", "judge", "keep-warm", "warm"])
def test_a_call_for_an_end_of_the_cache_s_own_is_the_cache_s_cost(purpose: Purpose) -> None:
    usage = Usage(1_000, 100, 500, 100)
    booked = book_call(purpose, usage, SONNET)
    assert booked == {purpose: cost_of(usage, SONNET).total}
    assert net_saved(booked) == -cost_of(usage, SONNET).total


def test_a_read_saves_the_difference_and_a_write_costs_it() -> None:
    saving = prefix_saving(Usage(1_000, 0, 600, 300, 100), Prices(1.0, 1.0, 0.1, 1.25, 2.0))
    assert saving.reads == pytest.approx(600 * 0.9)
    assert saving.writes == pytest.approx(200 * 0.25 + 100 * 1.0)
    assert saving.net == pytest.approx(540 - 150)


@given(usages())
def test_what_was_spent_and_saved_is_the_price_without_caching(usage: Usage) -> None:
    """Never twice: spent plus reads less writes is the plain price of the same tokens."""
    booked = book_call("request", usage, SONNET)
    plain = usage.input_tokens * SONNET.input + usage.output_tokens * SONNET.output
    assert without_caches(booked) == pytest.approx(plain)
    assert booked["spent"] == pytest.approx(plain - net_saved(booked))


@pytest.mark.parametrize(
    "usage",
    [Usage(10, 0, 20), Usage(10, 0, 5, 6), Usage(10, 0, 0, 3, 4), Usage(-1, 0), Usage(1, -1)],
)
def test_counts_that_cannot_be_true_are_refused(usage: Usage) -> None:
    with pytest.raises(ValueError, match="cannot be true"):
        cost_of(usage, SONNET)


def test_a_simulated_request_costs_what_the_worked_step_of_the_design_does() -> None:
    """40,000 tokens at $3, 34,000 read and 6,000 written: 73 % less."""
    step = Step()
    billed = Billed(0, step.unchanged, (("5m", step.tokens - step.unchanged),))
    paid = bill(billed, step.price / 1e6, 0.0, 0, RULES)
    assert paid == pytest.approx(step.cached)
    assert 1 - paid / step.plain == pytest.approx(0.7275)


def test_a_bill_prices_each_lifetime_by_its_name_and_the_output() -> None:
    billed = Billed(10, 100, (("1h", 20), ("5m", 4)))
    paid = bill(billed, 1.0, 2.0, 3, RULES)
    assert paid == pytest.approx(10 + 100 * 0.1 + 20 * 2.0 + 4 * 1.25 + 3 * 2.0)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_bill_and_the_cost_of_its_usage_are_one_figure(plain: int, read: int, wrote: int) -> None:
    billed = Billed(plain, read, (("5m", wrote),) if wrote else ())
    usage = Usage(billed.total, 7, read, wrote)
    prices = prices_by_rules(RULES, 3e-6, 15e-6)
    assert bill(billed, 3e-6, 15e-6, 7, RULES) == pytest.approx(cost_of(usage, prices).total)


def test_without_rules_every_token_costs_as_input() -> None:
    assert prices_by_rules(NOTHING, 2.0, 3.0) == Prices(2.0, 3.0, 2.0, 2.0, 2.0)
