"""What a request that is read here may say about its body: JSON in UTF-8, as it is.

An upstream that followed another charset or a content coding would read another request in the
same bytes, and its answer would be stored for this one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from trivet.errors import RequestError
from trivet.middleware.arrival.headers import RawHeaders, RequestHeaders

_CHARSET: Final = re.compile(rb"charset", re.IGNORECASE)
_UTF_8: Final = re.compile(
    rb'charset=(?:utf-?8|us-ascii|"utf-?8"|"us-ascii")(?=[ \t]*(?:;|\Z))', re.IGNORECASE
)
"""US-ASCII is a part of UTF-8 (RFC 3629 section 1)."""
_ASCII: Final = re.compile(rb"us-ascii", re.IGNORECASE)
_JSON: Final = re.compile(
    rb"application/(?:[a-z0-9.!#$&^_-]+\+)?json[ \t]*(?:;[^,]*)?", re.IGNORECASE
)
_AS_JSON: Final = (b"content-type", b"application/json")
_LONGEST: Final = 256
_AS_IT_IS: Final = (b"", b"identity")


def refuse_coded(headers: RequestHeaders) -> None:
    """Raises `RequestError` 415 for a body that is not said to be plain UTF-8."""
    kind = headers.get_raw(b"content-type")
    if kind is not None and not (len(kind) <= _LONGEST and _says_utf_8(kind)):
        raise _unsupported(
            "content-type",
            "The request body is read as JSON in UTF-8: leave out "
            "the charset of Content-Type, or make it utf-8.",
        )
    coding = headers.get_raw(b"content-encoding")
    if coding is not None and coding.strip().lower() not in _AS_IT_IS:
        raise _unsupported(
            "content-encoding", "The request body is read as it comes: send it without a coding."
        )


def says_json(headers: RequestHeaders) -> bool:
    """Whether a request says what its body is read as, and goes on saying so."""
    kind = headers.get_raw(b"content-type")
    return kind is not None and headers.end_to_end is headers.raw and _is_json(kind)


def sent_as_json(headers: RawHeaders) -> RawHeaders:
    """`headers` with the type that the body was read as, where they name another or none."""
    kinds = [value for name, value in headers if name == b"content-type"]
    if len(kinds) == 1 and _is_json(kinds[0]):
        return headers
    return [*(item for item in headers if item[0] != b"content-type"), _AS_JSON]


@lru_cache(maxsize=64)
def _says_utf_8(kind: bytes) -> bool:
    # The word anywhere else, as in RFC 8187's `charset*`, is one more charset to some reader.
    return len(_CHARSET.findall(kind)) == len(_UTF_8.findall(kind)) <= 1


@lru_cache(maxsize=64)
def _is_json(kind: bytes) -> bool:
    # Who follows the WHATWG's encodings takes us-ascii for windows-1252, and would read a byte
    # above 127 as another character than it was taken for here: it goes on as plain JSON.
    return _JSON.fullmatch(kind) is not None and _ASCII.search(kind) is None


def _unsupported(field: str, message: str) -> RequestError:
    return RequestError(415, message, field=field, code="unsupported_media_type")
