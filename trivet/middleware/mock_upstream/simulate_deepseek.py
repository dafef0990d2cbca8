"""DeepSeek's chat API and its Anthropic-shaped one, with the cache on disk.

https://api-docs.deepseek.com/guides/kv_cache and /guides/anthropic_api. `user_id`, or
`metadata.user_id` in Anthropic's shape, keeps the caches of a key's users apart.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trivet.errors import RequestError
from trivet.middleware.mock_upstream.answers import Body
from trivet.middleware.mock_upstream.routes import Call
from trivet.middleware.mock_upstream.simulate_anthropic import usage_of
from trivet.middleware.mock_upstream.simulated import SimulatedDialect
from trivet.prefix.caches import Billed
from trivet.prefix.prompts.outline import Outline

_USER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,512}")


class DeepSeekRoutes(SimulatedDialect):
    """See the module."""

    provider = "deepseek"
    name = "DeepSeek"
    served = ("/chat/completions", "/completions", "/messages")

    def route(self, route: str) -> str:
        """`/anthropic/v1/messages` and `/beta/completions` too."""
        return route.removeprefix("/anthropic").removeprefix("/beta").removeprefix("/v1")

    def owner(self, call: Call, body: Body) -> str:
        """The key and the user."""
        return f"{super().owner(call, body)} {_user_id(body)}"

    def check(self, call: Call, body: Body) -> None:
        """See `SimulatedDialect`. Other fields that it does not know are passed over."""
        user = _user_id(body)
        if user is not None and not (isinstance(user, str) and _USER_ID.fullmatch(user)):
            told = "Invalid user_id: it has up to 512 of a-z, A-Z, 0-9, - and _."
            raise RequestError(400, told, field="user_id")

    def usage(self, call: Call, usage: Body, billed: Billed, outline: Outline) -> Body:
        """Hits and misses add up to the prompt."""
        if call.route == "/messages":
            return usage | usage_of(billed)
        return usage | {
            "prompt_tokens": billed.total,
            "total_tokens": billed.total + usage["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": billed.read},
            "prompt_cache_hit_tokens": billed.read,
            "prompt_cache_miss_tokens": billed.uncached,
        }


def _user_id(body: Body) -> Any:
    metadata = body.get("metadata")
    return body.get("user_id", metadata.get("user_id") if isinstance(metadata, dict) else None)
