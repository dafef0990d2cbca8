"""One request of each API with every documented field (wire.md, B1), and what travels along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trivet.messages import Api
from trivet.middleware.dialects import embeddings
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.completions import CompletionsDialect
from trivet.middleware.dialects.messages import MessagesDialect
from trivet.middleware.dialects.responses import ResponsesDialect

Body = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"enum": [1, "x"]}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
SERVERS: Body = {
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "min_tokens": 1,
    "stop_token_ids": [1, 2],
    "ignore_eos": False,
    "skip_special_tokens": True,
    "truncate_prompt_tokens": 9,
    "guided_json": SCHEMA,
    "guided_regex": "a+",
    "structured_outputs": {"json": SCHEMA},
    "grammar": "root ::= x",
    "chat_template": "{{ x }}",
    "chat_template_kwargs": {"enable_thinking": True, "a": 1},
    "documents": [{"title": "t", "text": "x"}],
    "add_generation_prompt": True,
    "continue_final_message": False,
    "bad_words": ["x"],
    "thinking_token_budget": 7,
    "include_reasoning": True,
    "mm_processor_kwargs": {"crops": 2},
    "lora_path": "adapter",
    "num_ctx": 2048,
}
SERVERS_CARRY: Body = {
    "cache_salt": "s",
    "extra_key": "e",
    "priority": 1,
    "request_id": "r",
    "rid": "r",
    "session_id": "s",
    "stream_interval": 4,
    "cache_prompt": True,
    "id_slot": 1,
}
STREAM: Body = {"stream": True, "stream_options": {"include_usage": True}}
CHAT: Body = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": "be kind", "name": "n"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
                {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ],
    "audio": {"voice": "alloy"},
    "frequency_penalty": 0.5,
    "function_call": "auto",
    "functions": [{"name": "g", "parameters": SCHEMA}],
    "logit_bias": {"50256": -100, "1": 5},
    "logprobs": True,
    "top_logprobs": 2,
    "max_completion_tokens": 50,
    "max_tokens": 60,
    "modalities": ["text"],
    "moderation": {"model": "m"},
    "n": 2,
    "parallel_tool_calls": True,
    "prediction": {"type": "content", "content": "x"},
    "presence_penalty": 1,
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    "seed": 7,
    "stop": ["x", "y"],
    "temperature": 0,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "tools": [TOOL, {**TOOL, "x": 1}],
    "top_p": 0.9,
    "verbosity": "low",
    "web_search_options": {},
    **SERVERS,
}
CHAT_CARRY: Body = {
    **STREAM,
    "user": "u",
    "safety_identifier": "s",
    "metadata": {"a": "b"},
    "store": False,
    "service_tier": "auto",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "cache": {"no-cache": True, "ttl": 5},
    **SERVERS_CARRY,
}
COMPLETIONS: Body = {
    "model": "gpt-instruct",
    "prompt": ["a", "b"],
    "suffix": "s",
    "best_of": 2,
    "echo": False,
    "frequency_penalty": 0.5,
    "logit_bias": {"1": 5},
    "logprobs": 1,
    "max_tokens": 5,
    "n": 1,
    "presence_penalty": 1,
    "seed": 3,
    "stop": "x",
    "temperature": 0,
    "top_p": 1,
    **SERVERS,
}
COMPLETIONS_CARRY: Body = {**STREAM, "user": "u", "cache": {"no-store": False}, **SERVERS_CARRY}
RESPONSES: Body = {
    "model": "gpt-5",
    "input": [
        {"role": "developer", "content": "be kind"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "x"}},
                {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "low"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zz"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ],
    "instructions": "do",
    "max_output_tokens": 50,
    "max_tool_calls": 3,
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "temperature": 0,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"},
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}, {"type": "web_search"}],
    "top_logprobs": 1,
    "top_p": 1,
    "truncation": "auto",
    "include": ["reasoning.encrypted_content"],
    "moderation": {"model": "m"},
    "image": {"context_compression": "x"},
    "prompt": {"id": "p", "version": "1", "variables": {"v": "x"}},
    "access_programs": ["a"],
    "context_management": [{"type": "compaction"}],
    "multi_agent": {"a": 1},
    "background": False,
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "store": False,
    "num_ctx": 2048,
}
RESPONSES_CARRY: Body = {
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "metadata": {"a": "b"},
    "user": "u",
    "safety_identifier": "s",
    "service_tier": "auto",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "cache": {"s-maxage": 5},
}
MARK = {"type": "ephemeral"}
MESSAGES: Body = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "be kind", "cache_control": MARK}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi", "cache_control": MARK},
                {"type": "image", "source": {"type": "base64", "data": "QQ=="}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "zz"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": [1.0]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "4", "cache_control": MARK}],
                }
            ],
        },
        {"role": "user", "content": "go on"},
    ],
    "stop_sequences": ["x", "y"],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "tools": [{"name": "f", "input_schema": SCHEMA, "cache_control": MARK}],
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "temperature": 0,
    "top_p": 1,
    "top_k": 5,
    "inference_geo": "eu",
    "speed": "fast",
    "container": {"skills": [{"skill_id": "pdf"}]},
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "mcp_servers": [{"type": "url", "url": "u"}],
    "fallbacks": [{"model": "b"}],
    "thread": {"id": "t"},
    "compaction": {"type": "auto"},
    "num_ctx": 2048,
}
MESSAGES_CARRY: Body = {
    "stream": True,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "user_profile_id": "p",
    "billing_policy": {"a": 1},
    "cache_control": MARK,
    "diagnostics": {"previous_message_id": None},
    "cache": {"no-cache": False},
}
EMBEDDINGS: Body = {
    "model": "text-embedding-3",
    "input": ["a", "b", "ab"],
    "dimensions": 8,
    "task": "query",
    "num_ctx": 2048,
}
EMBEDDINGS_CARRY: Body = {"user": "u", "encoding_format": "base64", "cache": {"ttl": 5}}

NUMBERS = frozenset(
    (
        "frequency_penalty",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "temperature",
        "top_logprobs",
        "top_p",
        "max_output_tokens",
        "max_tool_calls",
    )
)
SERVER_NUMBERS = frozenset(("top_k", "min_p", "repetition_penalty", "min_tokens"))
CHAT_NULLABLE = frozenset(
    (
        "audio",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "modalities",
        "n",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "seed",
        "stop",
        "temperature",
        "top_logprobs",
        "top_p",
        "verbosity",
    )
)
COMPLETIONS_NULLABLE = frozenset(
    (
        "best_of",
        "echo",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "stop",
        "suffix",
        "temperature",
        "top_p",
    )
)


@dataclass(frozen=True)
class Case:
    """One API: a body with every field, what travels along, and what its documents equate."""

    api: Api
    body: Body
    carried: Body
    forms: Callable[[bytes], tuple[bytes, ...]]
    """The canonical forms of a request: one, or one for each item."""
    requests: int
    required: frozenset[str]
    numbers: frozenset[str]
    nullable: frozenset[str] = frozenset()
    unordered: str | None = None
    """The list whose items are objects without an order of fields."""
    marks: str | None = None
    """The cache mark inside content parts."""
    transport: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "transport", frozenset(self.carried))


def one_form(dialect: Any) -> Callable[[bytes], tuple[bytes, ...]]:
    return lambda raw: (dialect.decode(raw, {}).canonical,)


CASES = [
    Case(
        Api.CHAT,
        CHAT,
        CHAT_CARRY,
        one_form(ChatDialect()),
        70_000,
        frozenset(("model", "messages")),
        NUMBERS | SERVER_NUMBERS,
        CHAT_NULLABLE,
        "messages",
        "prompt_cache_breakpoint",
    ),
    Case(
        Api.RESPONSES,
        RESPONSES,
        RESPONSES_CARRY,
        one_form(ResponsesDialect()),
        50_000,
        frozenset(("model", "input")),
        NUMBERS - {"n"},
        frozenset(),
        "input",
        "prompt_cache_breakpoint",
    ),
    Case(
        Api.MESSAGES,
        MESSAGES,
        MESSAGES_CARRY,
        one_form(MessagesDialect()),
        50_000,
        frozenset(("model", "messages", "max_tokens")),
        frozenset(("max_tokens", "temperature", "top_p", "top_k")),
        frozenset(),
        "messages",
        "cache_control",
    ),
    Case(
        Api.COMPLETIONS,
        COMPLETIONS,
        COMPLETIONS_CARRY,
        one_form(CompletionsDialect()),
        25_000,
        frozenset(("model", "prompt")),
        (NUMBERS | SERVER_NUMBERS | {"best_of", "logprobs"})
        - {"max_completion_tokens", "top_logprobs"},
        COMPLETIONS_NULLABLE,
    ),
    Case(
        Api.EMBEDDINGS,
        EMBEDDINGS,
        EMBEDDINGS_CARRY,
        lambda raw: embeddings.decode(raw, {}).canonicals,
        15_000,
        frozenset(("model", "input")),
        frozenset(),
    ),
]
