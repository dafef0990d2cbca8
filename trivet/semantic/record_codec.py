"""Records and events as bytes, sealed.

A sealed record is two parts, each behind its length: the tenant's name, sealed under the server's
own key, so that a reader knows whose key opens the rest; and the record, sealed under the
tenant's. Both are bound to the record's id.
"""

from __future__ import annotations

from typing import Any

import orjson

from trivet.canonical import join
from trivet.policies.intents import Intent
from trivet.semantic.records import Event, Purged, Removed, Sealer
from trivet.semantic.types import Partition, Record

_NAME, _RECORD, _EVENT = b"trivet/record-tenant/1", b"trivet/record/1", b"trivet/record-event/1"


def seal_record(record: Record, sealer: Sealer) -> bytes:
    """A record as a store keeps it: the vector takes its own length, nothing more."""
    name = _bytes(record.tenant)
    body = join(_dump(_head(record)), record.vector)
    given = _bytes(record.id)
    return join(
        sealer.seal("", join(_NAME, given), name),
        sealer.seal(record.tenant, join(_RECORD, given), body),
    )


def unseal_record(sealed: bytes, record_id: str, sealer: Sealer) -> Record | str:
    """The record of this id, or why it is none: `format` or `mac`."""
    parts = _split(sealed)
    if parts is None:
        return "format"
    given = record_id.encode("utf-8", "surrogatepass")
    name = sealer.unseal("", join(_NAME, given), parts[0])
    if name is None:
        return "mac"
    tenant = name.decode("utf-8", "surrogatepass")
    body = sealer.unseal(tenant, join(_RECORD, given), parts[1])
    if body is None:
        return "mac"
    found = _split(body)
    try:
        return "format" if found is None else _record(record_id, tenant, *found)
    except (ValueError, TypeError, KeyError):
        return "format"


def seal_event(event: Removed | Purged, sealer: Sealer) -> bytes:
    """An event that carries no record."""
    if isinstance(event, Removed):
        data: list[Any] = ["removed", event.tenant, event.id]
    else:
        data = ["purged", event.tenant, event.label, event.at]
    return sealer.seal("", _EVENT, _dump(data))


def unseal_event(sealed: bytes, sealer: Sealer) -> Event | None:
    """The event, or None if this secret did not seal it."""
    data = sealer.unseal("", _EVENT, sealed)
    if data is None:
        return None
    kind, *fields = orjson.loads(data)
    return Removed(*fields) if kind == "removed" else Purged(*fields)


def _head(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition.hex(),
        "key": record.key.hex(),
        "text": record.text,
        "intent": record.intent,
        "created": record.created,
        "expires": record.expires,
        "labels": sorted(record.labels),
        "author": record.author,
        "confirmed": record.confirmed,
        "seen": record.seen,
        "answers": record.answers,
    }


def _record(record_id: str, tenant: str, head: bytes, vector: bytes) -> Record:
    fields = orjson.loads(head)
    fields["partition"] = Partition(bytes.fromhex(fields["partition"]))
    fields["key"] = bytes.fromhex(fields["key"])
    fields["intent"] = Intent(fields["intent"])
    fields["labels"] = frozenset(fields["labels"])
    fields["seen"] = tuple(fields["seen"])
    return Record(id=record_id, tenant=tenant, vector=vector, **fields)


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """The two parts of a `join`."""
    end = 8 + int.from_bytes(data[:8], "big")
    first, rest = data[8:end], data[end:]
    if len(rest) < 8 or int.from_bytes(rest[:8], "big") != len(rest) - 8:
        return None
    return first, rest[8:]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        raise ValueError("a text with a lone surrogate has no UTF-8 form") from None
