"""Header rules of the proxy: what is dropped, kept, added, and what identifies a caller.

Hop-by-hop fields: RFC 9110 section 7.6.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, KeysView, Mapping
from functools import lru_cache
from typing import Any, Final

from trivet.errors import RequestError
from trivet.policies.directives import Directives
from trivet.policies.header_names import HOP_BY_HOP, TRANSPORT, is_transport
from trivet.policies.tenants import is_own_key

RawHeaders = list[tuple[bytes, bytes]]

_ORDINARY: Final = (b"keep-alive", b"close")
"""Values of `Connection` that name no header."""
CREDENTIALS: Final = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
IDENTITY: Final = (*CREDENTIALS, b"cookie")
"""What tells one caller from another; each may appear once, or readers could disagree."""
_OWN_KEY: Final = b"tvt_"
"""How keys made by `trivet keygen` begin. No upstream may see them."""

_NOT_FORWARDED: Final = HOP_BY_HOP | {
    *(b"host", b"content-length", b"accept-encoding", b"expect"),
    # Only the proxy tells an engine whose request it is.
    b"x-trivet-tenant",
}
_KIND: Final = b"content-type"
_UNDECIDING: Final = TRANSPORT - {_KIND}
_NOT_RETURNED: Final = HOP_BY_HOP | {b"content-length", b"cache-status", b"age"}
REPLAYED: Final = frozenset({"openai-version", "openai-organization", "anthropic-organization-id"})
"""Response headers that still hold for a replay."""
_REPLAYED: Final = frozenset(name.encode() for name in REPLAYED)


def deciding(raw: RawHeaders) -> tuple[tuple[bytes, bytes], ...]:
    """The headers without transport, which varies from call to call and decides nothing, unless a
    policy names it: see `names_transport`. What says how the body is to be read decides."""
    return tuple(
        [
            item
            for item in raw
            if item[0] not in _UNDECIDING and (item[0] == _KIND or not is_transport(item[0]))
        ]
    )


@lru_cache(maxsize=256)
def names_transport(names: tuple[str, ...]) -> bool:
    """Whether a policy that goes by these headers goes by one that `deciding` leaves out."""
    return any(is_transport(name.lower().encode("latin-1", "replace")) for name in names)


class RequestHeaders(Mapping[str, str]):
    """A request's headers by lower-case name, decoded when asked for.

    The values of a repeated name are one list, joined in order (RFC 9110 section 5.3): no
    directive is lost. Raises `RequestError` 400 where a header of `IDENTITY` is repeated.
    """

    __slots__ = ("_by_name", "end_to_end", "raw")

    def __init__(self, raw: RawHeaders) -> None:
        self.raw = raw
        self._by_name = dict(raw)
        if len(self._by_name) != len(raw):
            _refuse_doubled_identity(raw)
            self._by_name = _joined(raw)
        connection = self._by_name.get(b"connection")
        self.end_to_end = raw
        """`raw` without what `Connection` names: this may go on, and nothing else is keyed."""
        if connection is not None and connection.lower() not in _ORDINARY:
            named = _named_by_connection(raw)
            self.end_to_end = [item for item in raw if item[0] not in named]

    def __getitem__(self, name: str) -> str:
        return self._by_name[name.encode("latin-1")].decode("latin-1")

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default`. The `get` of `Mapping` raises and catches where it has none."""
        value = self._by_name.get(name.encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    @property
    def names(self) -> KeysView[bytes]:
        """The names, each once."""
        return self._by_name.keys()

    def get_raw(self, name: bytes) -> bytes | None:
        """The value as it came."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode("latin-1") in self._by_name


def _refuse_doubled_identity(raw: RawHeaders) -> None:
    names = [name for name, _ in raw]
    for name in IDENTITY:
        if names.count(name) > 1:
            text = name.decode()
            raise RequestError(400, f"The header {text} was sent more than once.", field=text)


def _joined(raw: RawHeaders) -> dict[bytes, bytes]:
    lists: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        lists.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in lists.items()}


def _named_by_connection(raw: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    lists = [value for name, value in raw if name == b"connection"]
    return frozenset([part.strip().lower() for value in lists for part in value.split(b",")])


def to_upstream(
    headers: RequestHeaders, credential: bytes | None, hidden: frozenset[bytes], *, plain: bool
) -> RawHeaders:
    """Headers to forward; `hidden` ones are Trivet's own business.

    `credential` replaces whatever the caller proved itself with; None sends the caller's own.
    `plain` asks the upstream for an answer without content coding, so that it can be recorded.
    """
    dropped = _dropped(hidden, credential is not None)
    kept = [
        item
        for item in headers.end_to_end
        if item[0] not in dropped
        and not item[0].startswith(b"trivet-")
        and not (_OWN_KEY in item[1] and is_own_key(*item))
    ]
    if credential is not None:
        anthropic = headers.get_raw(b"anthropic-version") is not None
        kept.append(
            (b"x-api-key", credential) if anthropic else (b"authorization", b"Bearer " + credential)
        )
    coding = b"identity" if plain else headers.get_raw(b"accept-encoding")
    if coding is not None:
        kept.append((b"accept-encoding", coding))
    return kept


@lru_cache(maxsize=16)
def _dropped(hidden: frozenset[bytes], replaces_credential: bool) -> frozenset[bytes]:
    return _NOT_FORWARDED | hidden | frozenset(IDENTITY if replaces_credential else ())


def cache_wishes(directives: Directives) -> RawHeaders:
    """A caller's wishes for caches behind this one, where they came in a body field that was
    stripped. A second `Cache-Control` adds to the first (RFC 9110 section 5.3)."""
    wishes = [b"no-cache"] if directives.no_cache else []
    if directives.no_store:
        wishes.append(b"no-store")
    if directives.max_age is not None:
        wishes.append(b"max-age=%d" % directives.max_age)
    return [(b"cache-control", b", ".join(wishes))] if wishes else []


def to_caller(raw: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The upstream's response headers, as far as they concern the caller."""
    items = [(name.lower(), value) for name, value in raw]
    named = _named_by_connection(items)
    dropped = _NOT_RETURNED | named if named else _NOT_RETURNED
    return [item for item in items if item[0] not in dropped]


def replayable(raw: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """The response headers that are stored with an answer."""
    found = [(name.lower(), value) for name, value in raw if name.lower() in _REPLAYED]
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in found])


def new_request_id() -> str:
    """A request id of Trivet's own, for answers that no upstream gave."""
    return "req_trivet_" + os.urandom(12).hex()
