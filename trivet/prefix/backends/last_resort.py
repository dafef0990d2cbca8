"""A request with prefix caching off, for where its backend failed."""

from __future__ import annotations

from typing import Any

from trivet.canonical import dump, parse
from trivet.errors import RequestError
from trivet.prefix.backends.base import SERVER_FIELDS, Isolation


def caching_off(isolates: Isolation, raw: bytes, once: str, slot: int) -> bytes | None:
    """The request so that it shares no prefix: under the salt `once`, which nobody else has, or
    on a slot with caching off. None for what is no JSON object. It is written anew.
    """
    try:
        body: Any = parse(raw)
    except RequestError:
        return None
    if not isinstance(body, dict):
        return None
    kept = {name: value for name, value in body.items() if name not in SERVER_FIELDS}
    if isolates == "slot":
        kept |= {"id_slot": slot, "cache_prompt": False}
    else:
        kept["cache_salt"] = once
    return dump(kept).removeprefix(b"\x00")
