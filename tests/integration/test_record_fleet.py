"""Several processes' indexes over one record store: in step, whatever happens to the store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from record_rig import Member, Rig, entry, kept, names, other_process, until
from redis_servers import Server, running

from trivet.errors import StoreError
from trivet.semantic.records import Added, Purged, Removed
from trivet.telemetry import Event, StoreState


@pytest.fixture(params=["sqlite", "redis"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[_Fleet]:
    if request.param == "sqlite":
        made = _Fleet(Rig(str(tmp_path / "records.db")), None)
        yield made
        await made.close()
        return
    with running(tmp_path / "redis") as server:
        made = _Fleet(Rig(server.url), server)
        yield made
        await made.close()


class _Fleet:
    def __init__(self, rig: Rig, server: Server | None) -> None:
        self.rig = rig
        self.server = server
        self.told: list[Event] = []
        self.members: list[Member] = []

    async def member(self) -> Member:
        made = await Member(self.rig.open(), self.told.append).started()
        self.members.append(made)
        return made

    async def close(self) -> None:
        for member in self.members:
            await member.follower.close()
        await self.rig.close()


async def test_what_one_process_writes_another_finds_and_a_restarted_one_too(
    fleet: _Fleet,
) -> None:
    one = await fleet.member()
    line = "for at in range(20): await store.publish(Added(entry('x' + str(at))))"
    await asyncio.to_thread(
        subprocess.run, other_process(fleet.rig.place, line), check=True, timeout=60
    )
    await until(lambda: len(names(one.index)) == 20, "the other process's records")
    await one.follower.tell(Added(entry("mine")))
    await one.follower.close()
    two = await fleet.member()
    assert len(names(two.index)) == 21


async def test_a_write_is_visible_elsewhere_within_a_second(fleet: _Fleet) -> None:
    one, two = await fleet.member(), await fleet.member()
    took = []
    for number in range(5):
        began = time.monotonic()
        await one.follower.tell(Added(entry(f"n{number}")))
        await until(lambda number=number: f"n{number}" in names(two.index), "the write")  # type: ignore[misc]
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 1.0


async def test_a_purge_and_a_removal_reach_all(fleet: _Fleet) -> None:
    members = [await fleet.member() for _ in range(3)]
    tagged = frozenset({"tag:x"})
    await members[0].follower.tell(Added(entry("a", labels=tagged)))
    await members[1].follower.tell(Added(entry("b")))
    await members[2].follower.tell(Added(entry("c")))
    await members[2].follower.tell(Added(entry("d", tenant="t2", labels=tagged)))
    await until(lambda: all(names(one.index) == {"a", "b", "c"} for one in members), "all")
    await members[2].follower.tell(Purged("t1", "tag:x", time.time()))
    await members[0].follower.tell(Removed("t1", entry("b").id))
    await until(lambda: all(names(one.index) == {"c"} for one in members), "the purge")
    await members[1].follower.tell(Added(entry("a", labels=tagged)))
    await asyncio.sleep(0.2)
    assert [names(one.index) for one in members] == [{"c"}] * 3
    assert [names(one.index, "t2") for one in members] == [{"d"}] * 3
    late = await fleet.member()
    assert names(late.index) == {"c"}


async def test_a_store_that_is_emptied_under_us_empties_the_indexes_and_goes_on(
    fleet: _Fleet,
) -> None:
    one, two = await fleet.member(), await fleet.member()
    await one.follower.tell(Added(entry("a")))
    await until(lambda: names(two.index) == {"a"}, "the record")
    if fleet.server is not None:
        fleet.server.cli("FLUSHALL")
    else:
        for path in Path(fleet.rig.place).parent.iterdir():
            path.unlink()
    await until(lambda: not names(one.index) and not names(two.index), "the flush")
    await two.follower.tell(Added(entry("b", created=time.time())))
    await until(lambda: names(one.index) == {"b"}, "the record after it")
    assert await kept(one.store) == {"b"}


async def test_a_store_that_goes_and_comes_back_takes_nothing_away(fleet: _Fleet) -> None:
    one = await fleet.member()
    await one.follower.tell(Added(entry("a")))
    path = Path(fleet.rig.place)
    if fleet.server is not None:
        fleet.server.cli("SAVE")
        fleet.server.stop()
    else:
        path.rename(path.with_suffix(".away"))
        path.mkdir()
    await until(lambda: one.follower.progress.phase == "waiting", "the trouble")
    assert names(one.index) == {"a"}
    with pytest.raises(StoreError):
        await one.follower.tell(Added(entry("b")))
    assert names(one.index) == {"a", "b"}
    if fleet.server is not None:
        fleet.server.start()
    else:
        path.rmdir()
        path.with_suffix(".away").rename(path)
    await until(lambda: one.follower.progress.phase == "following", "the store")
    assert names(one.index) >= {"a"}
    states = [event.state for event in fleet.told if isinstance(event, StoreState)]
    assert states == ["up", "down", "up"]


async def test_another_programs_file_is_refused_by_its_name_and_left_as_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other(x)")
    before = path.read_bytes()
    rig = Rig(str(path))
    with pytest.raises(StoreError, match=r"records\.db") as caught:
        await rig.open().ready()
    assert caught.value.reason == "format"
    assert path.read_bytes() == before
    await rig.close()


async def test_a_file_that_is_no_database_is_moved_aside_and_a_new_one_is_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"no database at all" * 100)
    rig = Rig(str(path))
    store = rig.open()
    with pytest.raises(StoreError, match=r"records\.db was moved to .*\.corrupt") as caught:
        await store.ready()
    assert caught.value.reason == "corrupt"
    await store.publish(Added(entry("earlier")))
    await store.publish(Added(entry("a", created=time.time())))
    assert await kept(store) == {"a"}
    assert Path(f"{path}.corrupt").read_bytes() == b"no database at all" * 100
    await rig.close()


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    rig = Rig(str(tmp_path / "new" / "records.db"))
    await rig.open().publish(Added(entry()))
    assert os.stat(rig.place).st_mode & 0o777 == 0o600
    await rig.close()


async def test_a_large_partition_is_loaded_and_searched(fleet: _Fleet) -> None:
    store = fleet.rig.open()
    count = 3_000
    random = np.random.default_rng(0)
    rows = random.normal(size=(count, 8)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fleet.rig.bound = replace(fleet.rig.bound, of=lambda tenant: count)
    store = fleet.rig.open()
    records = [entry(f"n{at}", vector=row.tobytes()) for at, row in enumerate(rows)]
    for start in range(0, count, 200):
        await asyncio.gather(
            *(store.publish(Added(record)) for record in records[start : start + 200])
        )
    one = await fleet.member()
    assert len(one.index) == count
    found = one.index.nearest(records[7].partition, rows[7], 1, time.time())
    assert found[0].record == records[7]
