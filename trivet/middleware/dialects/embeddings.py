"""OpenAI embeddings: a batch of independent items, each cached on its own.

https://platform.openai.com/docs/api-reference/embeddings. A vector is kept as the upstream sent
it: `f` and 32-bit floats where they hold every value exactly, else `d` and 64-bit floats.

One entry answers in both encodings, because base64 holds 32-bit floats. Where the request names
another kind of number (`output_dtype`, ...) that is not so, and its encoding is keyed. A request
for another encoding is not cached.
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trivet.canonical import dump, envelope
from trivet.errors import RequestError
from trivet.messages import Api, NotStored, Request, Usage
from trivet.middleware.dialects.base import Headers, as_mapping, tells_error
from trivet.middleware.dialects.bodies import compact, model_of, token_count
from trivet.middleware.dialects.openai_shapes import read

PATH: Final = "/v1/embeddings"
_TRANSPORT: Final = frozenset({"user", "encoding_format", "input"})
_KIND_OF_NUMBER: Final = frozenset(
    {"dtype", "embed_dtype", "embedding_type", "embedding_types", "endianness", "output_dtype"}
)
"""Fields of Mistral, Voyage, Jina and vLLM."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One embeddings request, taken apart."""

    request: Request
    body: dict[str, Any]
    inputs: tuple[Any, ...]
    canonicals: tuple[bytes, ...]
    """The canonical form of each item, as if it had been asked for alone."""
    encoding: str
    """`float` or `base64`; a request for another one is not cached."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of an upstream's answer, in the order of the items asked for."""

    packed: tuple[bytes, ...]
    model: str
    usage: Usage | None


def decode(raw: bytes, _headers: Headers) -> Batch:
    """Read a request. Raises `RequestError` naming the field."""
    body, directives, forward = read(raw)
    model = model_of(body)
    encoding: Any = body.get("encoding_format")
    if encoding is None:
        encoding = "float"
    if type(encoding) is not str:
        raise RequestError(400, "'encoding_format' must be a string.", field="encoding_format")
    inputs = _items(body.get("input"))
    shared = {name: value for name, value in body.items() if name not in _TRANSPORT}
    if not _KIND_OF_NUMBER.isdisjoint(body):
        shared["encoding_format"] = encoding
    canonicals = tuple(dump(envelope({**shared, "input": item})) for item in inputs)
    request = Request(
        api=Api.EMBEDDINGS,
        model=model,
        stream=False,
        forward=forward,
        canonical=dump(envelope({**shared, "input": list(inputs)})),
        choices=len(inputs),
        user=body["user"] if type(body.get("user")) is str else None,
        uncacheable=None if encoding in ("float", "base64") else "encoding-format",
        directives=directives,
    )
    return Batch(request, body, inputs, canonicals, encoding)


def _items(given: Any) -> tuple[Any, ...]:
    if type(given) is str:
        return (given,)
    if type(given) is not list or not given:
        raise RequestError(
            400,
            "'input' must be a string, or a non-empty array of strings or tokens.",
            field="input",
        )
    if all(type(item) is int for item in given):
        return (given,)
    for position, item in enumerate(given):
        tokens = type(item) is list and item and all(type(token) is int for token in item)
        if type(item) is not str and not tokens:
            raise RequestError(
                400,
                f"'input[{position}]' must be a string or a non-empty array of token numbers.",
                field=f"input[{position}]",
            )
    return tuple(given)


def remainder(batch: Batch, positions: Sequence[int]) -> bytes:
    """The body that asks for the items at `positions` only."""
    if len(positions) == len(batch.inputs):
        return batch.request.forward
    return compact({**batch.body, "input": [batch.inputs[position] for position in positions]})


def read_answer(body: bytes, count: int) -> Vectors | NotStored:
    """Judge a 2xx answer: `count` vectors, each index once, all of one length."""
    try:
        answer = as_mapping(orjson.loads(body))
    except orjson.JSONDecodeError:
        return NotStored("not-json")
    data = answer.get("data")
    if tells_error(answer) or type(data) is not list:
        return NotStored("error-body")
    if len(_NAME.findall(body)) != _names(answer):
        return NotStored("duplicate-key")
    packed: dict[int, bytes] = {}
    for item in map(as_mapping, data):
        vector = pack(item.get("embedding"))
        if vector is None or type(item.get("index")) is not int:
            return NotStored("bad-vector")
        packed[item["index"]] = vector
    if sorted(packed) != list(range(count)) or len(data) != count:
        return NotStored("missing-vector")
    if len(set(map(dimensions, packed.values()))) != 1:
        return NotStored("uneven-vectors")
    model = answer.get("model")
    return Vectors(
        tuple(packed[index] for index in range(count)),
        model if type(model) is str else "",
        _usage(answer.get("usage")),
    )


_NAME: Final = re.compile(rb'"\s*:')


def _names(value: Any) -> int:
    """How many names of members `value` has. A name that a text holds twice is read once."""
    if type(value) is dict:
        return len(value) + sum(map(_names, value.values()))
    # Vectors are lists of millions of numbers in all.
    return sum(map(_names, value)) if _holds_objects(value) else 0


def _holds_objects(value: Any) -> bool:
    return type(value) is list and any(type(item) is dict for item in value[:1])


def _usage(given: Any) -> Usage | None:
    tokens = token_count(as_mapping(given).get("prompt_tokens"))
    return None if tokens is None else Usage(tokens, 0)


def dimensions(packed: bytes) -> int:
    """How many numbers a packed vector has."""
    return (len(packed) - 1) // (4 if packed[:1] == b"f" else 8)


def pack(embedding: Any) -> bytes | None:
    """A vector in stored form; None if it is no vector of finite numbers."""
    if type(embedding) is str:
        return _pack_base64(embedding)
    if type(embedding) is not list or not embedding or not _NUMBERS.issuperset(_types(embedding)):
        return None
    try:
        wide = array("d", embedding)
    except OverflowError:
        return None
    if not _finite(wide):
        return None
    narrow = array("f", embedding)
    if list(narrow) == list(wide):
        return b"f" + _little(narrow)
    return b"d" + _little(wide)


_NUMBERS: Final = frozenset({float, int})


def _types(values: Iterable[Any]) -> set[type]:
    return set(map(type, values))


def _pack_base64(text: str) -> bytes | None:
    try:
        raw = b64decode(text, validate=True)
    except ValueError:  # Not base64, or not even ASCII.
        return None
    if not raw or len(raw) % 4:
        return None
    packed = b"f" + raw
    return packed if _finite(_numbers(packed)) else None


def _finite(numbers: Iterable[float]) -> bool:
    # A sum keeps every infinity and NaN: one C loop in place of a call a number.
    return math.isfinite(sum(numbers))


def render(packed: bytes, encoding: str) -> str | list[float]:
    """The vector as a caller with `encoding` expects it."""
    if encoding == "base64":
        narrow = packed[1:] if packed[:1] == b"f" else _little(array("f", _numbers(packed)))
        return b64encode(narrow).decode("ascii")
    return _numbers(packed)


def _numbers(packed: bytes) -> list[float]:
    numbers = array(packed[:1].decode("ascii"))
    numbers.frombytes(packed[1:])
    if sys.byteorder == "big":
        numbers.byteswap()
    return list(numbers)


def _little(numbers: array[float]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def write_answer(packed: Sequence[bytes], encoding: str, model: str, prompt_tokens: int) -> bytes:
    """The API's answer; `data[i].index` is the position in this request."""
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": render(vector, encoding)}
                for index, vector in enumerate(packed)
            ],
            "model": model,
            "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
        }
    )
