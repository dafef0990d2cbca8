"""Search in Redis itself, where its server has RediSearch: no index in any process.

`RedisRecords(searchable=True)` writes the records, bounds them and purges them; here they are
only read, by one index over all partitions. What comes back is a sealed record, and its cosine is
computed from the vector in it: whoever alters a vector in Redis changes what is proposed, never
what a proposal scores. Standalone servers only: RediSearch searches a cluster by other means.
Needs the extra `redis`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
from redis import exceptions as errors

from trivet.errors import StoreError
from trivet.semantic.flat_index import read_vector
from trivet.semantic.records import Sealer
from trivet.semantic.redis_records import CONNECTIONS, Link, open_member, prefix, translated
from trivet.semantic.types import Neighbour, Partition, Record
from trivet.telemetry import EntryRejected, Observer, ignore

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_SPARE = 4
"""Proposals beyond k, for records that do not unseal or expire just then."""


class RedisVectors:
    """The vectors of one dimension in one deployment, over a link that it closes."""

    def __init__(
        self, link: Link, sealer: Sealer, dimension: int, observer: Observer = ignore
    ) -> None:
        self._link = link
        self._sealer = sealer
        self._dimension = dimension
        self._observe = observer
        self._prefix = prefix(sealer) + b"e:"
        self._name = self._prefix + b"index:%d" % dimension
        self._slots = asyncio.Semaphore(CONNECTIONS)

    async def nearest(
        self, partition: Partition, vector: Vectors, k: int, now: float
    ) -> list[Neighbour]:
        """As `VectorIndex.nearest`, among one partition's records.

        Raises `StoreError`: `unsupported` where the server does not search.
        """
        if k < 1 or vector.size != self._dimension:
            return []
        asked = np.ascontiguousarray(vector, "<f4").reshape(-1)
        found = await self._search(
            f"(@p:{{{partition.hex()}}} @e:[({now!r} inf])=>[KNN {k + _SPARE} @v $asked AS d]",
            asked.tobytes(),
            k + _SPARE,
        )
        near: list[Neighbour] = []
        for name, fields in zip(found[1::2], found[2::2], strict=True):
            record = self._open(name, fields)
            if record is not None and record.partition == partition and record.expires > now:
                cosine = float(read_vector(record, self._dimension) @ asked)
                near.append(Neighbour(record, cosine))
        return sorted(near, key=lambda one: -one.cosine)[:k]

    async def ready(self) -> None:
        """Make the index where there is none. Raises `StoreError`.

        The server reads what is there already in the background: it is found a little later.
        """
        async with self._slots, translated():
            await self._make()

    async def close(self) -> None:
        """Close the link."""
        await self._link.close()

    async def _search(self, query: str, asked: bytes, count: int) -> list[Any]:
        command = (
            *("FT.SEARCH", self._name, query, "PARAMS", 2, "asked", asked, "SORTBY", "d"),
            *("LIMIT", 0, count, "RETURN", 1, "r", "DIALECT", 2),
        )
        async with self._slots, translated():
            try:
                found: list[Any] = await self._link.execute(*command)
            except errors.ResponseError as error:
                if not _missing(error):
                    raise
                # A new server, or one that was flushed.
                await self._make()
                found = await self._link.execute(*command)
        return found

    async def _make(self) -> None:
        vector = ("HNSW", 6, "TYPE", "FLOAT32", "DIM", self._dimension, "DISTANCE_METRIC", "IP")
        try:
            await self._link.execute(
                *("FT.CREATE", self._name, "ON", "HASH", "PREFIX", 1, self._prefix),
                *("SCHEMA", "p", "TAG", "e", "NUMERIC", "v", "VECTOR", *vector),
            )
        except errors.ResponseError as error:
            text = str(error).lower()
            if "unknown command" in text:
                raise StoreError(
                    "unsupported", "unsupported: this Redis has no RediSearch (FT.CREATE)"
                ) from None
            if "already exists" not in text:
                raise

    def _open(self, name: bytes, fields: list[bytes]) -> Record | None:
        value = dict(zip(fields[::2], fields[1::2], strict=True)).get(b"r", b"")
        record = open_member(name.removeprefix(self._prefix), value, self._sealer)
        if isinstance(record, Record) and len(record.vector) == 4 * self._dimension:
            return record
        self._observe(EntryRejected("semantic", record if isinstance(record, str) else "format"))
        return None


def _missing(error: errors.ResponseError) -> bool:
    text = str(error).lower()
    return "no such index" in text or "unknown index name" in text or "not found" in text
