"""Pydantic models as Markdown: a heading and a table for each section, in the model's order."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trivet.policies.model import ExactPolicy, ExactRule
from trivet.policies.model_base import Seconds, Size

_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}
_LIKE = {ExactRule: ExactPolicy}
"""A rule's field means what the setting of that name means."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def sections(model: type[BaseModel], title: str) -> str:
    """The model's table under `title`, then one for each section within it."""
    titles = {model: title}
    for path, inner in _inner(model, ""):
        titles.setdefault(inner, f"`{path}`")
    return "\n".join(_section(one, told) for one, told in titles.items())


def undescribed(model: type[BaseModel]) -> list[str]:
    """Fields that nobody has described: `Section.field`. A section describes itself."""
    models = [model, *(inner for _, inner in _inner(model, ""))]
    return sorted(
        f"{one.__name__}.{name}"
        for one in dict.fromkeys(models)
        for name, field in one.model_fields.items()
        if not _meaning(one, name, field)
    )


def _inner(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, hint in _hints(model).items():
        place = f"{path}{name}"
        for inner, many in _models_in(hint):
            here = f"{place}[]" if many else place
            yield here, inner
            yield from _inner(inner, f"{here}.")


def _models_in(hint: Any, many: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint, many
    for inner in get_args(hint) if get_origin(hint) is not Literal else ():
        yield from _models_in(inner, many or get_origin(hint) is tuple)


def _hints(model: type[BaseModel]) -> dict[str, Any]:
    hints = get_type_hints(model, include_extras=True)
    return {name: hints[name] for name in model.model_fields}


def _section(model: type[BaseModel], title: str) -> str:
    told = " ".join((model.__doc__ or "").split())
    lines = [f"## {title}", "", told, "", "| field | type | default | |", "|---|---|---|---|"]
    for name, hint in _hints(model).items():
        field = model.model_fields[name]
        cells = (
            f"`{name}`",
            _type(hint) + _bounds(field),
            _default(field, hint),
            _meaning(model, name, field),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _meaning(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.description:
        return field.description
    inner = next(_models_in(_hints(model)[name]), None)
    if inner is not None:
        return " ".join((inner[0].__doc__ or "").split())
    same = _LIKE[model].model_fields.get(name) if model in _LIKE else None
    return (same.description or "") if same is not None else ""


def _type(hint: Any) -> str:
    if hint is Seconds:
        return "duration"
    if hint is Size:
        return "size"
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(one) for one in inner if one is not type(None)))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"{_type(inner[0])} to {_type(inner[1])}"
    return _plain(hint)


def _plain(hint: Any) -> str:
    if issubclass(hint, Enum):
        return ", ".join(f"`{one.value}`" for one in hint)
    return "section" if issubclass(hint, BaseModel) else _WORDS[hint]


def _bounds(field: FieldInfo) -> str:
    told = []
    for words, name in (("at least", "ge"), ("over", "gt"), ("at most", "le"), ("under", "lt")):
        limits = [getattr(one, name) for one in field.metadata if hasattr(one, name)]
        # Durations and sizes are never negative; that goes without saying.
        told += [f"{words} {_number(limit)}" for limit in limits if (name, limit) != ("ge", 0)]
    return f", {' and '.join(told)}" if told else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 9_999 else str(value)


def _default(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    if hint is Seconds:
        return f"`{_duration(value)}`"
    if hint is Size:
        return f"`{_size(value)}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{getattr(one, 'value', one)}`" for one in value)
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _duration(seconds: float) -> str:
    for unit, letter in _UNITS:
        if seconds and seconds % unit == 0:
            return f"{seconds / unit:.0f}{letter}"
    return f"{seconds:g}"


def _size(count: int) -> str:
    for unit, name in _SIZES:
        if count and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)
