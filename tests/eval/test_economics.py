"""The design's worked examples: each figure, in code and as the command tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from trivet.cli import main
from trivet.eval.economics import (
    Step,
    Worth,
    break_even_request,
    kv_bytes_per_token,
    load_after_flush,
)
from trivet.policies.economics import Economics, worth_it


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["eval", "economics", *arguments])


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").output)


class TestAgentStep:
    def test_without_caching_a_step_costs_12_cents(self) -> None:
        assert Step().plain == pytest.approx(0.1200)

    def test_with_caching_it_costs_3_27_cents_of_reads_and_writes(self) -> None:
        step = Step()
        assert step.reads == pytest.approx(0.0102)
        assert step.writes == pytest.approx(0.0225)
        assert step.cached == pytest.approx(0.0327)

    def test_that_is_73_percent_less(self) -> None:
        assert f"{Step().saved:.0%}" == "73%"

    def test_30_steps_cost_3_60_against_0_98(self) -> None:
        assert (f"{30 * Step().plain:.2f}", f"{30 * Step().cached:.2f}") == ("3.60", "0.98")

    def test_a_prefix_that_never_lasts_costs_more(self) -> None:
        assert Step(unchanged=0).saved == pytest.approx(-0.25)

    def test_more_unchanged_tokens_than_tokens_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="cannot be unchanged"):
            Step(tokens=10, unchanged=11)

    def test_no_tokens_cost_and_save_nothing(self) -> None:
        assert (Step(0, 0).cached, Step(0, 0).saved) == (0.0, 0.0)


class TestBreakEven:
    @pytest.mark.parametrize(("write", "request_number"), [(1.25, 2), (2.0, 3)])
    def test_the_two_kinds_of_writes(self, write: float, request_number: int) -> None:
        assert break_even_request(write) == request_number

    def test_reads_at_full_price_never_pay_for_a_write(self) -> None:
        assert break_even_request(1.25, 1.0) is None

    @given(st.floats(0, 20), st.floats(0, 0.99))
    def test_it_is_the_first_request_that_is_cheaper(self, write: float, read: float) -> None:
        found = break_even_request(write, read)
        assert found is not None
        assert write + (found - 1) * read < found + 1e-6
        if found > 1:
            assert write + (found - 2) * read >= found - 1 - 1e-6


class TestKv:
    def test_80_layers_with_8_heads_of_128_hold_327680_bytes_a_token(self) -> None:
        assert kv_bytes_per_token(80, 8, 128, 16) == 327_680

    def test_32_layers_with_32_heads_of_128_hold_512_kib_a_token(self) -> None:
        assert kv_bytes_per_token(32, 32, 128, 16) == 512 * 1024

    def test_a_prefix_of_32000_tokens_holds_10_5_gb(self) -> None:
        assert f"{kv_bytes_per_token(80, 8, 128) * 32_000 / 1e9:.1f}" == "10.5"


class TestFlush:
    def test_a_cache_that_absorbs_40_percent_leaves_1_7_times_the_load(self) -> None:
        assert f"{load_after_flush(0.4):.1f}" == "1.7"

    @pytest.mark.parametrize("absorbed", [-0.1, 1.0, float("nan")])
    def test_it_cannot_absorb_everything(self, absorbed: float) -> None:
        with pytest.raises(ValueError, match="absorbs a share"):
            load_after_flush(absorbed)


class TestWorth:
    def test_a_2_percent_false_hit_rate_can_erase_the_saving(self) -> None:
        cheap = Economics(call_cost=0.01, lookup_cost=0.0002, false_hit_cost=0.1)
        dear = Economics(call_cost=0.01, lookup_cost=0.0002, false_hit_cost=5)
        assert Worth(0.3, 0.02, cheap).worth_it
        assert not Worth(0.3, 0.02, dear).worth_it

    def test_the_highest_rate_is_where_nothing_is_left(self) -> None:
        worth = Worth(0.3, 0.02, Economics(call_cost=0.01, lookup_cost=0.0002, false_hit_cost=0.1))
        limit = worth.highest_false_hit_rate
        assert limit is not None
        assert Worth(0.3, limit, worth.costs).margin == pytest.approx(0)
        assert worth.saved - worth.risked == pytest.approx(worth.margin)

    def test_free_mistakes_have_no_highest_rate(self) -> None:
        assert (
            Worth(0.3, 1, Economics(call_cost=1, false_hit_cost=0)).highest_false_hit_rate is None
        )

    @given(st.floats(0, 1), st.floats(0, 1))
    def test_it_is_the_rule_that_the_tier_goes_by(self, hit_rate: float, rate: float) -> None:
        costs = Economics(call_cost=0.01, lookup_cost=0.001, false_hit_cost=0.2)
        assert Worth(hit_rate, rate, costs).worth_it == worth_it(hit_rate, rate, costs)


class TestCommand:
    @pytest.mark.parametrize(
        "figure",
        [
            "$0.1200 per step",
            "$0.0102",
            "$0.0225",
            "$0.0327 per step (73% less)",
            "$3.60 against $0.98",
            "cheaper from request 2 on",
            "cheaper from request 3 on",
            "327,680 bytes",
            "512 KiB",
            "10.5 GB",
            "1.7 times the usual",
            ": worth it",
            ": not worth it",
        ],
    )
    def test_without_a_command_every_example_is_told(self, figure: str) -> None:
        result = run()
        assert result.exit_code == 0
        assert figure in result.output

    def test_it_fits_80_columns(self) -> None:
        assert max(map(len, run().output.splitlines())) <= 80

    def test_all_examples_as_json(self) -> None:
        names = [one["name"] for one in told()]
        assert names == ["agent-step", "break-even", "kv", "kv", "flush", "worth-it", "worth-it"]

    def test_the_flags_default_to_the_examples(self) -> None:
        assert told("agent-step")["cached"] == pytest.approx(0.0327)
        assert [one["request"] for one in told("break-even")["writes"]] == [2, 3]
        assert told("kv")["bytes_per_token"] == 327_680
        assert told("flush")["times"] == pytest.approx(1 / 0.6)
        assert told("worth-it")["worth_it"] is True

    def test_other_figures_can_be_given(self) -> None:
        assert told("agent-step", "--unchanged", "0", "--steps", "2")["cached_task"] == 0.3
        assert told("break-even", "--write", "1", "--read", "0")["writes"][0]["request"] == 2
        shape = ("--layers", "32", "--kv-heads", "32", "--bits", "8")
        assert told("kv", *shape)["bytes_per_token"] == 256 * 1024

    def test_not_worth_it_is_a_finding(self) -> None:
        result = run("worth-it", "--false-hit-cost", "5")
        assert (result.exit_code, ": not worth it" in result.output) == (1, True)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("agent-step", "--tokens", "5"),
            ("flush", "--absorbed", "1"),
            ("worth-it", "--call-cost", "0"),
            ("worth-it", "--call-cost", "nan"),
            ("kv", "--layers", "0"),
            ("--json", "kv"),
        ],
    )
    def test_figures_that_cannot_be_are_a_wrong_usage(self, arguments: tuple[str, ...]) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output
