"""Amazon's event stream encoding.

https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html: a message is its length and
its headers' length (4 bytes each, big-endian), their CRC-32, headers, payload, and a CRC-32 over
all before.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import orjson

_STRING: Final = 7
"""Type of a header whose value is UTF-8 with two bytes of length before it."""


def event(name: str, payload: Any) -> bytes:
    """An event of that type with a JSON payload."""
    return _message({":event-type": name, ":content-type": "application/json",
                     ":message-type": "event"}, payload)  # fmt: skip


def exception(name: str, payload: Any) -> bytes:
    """An exception in the middle of a stream."""
    return _message({":exception-type": name, ":content-type": "application/json",
                     ":message-type": "exception"}, payload)  # fmt: skip


def _message(headers: dict[str, str], payload: Any) -> bytes:
    packed = b"".join(
        bytes((len(name),)) + name.encode() + bytes((_STRING,)) + _sized(value.encode())
        for name, value in headers.items()
    )
    body = orjson.dumps(payload)
    prelude = (16 + len(packed) + len(body)).to_bytes(4, "big") + len(packed).to_bytes(4, "big")
    message = prelude + zlib.crc32(prelude).to_bytes(4, "big") + packed + body
    return message + zlib.crc32(message).to_bytes(4, "big")


def _sized(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value
