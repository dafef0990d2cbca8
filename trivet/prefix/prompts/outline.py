"""A prompt as the prefix caches see it: parts in the order in which they are read.

All providers read tools before the system prompt before the messages, and a change in one part
makes everything after it a new prefix (https://platform.claude.com/docs/en/build-with-claude/
prompt-caching). An outline is made from a parsed body, holds no I/O and no clock, and is the one
view that placement, the layout doctor, the simulators and the routers work on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from trivet.canonical import digest, dump
from trivet.messages import Api
from trivet.prefix.prompts.tokens import estimate_tokens

Place = tuple[str | int, ...]
"""The way to a part in the body: `("messages", 3, "content", 0)`."""


class NativeApi(StrEnum):
    """APIs that no dialect reads, whose prompts have an outline all the same (`native_outline`)."""

    GENERATE = "generate-content"
    CONVERSE = "converse"


class Level(StrEnum):
    """The three stretches of a prompt, in their order."""

    TOOLS = "tools"
    SYSTEM = "system"
    MESSAGES = "messages"


class Mark(NamedTuple):
    """A breakpoint that the caller set: `ttl` as written, empty for the provider's default."""

    ttl: str = ""


class Part(NamedTuple):
    """One piece of the prompt: a tool, a content block, a message whose content is a string."""

    level: Level
    place: Place
    kind: str
    """`tool`, `text`, `image`, `document`, `tool_use`, `tool_result`, `thinking`, `call`, or the
    block's own type."""
    role: str
    """Of its message; empty for tools."""
    content: bytes
    """Compact JSON of the piece without markers, key order kept."""
    tokens: int
    """Estimated."""
    mark: Mark | None = None


class Setting(NamedTuple):
    """A field beside the prompt that the prefix depends on, from `level` on."""

    level: Level
    name: str
    value: bytes
    """Compact JSON; `null` where the field is absent."""


class Outline(NamedTuple):
    """A whole prompt."""

    api: Api | NativeApi
    model: str
    parts: tuple[Part, ...]
    settings: tuple[Setting, ...] = ()
    automatic: Mark | None = None
    """The caller asked for the breakpoint that moves with the conversation."""
    mode: str = ""
    """`prompt_cache_options.mode` (OpenAI) as written: `explicit` means no breakpoint but those in
    the parts."""
    ttl: str = ""
    """`prompt_cache_options.ttl` (OpenAI) as written: of the breakpoints that name none."""
    retention: str = ""
    """`prompt_cache_retention` (OpenAI) as written."""
    cut: bool = False
    """Whether there are more parts than these."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole prompt."""
        return sum(part.tokens for part in self.parts)

    @property
    def marks(self) -> int:
        """Breakpoints that the caller set, the automatic one counted."""
        return sum(part.mark is not None for part in self.parts) + (self.automatic is not None)


