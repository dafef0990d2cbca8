"""An entry as the bytes that SQLite and Redis keep.

    format (1 byte) | seal( packing (1 byte) | head length (4 bytes) | head (JSON) | texts )

The texts are the canonical request and the body, deflated together where that pays. The entry's
key is the context of the seal and the tenant names the sealing key, so that an entry which was
altered, moved to another key, or written by somebody else does not open.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import orjson

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.messages import Api, ExactKey, Usage

_AUTHENTICATED, _ENCRYPTED = b"\x01", b"\x02"
"""The format versions: their first byte. Another layout takes another number."""
_PLAIN, _DEFLATED = 0, 1
_WORTH_TRYING = 8192
"""Bytes of text. English deflates to about half at any size, but a 5 KB entry then takes more than
twice as long to read, and a hit pays for that each time."""
_WORTH_KEEPING = 0.8
"""Kept only at this fraction of the plain size or less."""
_LEVEL = 1
_APIS = {api.value: api for api in Api}


@dataclass(frozen=True, slots=True)
class Rejected:
    """Stored bytes that are no entry: `format`, `mac`, `corrupt`, or `purged` for a store's own."""

    reason: str


def encode(entry: Entry, seal: Seal) -> bytes:
    """The entry as sealed bytes. Its memo is left out.

    Raises `StoreError` `unstorable` for names that are no Unicode text (lone surrogates).
    """
    try:
        head = _head(entry)
    except TypeError as error:
        raise StoreError("unstorable", f"unstorable: {error}") from error
    packing, texts = _PLAIN, entry.canonical + entry.body
    if len(texts) >= _WORTH_TRYING:
        deflated = zlib.compress(texts, _LEVEL)
        if len(deflated) < len(texts) * _WORTH_KEEPING:
            packing, texts = _DEFLATED, deflated
    data = b"%c%b%b%b" % (packing, len(head).to_bytes(4, "big"), head, texts)
    version = _ENCRYPTED if seal.encrypts else _AUTHENTICATED
    return version + seal.seal(entry.tenant, version + entry.key, data)


def _head(entry: Entry) -> bytes:
    usage = entry.usage
    return orjson.dumps(
        [
            entry.api,
            entry.model,
            usage and _counts(usage),
            entry.ids,
            entry.created,
            entry.expires,
            entry.stale_until,
            sorted(entry.labels),
            entry.headers,
            len(entry.canonical),
        ]
    )


def _counts(usage: Usage) -> tuple[int, ...]:
    """The fifth count only where there is one: a process that knows four reads the others' entries
    while a fleet is updated."""
    return tuple(usage) if usage.cache_write_long_tokens else tuple(usage[:4])


def decode(raw: bytes, tenant: str, key: ExactKey, seal: Seal) -> Entry | Rejected:
    """The entry that `tenant` stored under `key`, or why these bytes are not it."""
    version = _ENCRYPTED if seal.encrypts else _AUTHENTICATED
    if raw[:1] != version:
        return Rejected("format")
    data = seal.unseal(tenant, version + key, raw[1:])
    if data is None:
        return Rejected("mac")
    try:
        return _unpack(data, tenant, key)
    except (ValueError, TypeError, LookupError, zlib.error):
        return Rejected("corrupt")


def _unpack(data: bytes, tenant: str, key: ExactKey) -> Entry:
    end = 5 + int.from_bytes(data[1:5], "big")
    head: list[Any] = orjson.loads(data[5:end])
    api, model, usage, ids, created, expires, stale_until, labels, headers, split = head
    texts = zlib.decompress(data[end:]) if data[0] == _DEFLATED else data[end:]
    return Entry(
        key=key,
        tenant=tenant,
        api=_APIS[api],
        canonical=texts[:split],
        body=texts[split:],
        model=model,
        usage=None if usage is None else Usage(*usage),
        ids=tuple(ids),
        created=created,
        expires=expires,
        stale_until=stale_until,
        labels=frozenset(labels),
        headers=tuple((name, value) for name, value in headers),
    )
