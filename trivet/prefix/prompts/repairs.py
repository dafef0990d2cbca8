"""Changes to a body that keep its prefix the same from request to request, by policy.

They change what the model reads, so each is off by default, and made before the key is derived.
Every byte that a repair does not name stays as it came. A repaired body is not repaired further:
`repair` of its result is the result.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from trivet.messages import Api
from trivet.policies.prefix_model import PrefixRepairs
from trivet.prefix.prompts.outline import MARKERS, Place
from trivet.prefix.prompts.splice import Splice

_SYSTEM_ROLES: Final = ("system", "developer")
_MOST_LINES: Final = 400


class Repaired(NamedTuple):
    """A body after its repairs."""

    body: bytes
    """The very object that was given, where nothing changed."""
    changes: tuple[str, ...] = ()
    """In words, for people."""


class _Text(NamedTuple):
    """A string in the body that belongs to the system prompt or the newest user message."""

    place: Place
    text: str


def active(repairs: PrefixRepairs) -> bool:
    """Whether a policy asks for any repair."""
    return repairs.sort_tools or repairs.tool_json or bool(repairs.move_lines)


def repair(api: Api, raw: bytes, repairs: PrefixRepairs) -> Repaired:
    """The body with the repairs that the policy asks for. Raises nothing: what is no JSON object,
    or holds what cannot be written back as it was, stays as it is."""
    try:
        body: Any = json.loads(raw)
        splice = Splice(raw)
    except (ValueError, RecursionError):
        return Repaired(raw)
    if not isinstance(body, dict):
        return Repaired(raw)
    changes: list[str] = []
    if repairs.sort_tools or repairs.tool_json:
        changes += _tools(body, splice, repairs)
    if repairs.move_lines:
        changes += _lines(api, body, splice, repairs.move_lines)
    return Repaired(splice.done(), tuple(changes)) if changes else Repaired(raw)


def difference(before: bytes, after: bytes) -> list[str]:
    """A unified diff of two bodies as indented JSON, at most some hundred lines."""
    if before == after:
        return []
    old, new = (
        json.dumps(json.loads(raw), indent=2, ensure_ascii=False).split("\n")
        for raw in (before, after)
    )
    lines = list(difflib.unified_diff(old, new, "as it came", "as repaired", lineterm="", n=2))
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"... {more} more lines"]


def _tools(body: Mapping[str, Any], splice: Splice, repairs: PrefixRepairs) -> Iterator[str]:
    for member in ("tools", "functions"):
        given = body.get(member)
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            continue
        made = _by_name(given) if repairs.sort_tools else given
        moved = [_name(one) for one in made] != [_name(one) for one in given]
        if repairs.tool_json:
            made = [_sorted(one) for one in made]
        if json.dumps(made) == json.dumps(given):
            continue
        splice.put(member, made)
        if moved:
            yield f"{member}: sorted by name (prefix.repair.sort_tools)"
        if repairs.tool_json:
            yield f"{member}: keys in one order (prefix.repair.tool_json)"


def _by_name(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sorted; a breakpoint stays at its position: what it marks is the list up to there."""
    marks = [{name: tool[name] for name in MARKERS if name in tool} for tool in tools]
    plain = [{name: tool[name] for name in tool if name not in MARKERS} for tool in tools]
    if [_name(one) for one in tools] == sorted(map(_name, tools)):
        return [dict(one) for one in tools]
    return [{**tool, **mark} for tool, mark in zip(sorted(plain, key=_name), marks, strict=True)]


def _name(tool: Mapping[str, Any]) -> str:
    inner = tool.get("function")
    named = inner if isinstance(inner, Mapping) else tool
    return str(named.get("name", tool.get("type", "")))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _lines(
    api: Api, body: Mapping[str, Any], splice: Splice, patterns: tuple[str, ...]
) -> Iterator[str]:
    newest = _newest(api, body)
    if newest is None:
        return
    moved: list[str] = []
    for place, text in _system(api, body):
        lines = text.split("\n")
        gone = [one for one in lines if one.strip() and _matches(one, patterns)]
        kept = [one for one in lines if not (one.strip() and _matches(one, patterns))]
        if gone and any(one.strip() for one in kept):
            _write(splice, place, "\n".join(kept))
            moved += gone
            lines_told = "1 line" if len(gone) == 1 else f"{len(gone)} lines"
            yield f"{_shown(place)}: {lines_told} moved to {_shown(newest.place)} (move_lines)"
    if moved:
        _write(splice, newest.place, "\n".join([newest.text, *moved]))


def _matches(line: str, patterns: Sequence[str]) -> bool:
    return any(_compiled(pattern).fullmatch(line) for pattern in patterns)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _write(splice: Splice, place: Place, text: str) -> None:
    splice.add(place[:-1], str(place[-1]), text)


def _system(api: Api, body: Mapping[str, Any]) -> Iterator[_Text]:
    if api is Api.MESSAGES:
        yield from _texts(("system",), body.get("system"))
        return
    name = "messages" if api is Api.CHAT else "input"
    if api is Api.RESPONSES:
        yield from _texts(("instructions",), body.get("instructions"))
    for at, message in enumerate(_list(body.get(name))):
        if not isinstance(message, dict) or message.get("role") not in _SYSTEM_ROLES:
            return
        yield from _texts((name, at, "content"), message.get("content"))


def _newest(api: Api, body: Mapping[str, Any]) -> _Text | None:
    """The last text of the newest user message."""
    name = "input" if api is Api.RESPONSES else "messages"
    given = body.get(name)
    if isinstance(given, str):
        return _Text((name,), given)
    messages = _list(given)
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, dict) and message.get("role") == "user":
            found = list(_texts((name, at, "content"), message.get("content")))
            if found:
                return found[-1]
    return None


def _texts(place: Place, content: Any) -> Iterator[_Text]:
    """The strings of a content: the content itself, or its blocks' texts."""
    if isinstance(content, str):
        yield _Text(place, content)
    for at, block in enumerate(_list(content)):
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield _Text((*place, at, "text"), block["text"])


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _shown(place: Place) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in place)[1:]
