"""The worked figures of the design, as the placement and the model of Anthropic's cache give
them."""

from __future__ import annotations

from typing import Any

import pytest
from cache_builders import block, user

from trivet.messages import Api
from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.caches import Billed, make_cache
from trivet.prefix.markers.placement import as_sent, place_breakpoints
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.markers.stability import Stability, prompt_of
from trivet.prefix.prompts.outline import outline_of

MODEL = "claude-sonnet-4-6"
RULES = rules_for("anthropic", MODEL)
WRITES = {ttl.name: ttl.write for ttl in RULES.ttls}


def billed(bodies: list[dict[str, Any]], ttl: str, gap: float = 20.0) -> list[Billed]:
    """What each request is billed, marked by the policy with that lifetime."""
    policy = PrefixPolicy.model_validate({"ttl": ttl})
    cache, stability = make_cache("anthropic"), Stability()
    found = []
    for number, body in enumerate(bodies):
        now = number * gap
        outline = outline_of(Api.MESSAGES, {"model": MODEL, **body})
        prompt = prompt_of("a", "r", outline, now)
        marks = place_breakpoints(outline, RULES, stability.view(prompt), policy, now)
        stability.see(prompt, RULES, marks)
        one = cache.ask("a", as_sent(outline, marks), now)
        assert isinstance(one, Billed)
        found.append(one)
    return found


def writes(one: Billed) -> float:
    return sum(WRITES[ttl] * tokens for ttl, tokens in one.writes)


def cost(one: Billed) -> float:
    return one.uncached + RULES.read * one.read + writes(one)


def step(number: int) -> list[dict[str, Any]]:
    """An answer and a result, 1,500 tokens together."""
    return [
        {"role": "assistant", "content": [block(f"said {number}", 100)]},
        user(block(f"result {number}", 1_400)),
    ]


@pytest.mark.parametrize(("ttl", "first"), [("5m", 2), ("1h", 3)])
def test_a_shared_prefix_is_cheaper_from_the_second_or_the_third_request_on(
    ttl: str, first: int
) -> None:
    bodies = [
        {"system": [block("rules", 10_000)], "messages": [user(block(f"q{number}", 10))]}
        for number in range(4)
    ]
    found = billed(bodies, ttl)
    cheaper = [
        n for n in range(1, 5) if sum(map(cost, found[:n])) < sum(one.total for one in found[:n])
    ]
    assert cheaper[0] == first


def test_an_agents_step_of_40_000_tokens_costs_73_percent_less() -> None:
    """34,000 read, 6,000 written for 5 minutes."""
    before = [user(block("all so far", 34_000))]
    answer = {"role": "assistant", "content": [block("said", 1_000)]}
    after = [*before, answer, user(block("result", 5_000))]
    tools = [{"name": "t"}]
    _, second = billed([{"tools": tools, "messages": m} for m in (before, after)], "5m")
    assert (second.read // 1_000, second.uncached) == (34, 0)
    assert 1 - cost(second) / second.total == pytest.approx(0.7275, abs=0.001)


def test_writes_are_30_percent_of_the_input_cost_of_60_steps_of_1_500_tokens() -> None:
    """112,500 of 378,000 uncached tokens' worth."""
    messages = [user(block("result 0", 1_500))]
    bodies = []
    for number in range(60):
        bodies.append({"tools": [{"name": "t"}], "messages": list(messages)})
        messages += step(number)
    found = billed(bodies, "5m")
    share = sum(map(writes, found)) / sum(map(cost, found))
    assert share == pytest.approx(112_500 / 378_000, abs=0.001)
