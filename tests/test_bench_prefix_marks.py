"""What the bench of breakpoints stands on, and its targets on one seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.agent_trace import Shape, trace
from bench.best_marks import bound, brute_force
from bench.prefix_marks import automatic, compared, ours, played, requests_of, system_only
from trivet.messages import Api
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.prompts.outline import outline_of

RULES = rules_for("anthropic", "claude-opus-5-5")


def test_a_trace_is_the_same_for_the_same_seed_and_in_time() -> None:
    asked = trace(Shape(steps=12))
    assert asked == trace(Shape(steps=12))
    assert [one.at for one in asked] == sorted(one.at for one in asked)
    assert len(asked) > 12


def test_the_main_agent_takes_60_steps_of_about_1_500_tokens() -> None:
    outlines = [outline for _, outline in requests_of(Shape(handed=0), "anthropic")]
    assert len(outlines) == 60
    grown = (outlines[-1].tokens - outlines[0].tokens) / 59
    assert 1_200 < grown < 1_800


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_ours_saves_nearly_all_that_any_marking_can(provider: str) -> None:
    found = compared(Shape(), provider)
    assert found["ours"] >= 0.97 * found["best"]
    assert found["ours"] > found["automatic"] > found["system"]
    assert found["refused"] == 0


@pytest.mark.parametrize("gaps", [(20.0, 20.0), (20.0, 700.0), (700.0, 20.0), (4000.0, 30.0)])
def test_no_marking_of_a_short_trace_comes_below_the_bound(gaps: tuple[float, float]) -> None:
    """All markings of the last three parts of three requests, with both lifetimes."""
    turns, requests, now = [], [], 0.0
    for number, gap in enumerate((0.0, *gaps)):
        now += gap
        turns.append({"role": "user", "content": f"{number} " * 1_200})
        body = {"model": "claude-opus-5-5", "messages": list(turns)}
        requests.append((now, outline_of(Api.MESSAGES, body)))
        turns.append({"role": "assistant", "content": "a " * 200})
    blocks = [
        (
            at,
            outline._replace(
                parts=tuple(p._replace(place=(*p.place, "content", 0)) for p in outline.parts)
            ),
        )
        for at, outline in requests
    ]
    best = brute_force(blocks, RULES, 3)
    assert best.tried > 1_000
    least = bound(blocks, RULES)
    assert least <= best.cost <= 1.1 * least
    mine = played(blocks, RULES, ours(RULES))
    assert mine.paid >= best.cost


def test_the_other_ways_are_what_they_are_called() -> None:
    ((_, outline), *_) = requests_of(replace(Shape(), steps=1, handed=0), "anthropic")
    assert automatic(RULES)(0.0, outline).automatic is not None
    assert [part.level.value for part in system_only(RULES)(0.0, outline).parts if part.mark] == [
        "system"
    ]
