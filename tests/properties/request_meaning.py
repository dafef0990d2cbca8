"""What a request says, written down in the plainest way: an oracle for canonical forms."""

from __future__ import annotations

from typing import Any

from request_cases import Body, Case

from trivet.messages import Api


def meanings(case: Case, body: Body) -> tuple[str, ...]:
    """What the request asks for: equal texts mean equal requests. One text, or one an item."""
    said: Body = {}
    for name in sorted(body):
        value = unread(case, name, body[name])
        if value is ABSENT or (value is None and name in case.nullable):
            continue
        if name in case.numbers and type(value) is float and value == int(value):
            value = int(value)
        said[name] = value
    if case.api is Api.EMBEDDINGS:
        return tuple(repr({**said, "input": item}) for item in _items(body["input"]))
    if case.unordered and type(said.get(case.unordered)) is list:
        said[case.unordered] = [_item(case, item) for item in said[case.unordered]]
    for name in ("system", "tools") if case.api is Api.MESSAGES else ():
        if type(said.get(name)) is list:
            said[name] = [_unmarked(case, block) for block in said[name]]
    return (repr(said),)


ABSENT = object()
_STREAM_OPTIONS = ("include_usage", "include_obfuscation")
_DIRECTIVES = {"no-cache", "no-store", "ttl", "s-maxage", "namespace", "use-cache"}


def unread(case: Case, name: str, value: Any) -> Any:
    """A field's value without all that is transport in it; ABSENT if nothing is left."""
    if name not in case.transport:
        return value
    if name == "cache":
        # Only an object of directives is a wish to the cache; anything else goes upstream.
        return ABSENT if type(value) is dict and _DIRECTIVES.issuperset(value) else value
    if name == "stream_options" and type(value) is dict:
        return {k: v for k, v in value.items() if k not in _STREAM_OPTIONS} or ABSENT
    return ABSENT


def _items(given: Any) -> list[Any]:
    whole = type(given) is str or all(type(item) is int for item in given)
    return [given] if whole else given


def _item(case: Case, item: Any) -> Any:
    made = {name: item[name] for name in sorted(item)}
    if case.api is Api.MESSAGES and type(made.get("content")) is str:
        made["content"] = [{"type": "text", "text": made["content"]}]
    for name in ("content", "output"):
        if type(made.get(name)) is list and not (
            name == "output" and case.api is not Api.RESPONSES
        ):
            made[name] = [_unmarked(case, part) for part in made[name]]
    return made


def _unmarked(case: Case, part: Any) -> Any:
    if type(part) is not dict:
        return part
    made = {name: value for name, value in part.items() if name != case.marks}
    if made.get("type") == "tool_result" and type(made.get("content")) is list:
        made["content"] = [_unmarked(case, inner) for inner in made["content"]]
    return made
