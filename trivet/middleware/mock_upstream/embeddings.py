"""OpenAI embeddings: unit vectors that are a function of the model and the item."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.mock_upstream.answers import Body

DIMENSIONS = 256
_MOST_DIMENSIONS = 4096
_MOST_ITEMS = 2048


def answer(body: Body) -> Body:
    """The `list` object. Raises `RequestError` 400 naming the field."""
    items = _items(body.get("input"))
    size = body.get("dimensions") or DIMENSIONS
    if not isinstance(size, int) or not 1 <= size <= _MOST_DIMENSIONS:
        raise RequestError(400, f"'dimensions' is 1 to {_MOST_DIMENSIONS}.", field="dimensions")
    as_base64 = body.get("encoding_format") == "base64"
    tokens = sum(_tokens(item) for item in items)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, as_base64)}
            for index, vector in enumerate(unit(body["model"], item, size) for item in items)
        ],
        "model": body["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _items(given: Any) -> list[Any]:
    items = given if isinstance(given, list) else [given]
    if items and isinstance(items[0], int):
        items = [items]
    if not 1 <= len(items) <= _MOST_ITEMS:
        raise RequestError(400, f"'input' holds 1 to {_MOST_ITEMS} items.", field="input")
    for item in items:
        if not item or not isinstance(item, str | list):
            raise RequestError(400, "'input' holds texts or token arrays.", field="input")
    return items


def _tokens(item: Any) -> int:
    return len(item) if isinstance(item, list) else 1 + len(item) // 4


def unit(model: str, item: Any, size: int) -> bytes:
    """A vector of length 1 as little-endian float32, `4 * size` bytes."""
    seed = hashlib.shake_256(canonical.dump([model, item])).digest(4 * size)
    raw = [value / 2**31 for value in struct.unpack(f"<{size}i", seed)]
    norm = math.sqrt(math.fsum(value * value for value in raw)) or 1.0
    return struct.pack(f"<{size}f", *(value / norm for value in raw))


def _encoded(vector: bytes, as_base64: bool) -> str | list[float]:
    if as_base64:
        return base64.b64encode(vector).decode()
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))
