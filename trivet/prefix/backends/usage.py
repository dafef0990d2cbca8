"""Usage as every provider and engine reports it, in one shape.

    OpenAI chat, completions   prompt_tokens holds the cached ones and the written ones
                               (https://platform.openai.com/docs/guides/prompt-caching); so in vLLM
                               (created_cache_tokens for what was written) and SGLang
    OpenAI Responses           input_tokens, likewise
    DeepSeek                   prompt_cache_hit_tokens + prompt_cache_miss_tokens = prompt_tokens
                               (https://api-docs.deepseek.com/guides/kv_cache)
    Anthropic Messages         input_tokens, cache reads and cache writes are three disjoint sums
                               (https://platform.claude.com/docs/en/build-with-claude/prompt-caching)
    Bedrock Converse           likewise, in camel case
                               (https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html)
    Gemini                     promptTokenCount holds cachedContentTokenCount; thoughts are output
                               (https://ai.google.dev/api/generate-content#UsageMetadata)
    llama.cpp                  timings.cache_n where `usage` has no details (tools/server/README.md)

Events of streams are read by the same functions: chat's last chunk, `response.completed`,
`message_start` with `message_delta`, Converse's `metadata`, and Gemini's chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trivet.messages import Usage

Json = Mapping[str, Any]
_NOTHING: Final[Json] = {}


def usage_of(answer: Json) -> Usage | None:
    """Usage out of a whole answer or one event of a stream; None where it has none."""
    found = _object(answer, "usageMetadata") or _object(answer, "usage_metadata")
    if found:
        return _gemini(found)
    if isinstance(answer.get("response"), Mapping):
        answer = answer["response"]
    elif isinstance(answer.get("message"), Mapping):
        answer = answer["message"]
    usage = _object(answer, "usage") or _object(_object(answer, "metadata"), "usage")
    if not usage:
        return None
    if "inputTokens" in usage:
        return _bedrock(usage)
    if "prompt_tokens" in usage:
        return _chat(usage, _object(answer, "timings"))
    if "input_tokens" not in usage and "output_tokens" not in usage:
        return None
    if "input_tokens_details" in usage or "total_tokens" in usage:
        return _responses(usage)
    return _anthropic(usage)


class StreamUsage:
    """Usage of one stream, told its events in order (each event's data, parsed).

    Sums in later events are cumulative: each takes the place of the one before, and what it leaves
    out stays as it was (Anthropic's `message_delta` often names the output alone).
    """

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._last: Usage | None = None

    def feed(self, event: Json) -> None:
        """Take the next event."""
        kind = event.get("type")
        if kind == "message_start":
            self._merge(_object(_object(event, "message"), "usage"))
        elif kind == "message_delta":
            self._merge(_object(event, "usage"))
        else:
            self._last = usage_of(event) or self._last

    def usage(self) -> Usage | None:
        """What has been told so far; None where nothing was."""
        return _anthropic(self._usage) if self._usage else self._last

    def _merge(self, usage: Json) -> None:
        self._usage.update({name: value for name, value in usage.items() if value is not None})


def _chat(usage: Json, timings: Json) -> Usage | None:
    details = _object(usage, "prompt_tokens_details")
    total = _count(usage, "prompt_tokens")
    read = _first(
        _count(details, "cached_tokens"),
        _count(usage, "prompt_cache_hit_tokens"),
        _count(timings, "cache_n"),
    )
    wrote = _first(
        _count(details, "cache_write_tokens"),
        _count(details, "created_cache_tokens"),
    )
    long = _count(_object(details, "cache_write_tokens_details"), "ttl_12h_tokens")
    return _usage(total, _count(usage, "completion_tokens"), read, (wrote, long))


def _responses(usage: Json) -> Usage | None:
    details = _object(usage, "input_tokens_details")
    wrote = _count(details, "cache_write_tokens")
    long = _count(_object(details, "cache_write_tokens_details"), "ttl_12h_tokens")
    return _usage(
        _count(usage, "input_tokens"),
        _count(usage, "output_tokens"),
        _count(details, "cached_tokens"),
        (wrote, long),
    )


def _anthropic(usage: Json) -> Usage | None:
    read = _count(usage, "cache_read_input_tokens")
    wrote = _count(usage, "cache_creation_input_tokens")
    long = _count(_object(usage, "cache_creation"), "ephemeral_1h_input_tokens")
    rest = _count(usage, "input_tokens")
    total = None if rest is None else rest + (read or 0) + (wrote or 0)
    return _usage(total, _count(usage, "output_tokens"), read, (wrote, long))


def _bedrock(usage: Json) -> Usage | None:
    read = _count(usage, "cacheReadInputTokens")
    wrote = _count(usage, "cacheWriteInputTokens")
    given = usage.get("cacheDetails")
    details = given if isinstance(given, list) else ()
    hours = [
        _count(item, "inputTokens") or 0
        for item in details
        if isinstance(item, Mapping) and item.get("ttl") == "1h"
    ]
    rest = _count(usage, "inputTokens")
    total = None if rest is None else rest + (read or 0) + (wrote or 0)
    return _usage(total, _count(usage, "outputTokens"), read, (wrote, sum(hours)))


def _gemini(usage: Json) -> Usage | None:
    def count(camel: str, snake: str) -> int | None:
        return _first(_count(usage, camel), _count(usage, snake))

    total = count("promptTokenCount", "prompt_token_count")
    tools = count("toolUsePromptTokenCount", "tool_use_prompt_token_count") or 0
    said = count("candidatesTokenCount", "candidates_token_count") or 0
    thought = count("thoughtsTokenCount", "thoughts_token_count") or 0
    read = count("cachedContentTokenCount", "cached_content_token_count")
    return _usage(None if total is None else total + tools, said + thought, read, (None, None))


def _usage(
    total: int | None, output: int | None, read: int | None, wrote: tuple[int | None, int | None]
) -> Usage | None:
    if total is None:
        return None
    written, long = wrote[0] or 0, wrote[1] or 0
    return Usage(total, output or 0, read or 0, written, min(long, written))


def _count(given: Json, name: str) -> int | None:
    value = given.get(name)
    return value if type(value) is int and value >= 0 else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _object(given: Json, name: str) -> Json:
    value = given.get(name)
    return value if isinstance(value, Mapping) else _NOTHING
