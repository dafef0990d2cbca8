"""OpenAI Responses requests: what is keyed, what is echoed, what makes one uncacheable.

https://platform.openai.com/docs/api-reference/responses/create. Every field is keyed unless it is
in `TRANSPORT`, or a member of `stream_options` that shapes the delivery alone. `store` is keyed: it
decides whether the answer's id names state at the provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trivet import canonical
from trivet.middleware.dialects.base import as_items, as_mapping
from trivet.middleware.dialects.call_ids import in_responses, with_original_ids
from trivet.middleware.dialects.openai_shapes import as_integer, keyed_stream_options

TRANSPORT: Final = frozenset(
    {
        "stream",
        "metadata",
        "user",
        "safety_identifier",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    }
)
NUMERIC: Final = frozenset(
    {"temperature", "top_p", "top_logprobs", "max_output_tokens", "max_tool_calls"}
)

_NEUTRAL: Final[dict[str, Any]] = {
    "metadata": {},
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
    "prompt_cache_retention": None,
    "service_tier": "default",
}
"""Fields that the API repeats in its answer, and what it answers when the request has none."""


def canonical_form(body: dict[str, Any]) -> bytes:
    """The keyed bytes of a request."""
    kept: dict[str, Any] = {}
    for field in sorted(body):
        if field in TRANSPORT:
            continue
        value = body[field]
        if field == "stream_options":
            value = keyed_stream_options(value)
            if not value:
                continue
        if field == "input" and type(value) is list:
            value = with_original_ids([_item(item) for item in value], in_responses)
        elif field in NUMERIC:
            value = as_integer(value)
        kept[field] = value
    return canonical.dump(kept)


def _item(item: dict[str, Any]) -> dict[str, Any]:
    kept = canonical.envelope(item)
    for field in ("content", "output"):
        if type(kept.get(field)) is list:
            kept[field] = [_unmarked(part) for part in kept[field]]
    return kept


def _unmarked(part: Any) -> Any:
    if type(part) is dict and "prompt_cache_breakpoint" in part:
        return {key: value for key, value in part.items() if key != "prompt_cache_breakpoint"}
    return part


def echo_of(body: dict[str, Any]) -> dict[str, Any]:
    """The fields that an answer to this request repeats.

    `service_tier: auto` is not repeated: the API answers with the tier that it chose.
    """
    found = {
        field: body[field]
        for field in _NEUTRAL
        if body.get(field) is not None and not (field == "service_tier" and body[field] == "auto")
    }
    options = as_mapping(found.get("prompt_cache_options"))
    if "prewarm" in options:
        found["prompt_cache_options"] = {k: v for k, v in options.items() if k != "prewarm"}
    return found


def neutral(response: dict[str, Any], echo: dict[str, Any]) -> dict[str, Any]:
    """The response as if the request had given none of the echoed fields: what is stored."""
    changed = {field: _NEUTRAL[field] for field in echo if field in response}
    return {**response, **changed} if changed else response


def echoed(response: dict[str, Any], echo: dict[str, Any]) -> dict[str, Any]:
    """The stored response as an answer to the request that gave `echo`."""
    made = {**response, **echo}
    if "prompt_cache_options" in echo:
        recorded = as_mapping(response.get("prompt_cache_options"))
        made["prompt_cache_options"] = {**recorded, **as_mapping(echo["prompt_cache_options"])}
    return made


_OF_THE_CALLER: Final = ("metadata", "user", "safety_identifier", "prompt_cache_key")


def echoed_live(response: dict[str, Any], echo: dict[str, Any]) -> dict[str, Any]:
    """The response of a shared live stream, without what the one who led it had given."""
    own: dict[str, Any] = {field: _NEUTRAL[field] for field in _OF_THE_CALLER if field in response}
    return echoed({**response, **own}, echo)


def has_tools(body: dict[str, Any]) -> bool:
    """Whether the model may call anything."""
    return any(True for _ in _tools(body))


def uncacheable(body: dict[str, Any]) -> str | None:
    """Why no cache may answer; `remote-image` only if there is no other reason."""
    return _state_reason(body) or _tool_reason(body) or _input_reason(body)


def _state_reason(body: dict[str, Any]) -> str | None:
    if body.get("background") or body.get("background_options") is not None:
        return "background"
    if body.get("previous_response_id") is not None or body.get("conversation") is not None:
        return "stored-conversation"
    prompt = body.get("prompt")
    if prompt is not None and as_mapping(prompt).get("version") is None:
        return "unversioned-prompt"
    options = as_mapping(body.get("prompt_cache_options"))
    if options.get("prewarm") or body.get("generate") is False:
        return "prewarm"
    return "compaction" if body.get("context_management") else None


def _tool_reason(body: dict[str, Any]) -> str | None:
    return "hosted-tool" if any(_hosted(tool) for tool in _tools(body)) else None


def _tools(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tools of the request, those that input items bring along included."""
    yield from (as_mapping(tool) for tool in as_items(body.get("tools")))
    for item in as_items(body.get("input")):
        if "tools" in item:
            yield from (as_mapping(tool) for tool in as_items(item["tools"]))


def _hosted(tool: dict[str, Any]) -> bool:
    """Anything but tools that the caller runs and answers itself: unknown types included."""
    kind = tool.get("type")
    if kind == "namespace":
        return any(_hosted(as_mapping(inner)) for inner in as_items(tool.get("tools")))
    if kind == "tool_search":
        return tool.get("execution") != "client"
    return kind not in ("function", "custom")


def _input_reason(body: dict[str, Any]) -> str | None:
    for item in as_items(body.get("input")):
        kind = item.get("type")
        if kind == "item_reference" or (kind is None and "role" not in item):
            return "item-reference"
        if kind == "compaction_trigger":
            return "compaction"
    remote = False
    for part in _parts(body):
        if part.get("file_id") is not None:
            return "file-id"
        remote = remote or _is_remote(part.get("image_url")) or _is_remote(part.get("file_url"))
    return "remote-image" if remote else None


def _parts(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that may hold a picture or a file."""
    for item in as_items(body.get("input")):
        for holder in (item.get("content"), item.get("output")):
            if type(holder) is list:
                yield from (part for part in holder if type(part) is dict)
            elif type(holder) is dict:
                yield holder
    variables = as_mapping(as_mapping(body.get("prompt")).get("variables"))
    yield from (as_mapping(variable) for variable in variables.values())


def _is_remote(url: Any) -> bool:
    return type(url) is str and url[:5].lower() != "data:"