MARKERS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Fields of a block that ask for caching and are no content."""


def outline_of(api: Api, body: Mapping[str, Any], most: int | None = None) -> Outline:
    """The outline of a body of the OpenAI or Anthropic APIs, parsed with its key order kept: its
    first `most` parts.

    Never raises: what has another shape than documented becomes a part of its own type, so that
    two different prompts differ in their outlines too.
    """
    settings = _settings(api, body)
    walked = _PARTS.get(api, _no_parts)(body)
    parts = tuple(islice(walked, most))
    cut = most is not None and next(walked, None) is not None
    asked = _cache_options(body)
    return Outline(api, str(body.get("model", "")), parts, settings, _mark(body), *asked, cut)


def chain(outline: Outline) -> tuple[bytes, ...]:
    """For each part, a SHA-256 over it and everything the provider reads before it, settings and
    model included. Equal digests: equal prefixes up to there."""
    made = []
    parent = digest(b"trivet-outline", outline.api.encode(), _text(outline.model))
    reached = 0
    for part in outline.parts:
        depth = LEVELS.index(part.level) + 1
        if depth > reached:
            parent = enter(parent, LEVELS[reached:depth], outline.settings)
            reached = depth
        parent = digest(parent, _text(part.kind), _text(part.role), part.content)
        made.append(parent)
    return tuple(made)


LEVELS: Final = tuple(Level)
"""In the order in which they are read."""


def enter(parent: bytes, levels: Sequence[Level], settings: Sequence[Setting]) -> bytes:
    """The digest before the first part of the last of `levels`, which come after `parent`: a level
    without parts has settings all the same."""
    own = [
        item for one in settings if one.level in levels for item in (one.name.encode(), one.value)
    ]
    return digest(parent, levels[-1].encode(), *own)


def _no_parts(body: Mapping[str, Any]) -> Iterator[Part]:
    return iter(())


def _messages_api(body: Mapping[str, Any]) -> Iterator[Part]:
    yield from _tools(body.get("tools"), "tools")
    yield from _blocks(Level.SYSTEM, ("system",), "system", body.get("system"))
    for index, message in enumerate(_items(body.get("messages"))):
        yield from _message(Level.MESSAGES, ("messages", index), message)


def _chat(body: Mapping[str, Any]) -> Iterator[Part]:
    yield from _tools(body.get("tools"), "tools")
    yield from _tools(body.get("functions"), "functions")
    level = Level.SYSTEM
    for index, message in enumerate(_items(body.get("messages"))):
        if not (isinstance(message, dict) and message.get("role") in _SYSTEM_ROLES):
            level = Level.MESSAGES
        yield from _message(level, ("messages", index), message)


def _responses(body: Mapping[str, Any]) -> Iterator[Part]:
    yield from _tools(body.get("tools"), "tools")
    yield from _blocks(Level.SYSTEM, ("instructions",), "system", body.get("instructions"))
    given = body.get("input")
    if not isinstance(given, list):
        yield from _blocks(Level.MESSAGES, ("input",), "user", given)
        return
    level = Level.SYSTEM
    for index, item in enumerate(given):
        if not (isinstance(item, dict) and item.get("role") in _SYSTEM_ROLES):
            level = Level.MESSAGES
        yield from _message(level, ("input", index), item)


def _completions(body: Mapping[str, Any]) -> Iterator[Part]:
    yield from _blocks(Level.MESSAGES, ("prompt",), "user", body.get("prompt"))


_PARTS: Final = {
    Api.MESSAGES: _messages_api,
    Api.CHAT: _chat,
    Api.RESPONSES: _responses,
    Api.COMPLETIONS: _completions,
}
_SYSTEM_ROLES: Final = ("system", "developer")


def _tools(tools: Any, name: str) -> Iterator[Part]:
    for index, tool in enumerate(_items(tools)):
        yield _part(Level.TOOLS, (name, index), ("tool", ""), tool)


def _message(level: Level, place: Place, message: Any) -> Iterator[Part]:
    """A string content is one part with its message; a list is one part for each block, and one
    more for what the message holds beside them."""
    if not isinstance(message, dict):
        yield _part(level, place, ("other", ""), message)
        return
    role = message["role"] if isinstance(message.get("role"), str) else ""
    content = message.get("content")
    if not isinstance(content, list):
        kind = "text" if "content" in message else _kind(message.get("type", "call"))
        yield _part(level, place, (kind, role), message)
        return
    yield from _blocks(level, (*place, "content"), role, content)
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    rest.pop("type", None)
    if rest.keys() - MARKERS:
        yield _part(level, place, ("call", role), rest)


def _blocks(level: Level, place: Place, role: str, content: Any) -> Iterator[Part]:
    if content is None:
        return
    if not isinstance(content, list):
        yield _part(level, place, ("text", role), content)
        return
    for index, block in enumerate(content):
        kind = _kind(block.get("type", "text") if isinstance(block, dict) else "text")
        yield _part(level, (*place, index), (kind, role), block)


def _kind(given: Any) -> str:
    """A word of the APIs: a caller's own could be anything, and kinds are shown and recorded."""
    if not isinstance(given, str):
        return "other"
    kind = _KINDS.get(given, given)
    return kind if kind in _KNOWN_KINDS else "other"


