"""Places in a prompt, as people write them, and the member of a JSON text at a character."""

from __future__ import annotations

from typing import Final

from trivet.prefix.prompts.json_text import JsonText
from trivet.prefix.prompts.outline import Level, Place


def member_at(text: str, low: int, high: int) -> tuple[Place, int]:
    """The innermost member of a JSON object or array that holds the characters `low` to `high`,
    and the character of its value at which `low` is."""
    raw = text.encode("utf-8", "surrogatepass")
    first, last = (len(text[:at].encode("utf-8", "surrogatepass")) for at in (low, high))
    try:
        json = JsonText(raw)
        at, path = json.root, list[str | int]()
        while raw[at] in b"{[":
            inner = next(
                (one for one in json.items(at) if one.start <= first and last <= one.end + 1), None
            )
            if inner is None:
                break
            path.append(inner.name)
            at = inner.value
    except (ValueError, IndexError):
        return (), low
    return tuple(path), max(0, len(raw[at:first].decode("utf-8", "replace")) - (raw[at] == 0x22))


_FIELDS: Final = frozenset(
    ("tools", "functions", "system", "instructions", "messages", "input", "prompt", "contents",
     "content", "parts", "text", "type", "role", "name", "id", "function", "description",
     "parameters", "input_schema", "strict", "properties", "required", "tool_calls", "arguments",
     "tool_use_id", "call_id", "output", "thinking", "signature", "source", "url", "image_url",
     "toolConfig", "toolSpec", "inputSchema", "json", "systemInstruction", "system_instruction",
     "functionDeclarations", "refusal", "annotations", "title", "citations")
)  # fmt: skip
"""Names that the APIs give; others are the caller's own, such as a schema's properties."""


def public(place: Place, char: int) -> tuple[Place, int]:
    """The place as far as it names nothing of the caller's own."""
    for at, step in enumerate(place):
        if isinstance(step, str) and step not in _FIELDS:
            return place[:at], 0
    return place, char


def shown(level: Level, place: Place, char: int) -> str:
    """A place in words: `system, character 143`, `tools[3].description`."""
    named = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    named = named.removeprefix(".")
    if level is Level.SYSTEM and place[:1] in (("system",), ("instructions",)):
        named = named.removesuffix(".text")
    told = named if named.startswith(level.value) else f"{level.value} ({named})"
    return f"{told}, character {char}" if char else told
