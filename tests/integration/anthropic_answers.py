"""Complete Anthropic messages of every kind that is replayed."""

from __future__ import annotations

from typing import Any

TRICKY = (
    "Familie: 👩‍👩‍👧‍👦, naïve vs nai\u0308ve, line\u2028separator, \r\n windows, tab\t,"
    ' "quoted" \\ back, data: [DONE]\n\nevent: error\n\n und dazu noch ein wenig mehr Text, damit'
    " die Antwort in mehreren Stücken kommt. 日本語の文章もここにあります。"
)


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A message as `POST /v1/messages` answers it."""
    made: dict[str, Any] = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 1253,
            "cache_read_input_tokens": 128955,
            "cache_creation": {"ephemeral_5m_input_tokens": 1253, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 421,
            "output_tokens_details": {"thinking_tokens": 12},
            "service_tier": "standard",
            "x_unknown": {"deep": [1, 2.5]},
        },
    }
    return made | fields


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def tool_use(number: int, value: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made = {"type": "tool_use", "id": f"toolu_{number:02d}", "name": "lookup", "input": value}
    return made | fields


CITATION = {
    "type": "char_location",
    "cited_text": "The grass is green. ",
    "document_index": 0,
    "document_title": "Facts 👩‍🌾",
    "start_char_index": 0,
    "end_char_index": 20,
    "file_id": None,
}
THINKING = {
    "type": "thinking",
    "thinking": f"Let me see. {TRICKY}",
    "signature": "EqQBCgIYAhIM" * 20,
}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a"}
UNSIGNED = {"type": "thinking", "thinking": "From another provider.", "signature": ""}
SEARCH = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://example.com",
            "title": "Example",
            "encrypted_content": "Eqgf",
            "page_age": None,
        }
    ],
}
SERVER_USE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "weather 👩‍🌾"},
}

ANSWERS: dict[str, dict[str, Any]] = {
    "text": message(text(TRICKY)),
    "citations": message(
        text("The grass is green", citations=[CITATION, {**CITATION, "document_index": 1}]),
        text(" and the sky is blue.", citations=None),
        text("No list.", citations=[]),
    ),
    "thinking": message(THINKING, REDACTED, text(TRICKY * 5, x_unknown={"b": 1, "a": [None]})),
    "unsigned thinking": message(UNSIGNED, text("Done.")),
    "tools": message(
        THINKING,
        text("I will look."),
        tool_use(1, {"q": TRICKY, "z": {"b": 1, "a": [1.5, None, True]}}, x_unknown=[1]),
        tool_use(2, {}, caller={"type": "direct"}),
        stop_reason="tool_use",
    ),
    "refusal": message(
        text("I cannot help"),
        stop_reason="refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "No."},
    ),
    "empty refusal": message(stop_reason="refusal"),
    "stop sequence": message(text("A, B"), stop_reason="stop_sequence", stop_sequence="\n\nC"),
    "no extras": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [text("hi")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}
UNRECORDED: dict[str, dict[str, Any]] = {
    "server tools": message(text("Searching."), SERVER_USE, SEARCH, text("Found.")),
}
"""Kinds that are rendered but never stored."""