_KINDS: Final = {
    "input_text": "text",
    "output_text": "text",
    "image_url": "image",
    "input_image": "image",
    "input_file": "document",
    "file": "document",
    "redacted_thinking": "thinking",
}
# fmt: off
_KNOWN_KINDS: Final = frozenset(
    {
        "text", "image", "audio", "input_audio", "video", "document", "tool", "tool_use",
        "tool_result", "thinking", "reasoning", "refusal", "call", "message", "function_call",
        "function_call_output", "custom_tool_call", "custom_tool_call_output", "computer_call",
        "computer_call_output", "local_shell_call", "local_shell_call_output", "shell_call",
        "shell_call_output", "apply_patch_call", "apply_patch_call_output", "web_search_call",
        "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "item_reference",
        "compaction", "server_tool_use", "mcp_tool_use", "mcp_tool_result",
        "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
        "search_result", "container_upload", "tool_reference",
    }
)
# fmt: on


def _part(level: Level, place: Place, named: tuple[str, str], value: Any) -> Part:
    kind, role = named
    content = dump(_unmarked(value))
    tokens = estimate_tokens(kind, content)
    return Part(level, place, kind, role, content, tokens, _mark(value))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict) and not MARKERS.isdisjoint(value):
        return {key: item for key, item in value.items() if key not in MARKERS}
    return value


def _mark(value: Any) -> Mark | None:
    if not isinstance(value, Mapping):
        return None
    for name in MARKERS:
        found = value.get(name)
        if isinstance(found, dict):
            ttl = found.get("ttl")
            return Mark(ttl if isinstance(ttl, str) else "")
    return _mark_within(value)


def _mark_within(block: Mapping[str, Any]) -> Mark | None:
    """A breakpoint on what a tool result or a document consists of: it counts like any other."""
    source = block.get("source")
    for within in (block.get("content"), source if isinstance(source, Mapping) else None):
        pieces = within if isinstance(within, list) else (within,)
        for piece in pieces:
            if isinstance(piece, Mapping) and (found := _mark(piece)) is not None:
                return found
    return None


def _cache_options(body: Mapping[str, Any]) -> tuple[str, str, str]:
    options = body.get("prompt_cache_options")
    given = options if isinstance(options, Mapping) else {}
    found = (given.get("mode"), given.get("ttl"), body.get("prompt_cache_retention"))
    mode, ttl, retention = (one if isinstance(one, str) else "" for one in found)
    return mode, ttl, retention


_SETTINGS: Final[Mapping[Api, tuple[tuple[Level, str], ...]]] = {
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching, what invalidates what.
    Api.MESSAGES: (
        (Level.SYSTEM, "speed"),
        (Level.MESSAGES, "tool_choice"),
        (Level.MESSAGES, "thinking"),
        (Level.MESSAGES, "output_config"),
    ),
    # https://platform.openai.com/docs/guides/prompt-caching: the tools' level stands for all.
    Api.CHAT: tuple(
        (Level.TOOLS, name)
        for name in (
            "parallel_tool_calls",
            "response_format",
            "reasoning_effort",
            "verbosity",
            "service_tier",
        )
    ),
    Api.RESPONSES: tuple(
        (Level.TOOLS, name) for name in ("parallel_tool_calls", "text", "reasoning", "service_tier")
    ),
}


def _settings(api: Api, body: Mapping[str, Any]) -> tuple[Setting, ...]:
    return tuple(
        Setting(level, name, dump(body.get(name))) for level, name in _SETTINGS.get(api, ())
    )


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    return () if value is None else (value,)


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
