"""OpenAI's chat, completions and Responses APIs with their prompt cache.

https://developers.openai.com/api/docs/guides/prompt-caching. `OpenAI-Organization`, or else the
API key, stands for the organisation; `prompt_cache_key` keeps reuse apart inside it. A
`previous_response_id` adds nothing to the prompt here.
"""

from __future__ import annotations

from typing import Final

from trivet.errors import RequestError
from trivet.middleware.mock_upstream.answers import Body
from trivet.middleware.mock_upstream.routes import Call, Pairs
from trivet.middleware.mock_upstream.simulated import SimulatedDialect, blocks, check_fields
from trivet.prefix.caches import Billed
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.prompts.outline import Outline

_SHARED: Final = frozenset(
    (
        *("metadata", "model", "moderation", "parallel_tool_calls", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier"),
        *("store", "stream", "stream_options", "temperature", "tool_choice", "tools"),
        *("top_logprobs", "top_p", "user"),
    )
)
_CHAT: Final = _SHARED | {
    *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs"),
    *("max_completion_tokens", "max_tokens", "messages", "modalities", "n", "prediction"),
    *("presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "verbosity"),
    "web_search_options",
}
_RESPONSES: Final = _SHARED | {
    *("access_programs", "background", "background_options", "context_management"),
    *("conversation", "generate", "image", "include", "input", "instructions"),
    *("max_output_tokens", "max_tool_calls", "multi_agent", "previous_response_id", "prompt"),
    *("reasoning", "text", "truncation"),
}
_COMPLETIONS: Final = frozenset(
    (
        *("best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model"),
        *("n", "presence_penalty", "prompt", "seed", "stop", "stream", "stream_options", "suffix"),
        *("temperature", "top_p", "user"),
    )
)
_KNOWN: Final = {
    "/chat/completions": (_CHAT, "Unrecognized request argument supplied: {name}", None),
    "/completions": (_COMPLETIONS, "Unrecognized request argument supplied: {name}", None),
    "/responses": (_RESPONSES, "Unknown parameter: '{name}'.", "unknown_parameter"),
}


class OpenAiRoutes(SimulatedDialect):
    """See the module."""

    provider = "openai"
    name = "OpenAI"
    served = ("/chat/completions", "/completions", "/responses")

    def owner(self, call: Call, body: Body) -> str:
        """The organisation and the key."""
        organisation = call.headers.get("openai-organization") or super().owner(call, body)
        return f"{organisation} {body.get('prompt_cache_key')}"

    def check(self, call: Call, body: Body) -> None:
        """See `SimulatedDialect`."""
        known, message, code = _KNOWN[call.route]
        check_fields(body, known, message, code)
        for path, block in blocks(body, "tools", "messages", "input"):
            if "cache_control" in block:
                field = f"{path}.cache_control"
                told = f"Unknown parameter: '{field}'."
                raise RequestError(400, told, field=field, code="unknown_parameter")
            point = block.get("prompt_cache_breakpoint")
            if point is not None and (
                not isinstance(point, dict) or point.get("mode") != "explicit"
            ):
                field = f"{path}.prompt_cache_breakpoint.mode"
                raise RequestError(400, f"Invalid value for '{field}'.", field=field)
        options = body.get("prompt_cache_options") or {}
        mode = options.get("mode")
        if mode not in (None, "implicit", "explicit"):
            field = "prompt_cache_options.mode"
            raise RequestError(400, f"Invalid value for '{field}': '{mode}'.", field=field)

    def usage(self, call: Call, usage: Body, billed: Billed, outline: Outline) -> Body:
        """Cached and written tokens are part of the input's."""
        explicit = rules_for("openai", outline.model.partition("+")[0]).explicit
        prefix = "input" if call.route == "/responses" else "prompt"
        made = "output_tokens" if call.route == "/responses" else "completion_tokens"
        details = usage.get(f"{prefix}_tokens_details", {}) | {"cached_tokens": billed.read}
        writes = dict(billed.writes)
        if explicit or call.route == "/responses":
            details["cache_write_tokens"] = sum(writes.values())
        if explicit and call.route == "/responses":
            details["cache_write_tokens_details"] = {
                "ttl_30m_tokens": writes.get("30m", 0),
                "ttl_12h_tokens": writes.get("12h", 0),
            }
        return usage | {
            f"{prefix}_tokens": billed.total,
            "total_tokens": billed.total + usage[made],
            f"{prefix}_tokens_details": details,
        }

    def finished(self, call: Call, body: Body, made: Body) -> tuple[Body, Pairs]:
        """See `Routes`; a prewarming request gets no output."""
        made, told = super().finished(call, body, made)
        if call.route == "/responses" and (body.get("prompt_cache_options") or {}).get("prewarm"):
            usage = made["usage"] | {
                "output_tokens": 0,
                "total_tokens": made["usage"]["input_tokens"],
            }
            made = made | {"output": [], "usage": usage}
        return made, told
