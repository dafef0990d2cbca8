"""A ping against the simulator of Anthropic: it renews the prefix, and is billed as a read."""

from __future__ import annotations

import json
from typing import Any, cast

import httpx2

from trivet.messages import Api
from trivet.middleware.mock_upstream.run import running
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.prefix_tier.keep_warm import Warm
from trivet.middleware.prefix_tier.metering import Metering
from trivet.middleware.prefix_tier.pinging import keep_warm_of
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.markers.gaps import Habit
from trivet.prefix.markers.prewarm import ping_of
from trivet.prefix.markers.rules import Ttl
from trivet.telemetry import Event, ModelCall

MARK = {"type": "ephemeral"}
BODY: dict[str, Any] = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 20,
    "stream": True,
    "system": [{"type": "text", "text": "Rules of the house. " * 400, "cache_control": MARK}],
    "messages": [{"role": "user", "content": "hello"}],
}


class _Prices:
    def input_price(self, model: str, hint: str | None, prompt: int) -> float | None:
        return 3e-6


def read_at(url: str, seconds: float) -> int:
    """Tokens that a request of a caller reads at that second."""
    headers = {"x-api-key": "k", "x-mock": f"at={seconds}"}
    body = {**BODY, "stream": False}
    usage = httpx2.post(f"{url}/v1/messages", json=body, headers=headers).json()["usage"]
    return int(usage["cache_read_input_tokens"])


async def test_a_ping_renews_the_prefix_and_is_billed_as_a_read() -> None:
    with running(provider="anthropic") as (url, _):
        assert read_at(url, 0) == 0
        body = ping_of(json.dumps(BODY).encode())
        assert body is not None
        upstream = UpstreamConfig(name="claude", base_url=url)
        headers = [(b"x-api-key", b"k"), (b"x-mock", b"at=286"),
                   (b"content-type", b"application/json")]  # fmt: skip
        warm = Warm(
            *(b"k", "a", "r", upstream, "/v1/messages", headers, body, BODY["model"], 2_000, 4),
            *(Ttl("5m", 300, 1.25), 0.1, 1.0, lambda now: Habit((400.0,) * 5)),
        )
        events: list[Event] = []
        client = UpstreamClient()
        metering = Metering(client, client, events.append)
        tier = keep_warm_of(client, metering, cast("Pricing", _Prices()))
        try:
            assert await tier._ping(warm)
        finally:
            await tier.close()
            await client.close()
        (event,) = events
        assert isinstance(event, ModelCall)
        assert (event.purpose, event.api) == ("keep-warm", Api.MESSAGES.value)
        assert event.usage is not None
        assert event.usage.cache_read_tokens > 1_900
        assert event.usage.cache_write_tokens == event.usage.output_tokens == 0
        assert read_at(url, 500) == event.usage.cache_read_tokens
