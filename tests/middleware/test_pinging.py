"""What is kept warm, and how a ping is sent and billed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.prefix_tier.asks import Asked
from trivet.middleware.prefix_tier.keep_warm import Warm
from trivet.middleware.prefix_tier.metering import Metering
from trivet.middleware.prefix_tier.pinging import ToWarm, keep_warm_of, warm_of
from trivet.middleware.prefix_tier.placing import Placing
from trivet.middleware.prefix_tier.tier import Sent
from trivet.middleware.prefix_tier.warmth import NotWarm, Reason
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.prefix_model import KeepWarm, PrefixPolicy
from trivet.prefix.backends.anthropic import AnthropicBackend
from trivet.prefix.backends.base import Ask, PrefixBackend
from trivet.prefix.backends.openai import OpenAIBackend
from trivet.prefix.prompts.outline import outline_of
from trivet.telemetry import Event, ModelCall

UP = UpstreamConfig(name="claude", base_url="http://127.0.0.1:1")
POLICY = PrefixPolicy(keep_warm=KeepWarm(budget_usd=1))
BODY: dict[str, Any] = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 9,
    "stream": True,
    "system": "word " * 4_000,
    "messages": [{"role": "user", "content": "a question of some length"}],
}


class Rig:
    """Calls of one tenant, one after the other."""

    def __init__(self, policy: PrefixPolicy = POLICY) -> None:
        self.now = 0.0
        self.policy = policy
        self.placing = Placing(lambda: self.now)

    def warm(
        self, body: dict[str, Any] = BODY, backend: PrefixBackend | None = None
    ) -> tuple[list[bytes], ToWarm]:
        backend = backend or AnthropicBackend()
        raw = json.dumps(body).encode()
        outline = outline_of(Api.MESSAGES, body)
        asked = Asked(Api.MESSAGES, body["model"], "a", self.policy, UP, "/v1/messages", [], raw)
        placed = self.placing.choose(asked, outline, backend)
        ask = Ask(Api.MESSAGES, body["model"], raw, outline, "0" * 64, marks=placed.marks)
        prepared = backend.prepare(ask)
        placed = self.placing.sent(placed, prepared)
        call = SimpleNamespace(
            policy=SimpleNamespace(prefix=self.policy),
            request=SimpleNamespace(api=Api.MESSAGES, model=body["model"]),
            tenant="a",
            route="",
            upstream=UP,
            target="/v1/messages",
        )
        sent = Sent(prepared.body, [(b"authorization", b"Bearer k")], placed=placed)
        return warm_of(cast("Call", call), sent, backend.kind, self.placing)


def test_the_ping_is_the_same_request_without_an_answer() -> None:
    path, warm = Rig().warm()
    assert isinstance(warm, Warm)
    assert warm.key in path
    body = json.loads(warm.body)
    assert (body["max_tokens"], "stream" in body) == (0, False)
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert (warm.ttl.name, warm.read, warm.budget_usd) == ("5m", 0.1, 1)
    assert 4_900 < warm.tokens < 5_100
    assert 0 < warm.rest < 30


def test_the_habit_is_that_of_the_prefix_as_it_is_known_then() -> None:
    rig = Rig()
    for number in range(5):
        rig.now = 400.0 * number
        _, warm = rig.warm({**BODY, "messages": [{"role": "user", "content": f"q{number}"}]})
    assert isinstance(warm, Warm)
    assert warm.habit(2_000).came == (400.0,) * 4


def test_without_a_budget_nothing_is_kept() -> None:
    assert Rig(PrefixPolicy()).warm() == ([], None)


@pytest.mark.parametrize(
    ("change", "backend", "reason"),
    [
        ({"system": "short"}, None, "no-breakpoint"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, None, "no-ping-form"),
        ({"model": "gpt-6-astra"}, OpenAIBackend(), "no-ping-api"),
    ],
)
def test_where_nothing_is_kept_the_reason_is_said(
    change: dict[str, Any], backend: PrefixBackend | None, reason: Reason
) -> None:
    body = {**BODY, **change}
    assert Rig().warm(body, backend)[1] == NotWarm("a", "claude", body["model"], reason)


class _Answer:
    """What a ping gets."""

    status = 200
    media_type = "application/json"
    coded = False
    meter: Any = None
    left: Any = None

    async def read(self) -> bytes:
        body = b'{"type":"message","model":"m","usage":{"input_tokens":3,"output_tokens":0}}'
        if self.meter is not None:
            self.meter.take(body)
        return body

    def close(self) -> None:
        if self.meter is not None:
            self.meter.end()


async def test_a_ping_is_billed_as_a_cost_of_the_cache() -> None:
    events: list[Event] = []
    sent: list[Any] = []

    class Client:
        async def send(self, *asked: Any) -> Any:
            sent.append(asked)
            return _Answer()

    class Prices:
        def input_price(self, model: str, hint: str | None, prompt: int) -> float | None:
            return 3e-6

    client = cast("UpstreamClient", Client())
    metering = Metering(cast("Any", client), client, events.append)
    tier = keep_warm_of(client, metering, cast("Pricing", Prices()), events.append)
    _, warm = Rig().warm()
    assert isinstance(warm, Warm)
    assert await tier._ping(warm)
    ((upstream, method, target, headers, body),) = sent
    assert (upstream, method, target, body) == (UP, "POST", "/v1/messages", warm.body)
    assert headers == [(b"authorization", b"Bearer k")]
    (event,) = events
    assert isinstance(event, ModelCall)
    assert (event.tenant, event.purpose) == ("a", "keep-warm")
