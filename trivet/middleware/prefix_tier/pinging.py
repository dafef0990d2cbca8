"""What the prefix tier hands to `keep_warm`, and how a ping is sent and billed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.prefix_tier.keep_warm import KeepWarm, Warm
from trivet.middleware.prefix_tier.metering import Billed, Metering
from trivet.middleware.prefix_tier.placing import Placed, Placing
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.middleware.prefix_tier.warmth import NotWarm, never_pinged
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.markers.prewarm import ping_of
from trivet.telemetry import Observer, ignore

ToWarm = Warm | NotWarm | None

if TYPE_CHECKING:
    from trivet.middleware.prefix_tier.tier import Sent

_FAILED: Final = 400
_OF_ONE_REQUEST: Final = frozenset({b"idempotency-key", b"accept"})
"""Headers that a ping does not have in common with the request before it."""


def warm_of(call: Call, sent: Sent, kind: str, placing: Placing) -> tuple[list[bytes], ToWarm]:
    """The prefixes of an answered call at a cache of that kind, and the one to keep warm, or why
    there is none; None where the policy wants none."""
    placed, budget = sent.placed, call.policy.prefix.keep_warm.budget_usd
    if not budget:
        return [], None
    path, request = placed.path(), call.request
    never = never_pinged(request.api, kind, len(placed.marks), sent.body)
    body, ttl = ping_of(sent.body), placed.rules.ttl(placed.marks[-1].ttl if placed.marks else "")
    if never is not None or body is None or ttl is None:
        about = (call.tenant, call.upstream.name, request.model)
        return path, NotWarm(*about, never or "no-ping-form")
    keys, _ = placed.keys()
    headers = [item for item in sent.headers if item[0] not in _OF_ONE_REQUEST]
    warm = Warm(
        *(keys[-1], call.tenant, route_of_call(call), call.upstream, call.target),
        *(headers, body, call.request.model, *placed.sizes()),
        *(ttl, placed.rules.read, budget, partial(placing.habit, _without_text(placed))),
    )
    return path, warm


def _without_text(placed: Placed) -> Placed:
    """The same for whoever asks for habits only: the text is in memory once, in the ping."""
    prompt = placed.prompt
    if prompt is None:
        return placed
    parts = tuple(part._replace(content=b"") for part in prompt.outline.parts)
    light = prompt._replace(outline=prompt.outline._replace(parts=parts), chain=())
    return placed._replace(prompt=light)


def keep_warm_of(
    client: UpstreamClient, metering: Metering, pricing: Pricing, observer: Observer = ignore
) -> KeepWarm:
    """Sends pings past the tiers, and bills them as the cache's own cost."""
    return KeepWarm(_pinger(client, metering), pricing.input_price, observer=observer)


def _pinger(client: UpstreamClient, metering: Metering) -> Callable[[Warm], Awaitable[bool]]:
    async def ping(warm: Warm) -> bool:
        asked = ("POST", warm.target, warm.headers, warm.body)
        response = await client.send(warm.upstream, *asked)
        billed = Billed(
            *(warm.tenant, warm.route, Api.MESSAGES.value, warm.model, warm.upstream.name),
            purpose="keep-warm",
        )
        metering.meter(response, billed, warm.upstream)
        try:
            await response.read()
        finally:
            response.close()
        return response.status < _FAILED

    return ping
