"""Anthropic Messages requests: what is keyed, and what makes one uncacheable.

https://platform.claude.com/docs/en/api/messages. Every field is keyed unless it is in `TRANSPORT`;
`cache_control` is left out at the places where the API defines it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trivet import canonical
from trivet.middleware.dialects.base import as_items, as_mapping
from trivet.middleware.dialects.bodies import is_zero
from trivet.middleware.dialects.call_ids import in_messages, with_original_ids
from trivet.middleware.dialects.openai_shapes import as_integer

TRANSPORT: Final = frozenset(
    {
        "stream",
        "metadata",
        "service_tier",
        "user_profile_id",
        "billing_policy",
        "cache_control",
        "diagnostics",
    }
)
NUMERIC: Final = frozenset({"max_tokens", "temperature", "top_p", "top_k"})

_CLIENT_TOOLS: Final = ("bash_", "text_editor_", "memory_", "computer_", "browser_")
"""Prefixes of the dated types of tools that the caller runs."""

_STATEFUL: Final = {
    "thread": "thread",
    "container": "container",
    "mcp_servers": "mcp-servers",
    "fallback_credit_token": "fallback-credit-token",
    "compaction": "compaction",
}


def canonical_form(body: dict[str, Any]) -> bytes:
    """The keyed bytes of a request."""
    kept: dict[str, Any] = {}
    for field in sorted(body):
        if field in TRANSPORT:
            continue
        value = body[field]
        if field == "messages":
            value = with_original_ids([_message(message) for message in value], in_messages)
        elif field in ("system", "tools") and type(value) is list:
            value = [_unmarked(item) for item in value]
        elif field in NUMERIC:
            value = as_integer(value)
        kept[field] = value
    return canonical.dump(kept)


def _message(message: dict[str, Any]) -> dict[str, Any]:
    kept = canonical.envelope(message)
    content = message.get("content")
    if type(content) is str:
        # Documented shorthand for one text block.
        kept["content"] = [{"type": "text", "text": content}]
    elif type(content) is list:
        kept["content"] = [_block(block) for block in content]
    return kept


def _block(block: Any) -> Any:
    block = _unmarked(block)
    if type(block) is dict and block.get("type") == "tool_result":
        inner = block.get("content")
        if type(inner) is list:
            return {**block, "content": [_block(item) for item in inner]}
    return block


def _unmarked(item: Any) -> Any:
    if type(item) is dict and "cache_control" in item:
        return {key: value for key, value in item.items() if key != "cache_control"}
    return item


def has_tools(body: dict[str, Any]) -> bool:
    """Whether the model may call anything, tools defined in mid-conversation included."""
    return bool(body.get("tools")) or any(
        block.get("type") == "tool_addition"
        for message in as_items(body.get("messages"))
        for block in as_items(message.get("content"))
        if type(block) is dict
    )


def uncacheable(body: dict[str, Any]) -> str | None:
    """Why no cache may answer; `remote-image` only if there is no other reason."""
    if is_zero(body.get("max_tokens")):
        return "prewarm"
    if not body.get("messages"):
        # What a server makes of it is its own affair.
        return "no-messages"
    for field, reason in _STATEFUL.items():
        if body.get(field) not in (None, []):
            return reason
    edits = as_items(as_mapping(body.get("context_management")).get("edits"))
    if any(str(as_mapping(edit).get("type")).startswith("compact") for edit in edits):
        return "compaction"
    if any(_hosted(as_mapping(tool)) for tool in as_items(body.get("tools"))):
        return "hosted-tool"
    return _content_reason(body)


def _hosted(tool: dict[str, Any]) -> bool:
    kind = tool.get("type")
    if kind is None or kind == "custom":
        return False
    return not (type(kind) is str and kind.startswith(_CLIENT_TOOLS))


def _content_reason(body: dict[str, Any]) -> str | None:
    remote = False
    for message in as_items(body.get("messages")):
        for block in _blocks(message.get("content")):
            kind = block.get("type")
            source = as_mapping(block.get("source")).get("type")
            if source == "file" or kind == "container_upload":
                return "file-id"
            if kind == "tool_addition" and _adds_hosted(block):
                return "hosted-tool"
            remote = remote or source == "url"
    return "remote-image" if remote else None


def _adds_hosted(block: dict[str, Any]) -> bool:
    return _hosted(as_mapping(as_mapping(block.get("tool")).get("definition")))


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    """All blocks, those inside tool results and inside documents made of blocks included."""
    for item in as_items(content):
        block = as_mapping(item)
        yield block
        yield from _blocks(block.get("content"))
        yield from _blocks(as_mapping(block.get("source")).get("content"))
