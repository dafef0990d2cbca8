"""Canonical JSON and SHA-256: the one place that parses request bodies and hashes.

Two texts of one request have one canonical form; two different requests never share one:

- Insignificant white space and the escape style of strings make no difference.
- The order of keys is kept, because it shapes output inside schemas and tool inputs; `envelope`
  sorts the one level where it does not.
- Strings are compared by code point: no Unicode normalisation, no case folding.
- Numbers keep their kind (1 is not 1.0); the dialects name the numeric parameters for which the
  two are one value.
- The integer -0 is read as the double -0.0, which it is to most parsers: it is not 0.
- Objects with a duplicate key, NaN, Infinity, numbers beyond a double at either end, and nesting
  beyond `MAX_DEPTH` are refused: parsers disagree about them, so the upstream might read another
  request than we do.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections import Counter
from typing import Any

import orjson

from trivet.errors import RequestError

MAX_DEPTH = 254
"""What orjson writes at most, so that both parsers below refuse the same texts."""

_MAX_VALUES = 3_000_000
"""Members and items of a body: the values of one that is made of them take up to 1 GB."""

Json = Any


def parse(raw: bytes) -> Json:
    """Parse JSON strictly.

    Raises `RequestError` 400 for anything that is not JSON (RFC 8259), and for what two parsers
    could read differently: duplicate keys, numbers that no double holds, nesting beyond
    `MAX_DEPTH`. Raises 413 for more than `_MAX_VALUES` values.
    """
    return read(raw)[0]


def read(raw: bytes) -> tuple[Json, bool]:
    """`parse`, and whether `raw` is the very text that `dump` gives for the value."""
    if len(raw) > _MAX_VALUES and sum(map(raw.count, (b",", b"{", b"["))) > _MAX_VALUES:
        raise RequestError(413, "The JSON body has too many values.")
    try:
        value = orjson.loads(raw)
        if orjson.dumps(value) == raw:
            # A text equal to its own compact form has no duplicate key and no number that was
            # rounded: both would have changed it.
            return value, True
    except (orjson.JSONDecodeError, TypeError):
        pass  # The strict parser below decides, and names the place.
    return _parse_strict(raw), False


def _parse_strict(raw: bytes) -> Json:
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
        if _too_deep(value):
            raise RequestError(400, f"The JSON body is nested deeper than {MAX_DEPTH} levels.")
    except RecursionError:
        raise RequestError(
            400, f"The JSON body is nested deeper than {MAX_DEPTH} levels."
        ) from None
    except json.JSONDecodeError as error:
        raise RequestError(
            400,
            f"The body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}.",
        ) from None
    except UnicodeDecodeError as error:
        raise RequestError(400, f"The body is not valid UTF-8 at byte {error.start}.") from None
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        doubled = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        # The name goes into an error body: no lone surrogates, no megabytes.
        name = doubled[:80].encode("utf-8", "backslashreplace").decode()
        raise RequestError(400, f"The JSON body names {name!r} twice.", field=name)
    return made


def _refuse_constant(name: str) -> Json:
    raise RequestError(400, f"The body is not valid JSON: {name} is not a JSON number.")


_NOT_ZERO = re.compile(r"[-.0]*[1-9]")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestError(400, f"The number {text[:40]} is too large for a double.")
    if value == 0 and _NOT_ZERO.match(text):
        raise RequestError(400, f"The number {text[:40]} is too small for a double.")
    return value


def _integer(text: str) -> int | float:
    if text == "-0":
        return -0.0
    # CPython refuses to read longer ones (sys.set_int_max_str_digits), and so do upstreams.
    if len(text) > 4000:
        raise RequestError(400, f"An integer of {len(text)} digits is too long.")
    return int(text)


def _too_deep(value: Json) -> bool:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return True
        below: list[Json] = []
        for item in level:
            children = item.values() if type(item) is dict else item if type(item) is list else ()
            below.extend(child for child in children if type(child) is dict or type(child) is list)
        level = below
    return False


def dump(value: Json) -> bytes:
    """Compact JSON, keys in the order given. Injective over what `parse` returns.

    What orjson cannot write (lone surrogates, integers of 65 bits and more) is written by the
    standard library in pure ASCII behind a NUL byte, which no JSON text contains: the two forms
    cannot meet.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return b"\x00" + json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def envelope(value: dict[str, Json]) -> dict[str, Json]:
    """The same object with its own keys sorted; nothing below is touched."""
    return {key: value[key] for key in sorted(value)}


def join(*parts: bytes) -> bytes:
    """Concatenate injectively: each part behind its length as 8 bytes, big-endian."""
    pieces: list[bytes] = []
    for part in parts:
        pieces += (len(part).to_bytes(8, "big"), part)
    return b"".join(pieces)


def split(joined: bytes) -> list[bytes]:
    """The parts that `join` put together. Raises `ValueError` for anything else."""
    parts: list[bytes] = []
    place = 0
    while place < len(joined):
        start = place + 8
        place = start + int.from_bytes(joined[place:start], "big")
        if place > len(joined):
            raise ValueError("not joined parts")
        parts.append(joined[start:place])
    return parts


def digest(*parts: bytes) -> bytes:
    """SHA-256 (FIPS 180-4) over the parts, each behind its length. 32 bytes."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


def sha256(data: bytes) -> bytes:
    """SHA-256 of the bytes alone, where others compute it too (`sha256sum` of an API key)."""
    return hashlib.sha256(data).digest()


def mac(secret: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) over the parts, each behind its length. 32 bytes."""
    return hmac.digest(secret, join(*parts), "sha256")
