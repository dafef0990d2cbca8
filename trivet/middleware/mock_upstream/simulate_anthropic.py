"""Anthropic's Messages API with its prompt cache.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching. An API key stands for a
workspace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import orjson

from trivet.errors import RequestError
from trivet.messages import Api as Kind
from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream.answers import Body
from trivet.middleware.mock_upstream.commands import Commands
from trivet.middleware.mock_upstream.routes import Api, Call, Pairs, Reply
from trivet.middleware.mock_upstream.simulated import SimulatedDialect, blocks, check_fields
from trivet.prefix.caches import Billed
from trivet.prefix.caches.steps import part_steps
from trivet.prefix.prompts.outline import Level, Outline, outline_of

_KNOWN: Final = frozenset(
    (
        *("cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages"),
        *(
            "metadata",
            "model",
            "output_config",
            "service_tier",
            "speed",
            "stop_sequences",
            "stream",
        ),
        *("system", "thinking", "tool_choice", "tools", "user_profile_id", "workspace_id"),
    )
)
_BETA: Final = frozenset(
    (
        *("billing_policy", "compaction", "context_management", "fallback_credit_token"),
        *("fallbacks", "mcp_servers", "thread", "output_format"),
    )
)
_SAMPLING: Final = frozenset(("temperature", "top_p", "top_k"))
_WITHOUT_SAMPLING: Final = "2026-10-21"
"""From this `anthropic-version` on the sampling parameters are refused."""
_KEPT: Final = 1_000


class AnthropicRoutes(SimulatedDialect):
    """See the module."""

    provider = "anthropic"
    name = "Anthropic"
    served = ("/messages",)

    def __init__(self, delay_ms: float = 0) -> None:
        super().__init__(delay_ms)
        self._asked: OrderedDict[str, Outline] = OrderedDict()

    def reset(self) -> None:
        """See `SimulatedDialect`."""
        super().reset()
        self._asked.clear()

    def owner(self, call: Call, body: Body) -> str:
        """The workspace."""
        workspace = call.headers.get("anthropic-workspace-id", body.get("workspace_id"))
        return f"{super().owner(call, body)} {workspace}"

    def check(self, call: Call, body: Body) -> None:
        """See `SimulatedDialect`."""
        known = _KNOWN | (_BETA if "anthropic-beta" in call.headers else frozenset())
        if call.headers.get("anthropic-version", "") < _WITHOUT_SAMPLING:
            known |= _SAMPLING
        check_fields(body, known, "{name}: Extra inputs are not permitted")
        for path, block in (("", body), *blocks(body, "tools", "system", "messages")):
            _check_block(path, block)
        if body.get("max_tokens") == 0:
            _check_prewarm(body)

    def usage(self, call: Call, usage: Body, billed: Billed, outline: Outline) -> Body:
        """`input_tokens` are those behind the last breakpoint."""
        return usage | usage_of(billed)

    def finished(self, call: Call, body: Body, made: Body) -> tuple[Body, Pairs]:
        """See `Routes`; with `diagnostics` where they were asked for."""
        made, told = super().finished(call, body, made)
        outline = outline_of(Kind.MESSAGES, body)
        asked = body.get("diagnostics")
        if isinstance(asked, dict):
            previous = asked.get("previous_message_id")
            reason = self._miss(previous, outline) if previous is not None else None
            made = made | {"diagnostics": {"cache_miss_reason": reason} if reason else None}
        self._asked[made["id"]] = outline
        if len(self._asked) > _KEPT:
            self._asked.popitem(last=False)
        return made, told

    def _miss(self, previous: str, outline: Outline) -> Body | None:
        earlier = self._asked.get(previous)
        if earlier is None:
            return {"type": "previous_message_not_found"}
        if earlier.model != outline.model:
            return {"type": "model_changed", "cache_missed_input_tokens": outline.tokens}
        ours, theirs = (part_steps(one, one.settings) for one in (outline, earlier))
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same].digest == theirs[same].digest:
            same += 1
        if same == len(theirs):
            return None
        level = min(
            _ORDER.index(one.parts[same].level)
            for one in (outline, earlier)
            if same < len(one.parts)
        )
        missed = outline.tokens - (ours[same - 1].tokens if same else 0)
        return {"type": f"{_ORDER[level]}_changed", "cache_missed_input_tokens": missed}

    def events(self, api: Api, made: Body, body: Body) -> Iterator[bytes]:
        """The usage at the end of a stream is cumulative."""
        for event in super().events(api, made, body):
            if not event.startswith(b"event: message_delta") or "usage" not in made:
                yield event
                continue
            data: Any = orjson.loads(event.partition(b"data: ")[2])
            data["usage"] = {key: made["usage"][key] for key in _CUMULATIVE}
            yield sse.frame(orjson.dumps(data), "message_delta")

    def _made(self, call: Call, body: Body, commands: Commands) -> Reply:
        reply = super()._made(call, body, commands)
        if call.route == "/messages/count_tokens":
            counted = outline_of(Kind.MESSAGES, body).tokens
            return Reply(
                200, orjson.dumps({"input_tokens": counted}), commands, headers=reply.headers
            )
        return reply


_ORDER: Final = (Level.TOOLS, Level.SYSTEM, Level.MESSAGES)
_CUMULATIVE: Final = (
    *("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
)


def usage_of(billed: Billed) -> Body:
    """The input side of an Anthropic usage."""
    writes = dict(billed.writes)
    return {
        "input_tokens": billed.uncached,
        "cache_creation_input_tokens": sum(writes.values()),
        "cache_read_input_tokens": billed.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": writes.get("5m", 0),
            "ephemeral_1h_input_tokens": writes.get("1h", 0),
        },
    }


def _check_block(path: str, block: Body) -> None:
    if "prompt_cache_breakpoint" in block:
        field = f"{path}.prompt_cache_breakpoint".lstrip(".")
        raise RequestError(400, f"{field}: Extra inputs are not permitted", field=field)
    control = block.get("cache_control")
    if control is not None and (
        not isinstance(control, dict) or control.get("type") != "ephemeral"
    ):
        field = f"{path}.cache_control.type".lstrip(".")
        raise RequestError(400, f"{field}: Input should be 'ephemeral'", field=field)


def _check_prewarm(body: Body) -> None:
    """What a request with `max_tokens: 0` may not ask for."""
    thinking = (body.get("thinking") or {}).get("type")
    form = (body.get("output_config") or {}).get("format")
    choice = (body.get("tool_choice") or {}).get("type")
    forced = choice in ("tool", "any")
    if body.get("stream") or form or forced or thinking not in (None, "disabled"):
        told = "max_tokens: 0 cannot be used with stream, thinking, output_config.format or a"
        raise RequestError(400, f"{told} forced tool_choice", field="max_tokens")
