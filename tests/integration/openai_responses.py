"""Complete OpenAI responses of every kind that is replayed."""

from __future__ import annotations

from typing import Any

from anthropic_answers import TRICKY


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A response as `POST /v1/responses` answers it."""
    made: dict[str, Any] = {
        "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
        "object": "response",
        "created_at": 1741476542,
        "status": "completed",
        "completed_at": 1741476545,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": None,
        "model": "gpt-5.6-2026-03-01",
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 3},
            "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 123,
        },
        "user": None,
        "metadata": {},
        "x_unknown": {"b": 1, "a": 2},
    }
    return made | fields


def said(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": list(content),
    }
    return made | fields


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": value, "annotations": [], **fields}


def token(value: str) -> dict[str, Any]:
    return {
        "token": value,
        "bytes": list(value.encode()),
        "logprob": -0.25,
        "top_logprobs": [{"token": value, "bytes": list(value.encode()), "logprob": -0.25}],
    }


LINK = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 4,
    "url": "https://example.com",
    "title": "Example 👩‍🌾",
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [
        {"type": "summary_text", "text": f"**Plan** {TRICKY}"},
        {"type": "summary_text", "text": "**Do**"},
    ],
    "encrypted_content": "gAAAAAB" * 40,
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "lookup",
    "arguments": '{"q":"👩‍👩‍👧‍👦 and a longer text, to take more than one piece","n":1.50}',
    "status": "completed",
}
CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "call_2",
    "name": "shell",
    "input": "ls -la\n" * 20,
    "status": "completed",
}
NOTE = {"type": "vendor_note", "id": "vn_1", "anything": {"b": [1], "a": 2.5}}

ANSWERS: dict[str, dict[str, Any]] = {
    "text": response(said(text(TRICKY * 3, x_unknown=1))),
    "annotations": response(said(text("Some text.", annotations=[LINK, LINK | {"title": "B"}]))),
    "logprobs": response(said(text("Hi 👩‍🌾!", logprobs=[token(t) for t in ("Hi", " 👩‍🌾", "!")]))),
    "strange logprobs": response(said(text("Hi!", logprobs=[token("no")]))),
    "refusal": response(said({"type": "refusal", "refusal": f"I cannot. {TRICKY}"})),
    "two parts": response(said(text("One."), {"type": "vendor_part", "x": 1}, text("Two."))),
    "reasoning": response(REASONING, said(text("Done."))),
    "open reasoning": response(
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": TRICKY}],
            "encrypted_content": None,
            "status": "completed",
        },
        said(text("Done.")),
    ),
    "tools": response(REASONING, CALL, CUSTOM, {**CALL, "id": "fc_2", "call_id": "call_3"}),
    "phases": response(
        said(text("Looking."), phase="commentary"),
        said(text('{"a": 1}'), id="msg_2", phase="final_answer"),
    ),
    "unknown item": response(NOTE, said(text("Done."))),
}
