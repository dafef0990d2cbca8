"""What a caller's idempotency key is sent on as, where the answer is recorded.

An upstream that honours such a key answers it again without reading the body (the draft
draft-ietf-httpapi-idempotency-key-header leaves that to it): under a key of an earlier request, the
answer to that one would be stored for this one. So the value that goes upstream belongs to one
request: a retry has the same, and another body never does.
"""

from __future__ import annotations

from typing import Final

from trivet.canonical import digest, mac
from trivet.messages import ExactKey
from trivet.middleware.arrival.headers import RawHeaders, RequestHeaders

_NAMES: Final = frozenset((b"idempotency-key", b"x-idempotency-key"))
_TAG: Final = b"trivet-idempotency-v1"


def is_idempotent(headers: RequestHeaders) -> bool:
    """Whether a request has such a key."""
    return not headers.names.isdisjoint(_NAMES)


def bound_to_request(headers: RawHeaders, secret: bytes, key: ExactKey) -> RawHeaders:
    """The headers, with an idempotency key that is `key`'s own: nobody else can name it."""
    return [
        (name, mac(secret, _TAG, name, value, key).hex().encode())
        if name in _NAMES
        else (name, value)
        for name, value in headers
    ]


def bound_to_body(headers: RawHeaders, body: bytes) -> RawHeaders:
    """Headers of `bound_to_request`, for a part of that request."""
    if all(name not in _NAMES for name, _ in headers):
        return headers
    return [
        (name, digest(_TAG, value, body).hex().encode()) if name in _NAMES else (name, value)
        for name, value in headers
    ]
