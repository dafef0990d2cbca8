"""Builders of what backends are asked."""

from __future__ import annotations

import json
from typing import Any

from trivet.messages import Api
from trivet.prefix.backends.base import Ask, Marked
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Place, outline_of

SALT = "5a" * 32


def ask(
    api: Api | NativeApi, body: dict[str, Any], *places: Place, ttl: str = "", **more: Any
) -> Ask:
    """An ask for `body`, written with spaces and in its own order, with marks at `places`."""
    raw = json.dumps(body, indent=1).encode()
    model = str(body.get("model", more.pop("model", "")))
    if isinstance(api, NativeApi):
        outline = native_outline(api, model, body)
    else:
        outline = outline_of(api, body)
    marks = tuple(Marked(place, ttl) for place in places)
    return Ask(api, model, raw, outline, SALT, marks=marks, **more)


def without(body: Any, *names: str) -> Any:
    """The body without members of these names, wherever they stand."""
    if isinstance(body, dict):
        return {name: without(value, *names) for name, value in body.items() if name not in names}
    if isinstance(body, list):
        return [without(value, *names) for value in body]
    return body
