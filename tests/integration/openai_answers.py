"""Complete OpenAI answers of every kind that is replayed."""

from __future__ import annotations

from typing import Any

TRICKY = (
    "Familie: 👩‍👩‍👧‍👦, naïve vs nai\u0308ve, line\u2028separator, \r\n windows, tab\t,"
    ' "quoted" \\ back, data: [DONE]\n\nevent: error\n\n und dazu noch ein wenig mehr Text, damit'
    " die Antwort in mehreren Stücken kommt. 日本語の文章もここにあります。"
)
USAGE = {
    "prompt_tokens": 17903,
    "completion_tokens": 3,
    "total_tokens": 17906,
    "prompt_tokens_details": {"cached_tokens": 17817, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


def tokens(text: str, size: int = 3) -> list[dict[str, Any]]:
    """Logprob entries that cut the text's bytes without regard for characters."""
    raw = text.encode()
    parts = [raw[start : start + size] for start in range(0, len(raw), size)]
    return [
        {
            "token": part.decode(errors="backslashreplace"),
            "bytes": list(part),
            "logprob": -0.0013,
            "top_logprobs": [{"token": "x", "bytes": [120], "logprob": -9.5}],
        }
        for part in parts
    ]


def choice(index: int = 0, finish: str = "stop", logprobs: Any = None, **fields: Any) -> Any:
    message = {"role": "assistant", "content": TRICKY, "refusal": None} | fields
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}


def chat(*choices: Any, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": "chatcmpl-BqWx1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-6-astra",
        "choices": list(choices) or [choice()],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }
    return made | fields


def call(number: int, arguments: str) -> dict[str, Any]:
    function = {"name": f"tool_{number}", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


LONG = '{"text": "%s", "emoji": "👩‍👩‍👧‍👦"}' % ("many words and " * 20)
CUSTOM = {"id": "call_c", "type": "custom", "custom": {"name": "run", "input": TRICKY}}
CITATION = {
    "type": "url_citation",
    "url_citation": {"url": "https://a", "title": "A", "start_index": 0, "end_index": 5},
}
THOUGHT = {"index": 0, "type": "reasoning.text", "format": "v1", "text": TRICKY, "signature": "s="}

CHATS: dict[str, dict[str, Any]] = {
    "text": chat(),
    "short": chat(choice(content="Hi.")),
    "tool": chat(choice(finish="tool_calls", content=None, tool_calls=[call(0, LONG)])),
    "parallel tools": chat(
        choice(
            finish="tool_calls",
            content="One moment.",
            tool_calls=[call(0, LONG), call(1, "{}"), call(2, "")],
        )
    ),
    "function call": chat(
        choice(finish="function_call", content=None, function_call={"name": "f", "arguments": LONG})
    ),
    "refusal": chat(choice(content=None, refusal=f"I'm sorry. {TRICKY}")),
    "three choices": chat(choice(0), choice(1, content="Second."), choice(2, content=TRICKY * 9)),
    "logprobs": chat(choice(logprobs={"content": tokens(TRICKY), "refusal": None})),
    "logprobs of three": chat(
        *(
            choice(index, logprobs={"content": tokens(TRICKY), "refusal": None})
            for index in range(3)
        )
    ),
    "logprobs of a refusal": chat(
        choice(
            content=None,
            refusal="No. " * 9,
            logprobs={"content": None, "refusal": tokens("No. " * 9)},
        )
    ),
    "logprobs that do not spell the text": chat(
        choice(logprobs={"content": tokens("something else"), "refusal": None})
    ),
    "logprobs of a tool call": chat(
        choice(
            finish="tool_calls",
            content=None,
            tool_calls=[call(0, "{}")],
            logprobs={"content": tokens("{}"), "refusal": None},
        )
    ),
    "empty logprobs": chat(choice(logprobs={"content": None, "refusal": None})),
    "reasoning": chat(
        choice(reasoning_content=TRICKY * 3, reasoning=TRICKY, reasoning_details=[THOUGHT])
    ),
    "annotations": chat(choice(annotations=[CITATION])),
    "no annotations": chat(choice(annotations=[])),
    "vendor fields": chat(
        choice(provider_specific_fields={"a": [1, None]}), citations=["https://a"]
    ),
    "without usage": {name: value for name, value in chat().items() if name != "usage"},
    "long": chat(choice(content="Long words follow here. " * 4000)),
}

UNHELPED = {
    "custom tool": chat(
        choice(finish="tool_calls", content=None, tool_calls=[CUSTOM, call(1, LONG)])
    )
}
"""What the SDK reads from raw chunks, but its stream helper breaks on (openai 3.57)."""

COMPLETIONS: dict[str, dict[str, Any]] = {
    "text": {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "gpt-3.5-turbo-instruct",
        "choices": [{"text": TRICKY, "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    "two with logprobs": {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "gpt-3.5-turbo-instruct",
        "choices": [
            {
                "text": "".join(words),
                "index": index,
                "logprobs": {
                    "tokens": words,
                    "token_logprobs": [-0.1 * place for place in range(len(words))],
                    "top_logprobs": [{word: -0.1} for word in words],
                    "text_offset": list(range(len(words))),
                },
                "finish_reason": "stop",
            }
            for index, words in enumerate((["Once ", "upon"], ["👩‍👩", "\u2028", "\r\n"]))
        ],
        "usage": USAGE,
    },
}
