"""Outlines of prompts in the native APIs of Gemini and Bedrock."""

from __future__ import annotations

from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import Mark, NativeApi


def test_a_cache_point_is_the_mark_of_the_block_before_it() -> None:
    body = {
        "toolConfig": {"tools": [{"toolSpec": {"name": "t"}}]},
        "system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
        "messages": [{"role": "user", "content": [{"text": "long"}]}, "odd"],
    }
    outline = native_outline(NativeApi.CONVERSE, "anthropic.claude-opus-5", body)
    assert [part.place for part in outline.parts] == [
        ("toolConfig", "tools", 0),
        ("system", 0),
        ("messages", 0, "content", 0),
        ("messages", 1, "content", 0),
    ]
    assert [part.mark for part in outline.parts] == [None, Mark("1h"), None, None]
    assert outline.marks == 1


def test_a_gemini_prompt_has_its_parts_in_their_order() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "a"}, {"inlineData": {"data": "x"}}]}],
        "systemInstruction": {"parts": [{"text": "s"}]},
        "tools": [{"functionDeclarations": []}],
    }
    outline = native_outline(NativeApi.GENERATE, "gemini-2.5-pro", body)
    assert [(part.level.value, part.kind, part.role) for part in outline.parts] == [
        ("tools", "tool", ""),
        ("system", "text", "system"),
        ("messages", "text", "user"),
        ("messages", "image", "user"),
    ]
