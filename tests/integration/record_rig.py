"""Record stores over a SQLite file and over a real Redis, and the records that go through them."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trivet.exact.redis_client import connect
from trivet.exact.seal import Seal
from trivet.exact.store_url import parse_url
from trivet.policies.intents import Intent
from trivet.semantic.follower import IndexFollower
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.records import RecordBound, RecordStore, Snapshot
from trivet.semantic.redis_records import RedisRecords
from trivet.semantic.sqlite_records import SqliteRecords
from trivet.semantic.types import Partition, Record
from trivet.telemetry import Event

SECRET = b"a secret of thirty-two bytes ..."
PARTITION = Partition(b"p" * 32)
SOON_S = 20.0
"""How long a test waits for what takes a quarter of a second on a quiet machine."""


def entry(name: str = "a", tenant: str = "t1", **given: Any) -> Record:
    """A record that lives for an hour; its vector follows from its name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    vector = np.random.default_rng(seed).normal(size=8).astype("<f4")
    values: dict[str, Any] = {
        "id": hashlib.sha256(f"{tenant}/{name}".encode()).hexdigest()[:32],
        "tenant": tenant,
        "partition": Partition(hashlib.sha256(tenant.encode()).digest()),
        "key": b"k" * 32,
        "text": f"question {name} \u05e9\u05dc\u05d5\u05dd \U0001f600",
        "vector": (vector / np.linalg.norm(vector)).tobytes(),
        "intent": Intent.INFORMATIONAL,
        "created": time.time() - 10,
        "expires": time.time() + 3600,
    }
    return Record(**{**values, **given})


def bound(of: int = 1000, **given: int) -> RecordBound:
    """So many records for each tenant."""
    return RecordBound(lambda tenant: of, **given)


@dataclass
class Rig:
    """Opens stores of one deployment, each as another process would."""

    place: str
    """A Redis URL, or the path of a SQLite file."""
    seen: list[Event] = field(default_factory=list)
    opened: list[RecordStore] = field(default_factory=list)
    bound: RecordBound = field(default_factory=bound)

    def open(self, secret: bytes = SECRET, *, encrypt: bool = False, **given: Any) -> RecordStore:
        """One more process's store."""
        store: RecordStore
        seal, kept = Seal(secret, encrypt=encrypt), given.pop("bound", self.bound)
        given = {"observer": self.seen.append, **given}
        if self.place.startswith("redis"):
            link = connect(parse_url(self.place), timeout_s=2.0, connect_s=1.0, connections=8)
            store = RedisRecords(link, seal, kept, **given)
        else:
            store = SqliteRecords(Path(self.place), seal, kept, **given)
        self.opened.append(store)
        return store

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


async def loaded(snapshot: Snapshot) -> dict[str, Record]:
    """All records of a snapshot by id."""
    return {record.id: record async for batch in snapshot.batches for record in batch}


async def kept(store: RecordStore) -> set[str]:
    """Names of the live records."""
    return {record.text.split()[1] for record in (await loaded(await store.snapshot())).values()}


def names(index: PartitionedIndex, tenant: str = "t1") -> set[str]:
    """Names of what an index finds for a tenant."""
    where = Partition(hashlib.sha256(tenant.encode()).digest())
    found = index.nearest(where, np.ones(8, np.float32), 10_000, time.time())
    return {one.record.text.split()[1] for one in found}


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait for it, a while."""
    limit = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < limit, f"{what} never came"
        await asyncio.sleep(0.01)


class Member:
    """One process of the fleet: an index and the follower that keeps it in step."""

    def __init__(self, store: RecordStore, observer: Callable[[Event], None]) -> None:
        self.store = store
        self.index = PartitionedIndex(lambda tenant: 10_000)
        self.follower = IndexFollower(store, self.index, observer, poll_s=0.02)

    async def started(self) -> Member:
        self.follower.start()
        await until(lambda: self.follower.progress.phase == "following", "the index")
        return self


def other_process(place: str, *lines: str) -> list[str]:
    """A Python process that opens the same store and runs `lines` with `rig`."""
    code = "\n".join(
        (
            "import asyncio, sys",
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})",
            "from record_rig import *",
            "from trivet.semantic.records import *",
            "async def main():",
            f"    rig = Rig({place!r})",
            "    store = rig.open()",
            *(f"    {line}" for line in lines),
            "    await rig.close()",
            "asyncio.run(main())",
        )
    )
    return [sys.executable, "-c", code]
