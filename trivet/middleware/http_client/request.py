"""Where a request goes, and how its head is written. Pure functions; RFC 9112."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from trivet.middleware.http_client.errors import ConnectFailed, Unsendable
from trivet.policies.header_names import weight

Fields = list[tuple[bytes, bytes]]
Body = bytes | AsyncIterator[bytes]

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"/[\x21-\x7e\x80-\xff]*")
_FRAMING: Final = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding"})
"""What this client alone says about a message."""
_MEMO_WEIGHT: Final = 8192
"""Bytes of memory of a target and fields beyond which they are not remembered: callers choose
them."""
_MEMO_ENTRIES: Final = 256
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class Origin(NamedTuple):
    """One server: connections to it are interchangeable."""

    tls: bool
    host: str
    """A name in ASCII or an address, without brackets."""
    port: int


class Root(NamedTuple):
    """A base URL that request targets are appended to."""

    origin: Origin
    authority: bytes
    """Value of the `Host` field."""
    path: str


class Request(NamedTuple):
    """A request that can be written. `length` is None for a body that goes in chunks."""

    head: bytes
    body: Body
    length: int | None
    bodiless: bool
    """The response has no body whatever its head says (HEAD)."""


@lru_cache(maxsize=1024)
def root_of(url: str) -> Root:
    """Read a base URL. Userinfo is no part of it (RFC 9110 section 4.2.4).

    Raises `ConnectFailed` for a URL that names no server.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("ascii" if _is_ascii(url) else "idna").decode()
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ConnectFailed(f"{url!r} is not an http:// or https:// URL") from None
    if not host or re.search(r"[\x00-\x20/@\\]", host) or "@" in parts.netloc:
        raise ConnectFailed(f"{url!r} names no host that can be asked")
    shown = f"[{host}]" if ":" in host else host
    if port != _PORTS[parts.scheme]:
        shown = f"{shown}:{port}"
    return Root(Origin(parts.scheme == "https", host, port), shown.encode(), parts.path)


def _is_ascii(url: str) -> bool:
    return url.isascii()


def write_request(root: Root, method: str, target: str, fields: Fields, body: Body) -> Request:
    """The request as bytes, its fields in the order given.

    `target` is a path with its query, appended to the root's. Framing fields and `Host` are
    written here; of those in `fields` only the `Content-Length` of an iterated body is believed.
    Raises `Unsendable` for whatever would break out of its place.
    """
    asked = (root, method, target, tuple(fields))
    begun = _remembered.get(asked)
    if begun is None:
        begun = _beginning(*asked)
        if len(target) + weight(fields) <= _MEMO_WEIGHT:
            if len(_remembered) >= _MEMO_ENTRIES:
                del _remembered[next(iter(_remembered))]
            _remembered[asked] = begun
    length = len(body) if isinstance(body, bytes) else _declared(fields)
    if length is None:
        head = begun + b"transfer-encoding: chunked\r\n\r\n"
    elif length or method in _WITH_BODY:
        head = b"%bcontent-length: %d\r\n\r\n" % (begun, length)
    else:
        head = begun + b"\r\n"
    return Request(head, body, length, method == "HEAD")


def _beginning(
    root: Root, method: str, target: str, fields: Sequence[tuple[bytes, bytes]]
) -> bytes:
    """A head up to what says how the body is framed. Raises `Unsendable`."""
    target = root.path + target
    if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(target):
        raise Unsendable("its method or its target is not one that HTTP allows")
    _check(fields)
    lines = [
        b"%b %b HTTP/1.1\r\nhost: %b\r\n"
        % (method.encode(), target.encode("latin-1"), root.authority)
    ]
    lines += [b"%b: %b\r\n" % item for item in fields if item[0].lower() not in _FRAMING]
    return b"".join(lines)


_remembered: dict[tuple[Root, str, str, tuple[tuple[bytes, bytes], ...]], bytes] = {}
"""Most callers send the same head over and over."""


def _check(fields: Sequence[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in fields]
    if b"" in names or b"".join(names).translate(None, _TOKEN):
        raise Unsendable("a header has a name that HTTP does not allow")
    values = b"".join([value for _, value in fields])
    if b"\r" in values or b"\n" in values or b"\x00" in values:
        raise Unsendable("a header value holds a line break or a NUL")


def _declared(fields: Fields) -> int | None:
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    if not lengths:
        return None
    if len(lengths) > 1 or not lengths[0].isdigit():
        raise Unsendable("its content-length is not one number")
    return int(lengths[0])
