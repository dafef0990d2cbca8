"""Usage as each provider reports it, one shape for all. Where a shape was read is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trivet.messages import Usage
from trivet.prefix.backends.usage import StreamUsage, usage_of


def _usage(total: int, output: int, read: int = 0, wrote: int = 0, long: int = 0) -> Usage:
    made = Usage(total, output, read, wrote)
    known = "cache_write_long_tokens" in Usage._fields
    return made._replace(**{"cache_write_long_tokens": long}) if known else made


_SHAPES: dict[str, tuple[dict[str, Any], Usage | None]] = {
    # Case K1 (langfuse#10592): cached tokens are among the prompt's.
    "openai chat": (
        {"usage": {"prompt_tokens": 17903, "completion_tokens": 7,
                   "prompt_tokens_details": {"cached_tokens": 17817, "cache_write_tokens": 80}}},
        _usage(17903, 7, 17817, 80),
    ),
    # openai 3.57.0, types/responses/response_usage.py
    "openai responses": (
        {"object": "response",
         "usage": {"input_tokens": 5000, "output_tokens": 9, "total_tokens": 5009,
                   "input_tokens_details": {
                       "cached_tokens": 2000, "cache_write_tokens": 1000,
                       "cache_write_tokens_details": {"ttl_30m_tokens": 400,
                                                      "ttl_12h_tokens": 600}}}},
        _usage(5000, 9, 2000, 1000, 600),
    ),
    # Case K2 (langfuse#12306): three disjoint sums.
    "anthropic": (
        {"type": "message",
         "usage": {"input_tokens": 5, "cache_read_input_tokens": 128955,
                   "cache_creation_input_tokens": 1253, "output_tokens": 3,
                   "cache_creation": {"ephemeral_5m_input_tokens": 1000,
                                      "ephemeral_1h_input_tokens": 253}}},
        _usage(130213, 3, 128955, 1253, 253),
    ),
    # Case K3 (litellm#14849).
    "gemini native": (
        {"usageMetadata": {"promptTokenCount": 262960, "cachedContentTokenCount": 257955,
                           "candidatesTokenCount": 4, "thoughtsTokenCount": 6}},
        _usage(262960, 10, 257955),
    ),
    # botocore, bedrock-runtime 2023-09-30, TokenUsage
    "bedrock": (
        {"output": {}, "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 112,
                                 "cacheReadInputTokens": 60, "cacheWriteInputTokens": 40,
                                 "cacheDetails": [{"ttl": "1h", "inputTokens": 30},
                                                  {"ttl": "5m", "inputTokens": 10}]}},
        _usage(110, 2, 60, 40, 30),
    ),
    # api-docs.deepseek.com/guides/kv_cache
    "deepseek": (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 64,
                   "prompt_cache_miss_tokens": 36}},
        _usage(100, 1, 64),
    ),
    # vLLM 0.32 with --enable-prompt-tokens-details
    "vllm": (
        {"usage": {"prompt_tokens": 2620, "completion_tokens": 8,
                   "prompt_tokens_details": {"cached_tokens": 2592, "created_cache_tokens": 16}}},
        _usage(2620, 8, 2592, 16),
    ),
    # vLLM and SGLang without their flags
    "no details": (
        {"usage": {"prompt_tokens": 9, "completion_tokens": 8, "prompt_tokens_details": None}},
        _usage(9, 8),
    ),
    # llama-server, tools/server/README.md
    "llama.cpp": (
        {"usage": {"prompt_tokens": 2624, "completion_tokens": 8},
         "timings": {"cache_n": 2611, "prompt_n": 13}},
        _usage(2624, 8, 2611),
    ),
    "none": ({"choices": []}, None),
    "null": ({"usage": None}, None),
    "nonsense": ({"usage": {"prompt_tokens": "9"}}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", _SHAPES)
def test_a_shape_is_read(name: str) -> None:
    answer, wanted = _SHAPES[name]
    assert usage_of(answer) == wanted


def _fed(*events: dict[str, Any]) -> Usage | None:
    stream = StreamUsage()
    for event in events:
        stream.feed(json.loads(json.dumps(event)))
    return stream.usage()


def test_a_chat_stream_tells_it_in_its_last_chunk() -> None:
    chunk = {"choices": [{"delta": {"content": "x"}}], "usage": None}
    last = {"choices": [], "usage": _SHAPES["openai chat"][0]["usage"]}
    assert _fed(chunk, last) == _SHAPES["openai chat"][1]


def test_a_responses_stream_tells_it_when_completed() -> None:
    done = {"type": "response.completed", "response": _SHAPES["openai responses"][0]}
    created = {"type": "response.created", "response": {"object": "response", "usage": None}}
    assert _fed(created, done) == _SHAPES["openai responses"][1]


def test_an_anthropic_stream_tells_it_at_both_ends() -> None:
    start = {"input_tokens": 5, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 20,
             "cache_creation": {"ephemeral_1h_input_tokens": 20}, "output_tokens": 1}  # fmt: skip
    found = _fed(
        {"type": "message_start", "message": {"usage": start}},
        {"type": "content_block_delta", "delta": {}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 40}},
    )
    assert found == _usage(35, 40, 10, 20, 20)


def test_a_message_delta_takes_the_place_of_the_start() -> None:
    found = _fed(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"input_tokens": 9, "output_tokens": 4}},
    )
    assert found == _usage(9, 4)


def test_a_converse_stream_tells_it_in_its_metadata() -> None:
    assert _fed({"usage": _SHAPES["bedrock"][0]["usage"], "metrics": {}}) == _SHAPES["bedrock"][1]
    wrapped = {"metadata": {"usage": _SHAPES["bedrock"][0]["usage"]}}
    assert _fed(wrapped) == _SHAPES["bedrock"][1]


def test_a_gemini_stream_tells_it_in_every_chunk_and_the_last_counts() -> None:
    first = {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}}
    last = {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 8}}
    assert _fed(first, last) == _usage(3, 8)


def test_a_stream_without_usage_tells_none() -> None:
    assert _fed({"choices": []}) is None
