"""An agent's whole trace by the official SDK, through the proxy, at the simulator of Anthropic."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import orjson
from proxy import serving

from bench.agent_trace import Asked, Shape, claude, trace
from trivet.messages import Api
from trivet.middleware.mock_upstream.run import running
from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.backends.anthropic import AnthropicBackend
from trivet.prefix.backends.base import Ask
from trivet.prefix.caches import Billed, make_cache
from trivet.prefix.markers.placement import place_breakpoints
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.markers.stability import Stability, prompt_of
from trivet.prefix.prompts.outline import outline_of

SHAPE = Shape(seed=2)
RULES = rules_for("anthropic", SHAPE.model)
Counts = tuple[int, int, int, int]
"""Uncached, read, written for 5 minutes, written for an hour."""


def through_the_proxy(requests: list[Asked]) -> list[Counts]:
    """What the simulator bills each request. The SDK raises for a 400, and is let to.

    Its clock is the trace's; the proxy's is the real one, by which requests follow at once."""
    found: list[Counts] = []
    with running(provider="anthropic") as (url, mock):
        upstream = {"name": "claude", "base_url": url, "cache": "anthropic"}
        with (
            serving(config=json.dumps({"upstreams": [upstream]})) as proxy,
            anthropic.Anthropic(api_key="k", base_url=proxy.url, max_retries=0) as client,
        ):
            for asked in requests:
                body: dict[str, Any] = asked.body
                usage = client.messages.create(
                    **body, extra_headers={"x-mock": f"at={asked.at}"}
                ).usage
                written = usage.cache_creation
                assert written is not None
                found.append(
                    (
                        usage.input_tokens,
                        usage.cache_read_input_tokens or 0,
                        written.ephemeral_5m_input_tokens,
                        written.ephemeral_1h_input_tokens,
                    )
                )
        assert mock.calls.by_path["/v1/messages"] == len(requests)
    return found


def by_the_model(requests: list[Asked]) -> list[Counts]:
    """The same by the pure parts alone."""
    stability, cache, found = Stability(), make_cache("anthropic"), []
    for number, asked in enumerate(requests):
        now = number / 100
        outline = claude(asked)
        prompt = prompt_of("a", "r", outline, now)
        seen = stability.view(prompt)
        marks = place_breakpoints(outline, RULES, seen, PrefixPolicy(), now)
        stability.see(prompt, RULES, marks)
        raw = orjson.dumps(asked.body)
        ask = Ask(Api.MESSAGES, SHAPE.model, raw, outline, "", marks=marks)
        sent = orjson.loads(AnthropicBackend().prepare(ask).body)
        billed = cache.ask("k", outline_of(Api.MESSAGES, sent), asked.at)
        assert isinstance(billed, Billed), billed
        writes = dict(billed.writes)
        counts = (billed.uncached, billed.read, writes.get("5m", 0), writes.get("1h", 0))
        found.append(counts)
    return found


def saved(found: list[Counts]) -> float:
    costs = (1.0, RULES.read, 1.25, 2.0)
    paid = sum(n * cost for one in found for n, cost in zip(one, costs, strict=True))
    return 1 - paid / sum(map(sum, found))


def test_the_trace_gets_no_400_and_saves_what_the_pure_model_says() -> None:
    requests = trace(SHAPE)
    found = through_the_proxy(requests)
    assert len(found) == len(requests) > 60
    expected = by_the_model(requests)
    assert found == expected
    assert saved(found) == saved(expected) > 0.7
