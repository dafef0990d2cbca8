"""What every record store does: the same tests over a SQLite file and a real Redis."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from record_rig import Rig, bound, entry, kept, loaded, other_process
from redis_servers import Server, running

from trivet.semantic.memory_records import MemoryRecords
from trivet.semantic.records import (
    Added,
    Change,
    Confirmed,
    Cursor,
    Event,
    Purged,
    RecordStore,
    Removed,
    Reset,
)
from trivet.telemetry import EntryRejected


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path, redis: Server) -> AsyncIterator[Rig]:
    if request.param == "redis":
        redis.cli("FLUSHALL")
        made = Rig(redis.url)
    else:
        made = Rig(str(tmp_path / "records.db"))
    yield made
    await made.close()


async def _cursor(store: RecordStore) -> Cursor:
    return (await store.snapshot()).cursor


async def _since(store: RecordStore, cursor: Cursor) -> list[Change]:
    found: list[Change] = []
    while (some := await store.changes(cursor)).changes:
        found += some.changes
        if some.cursor == cursor:
            break
        cursor = some.cursor
    return found


async def test_a_record_comes_back_whole_to_another_process(rig: Rig) -> None:
    record = entry(
        labels=frozenset({"tag:a", "version:p=1"}),
        author="who",
        confirmed=False,
        seen=("u1", "u2"),
        answers=3,
    )
    await rig.open().publish(Added(record))
    found = await loaded(await rig.open().snapshot())
    assert found == {record.id: record}


async def test_events_come_in_order_to_who_follows(rig: Rig) -> None:
    writer, reader = rig.open(), rig.open()
    cursor = await _cursor(reader)
    events: list[Event] = [
        Added(entry("a")),
        Added(entry("b", confirmed=False)),
        Confirmed(entry("b", confirmed=True)),
        Removed("t1", entry("a").id),
        Purged("t2", "tag:x", 5.0),
        Purged("t2", None, 6.5),
    ]
    for event in events:
        await writer.publish(event)
    found = await _since(reader, cursor)
    # The record of the first event is gone, and that of the second is the confirmed one.
    whole = entry("b")
    assert [type(one) for one in found] == [Added, Confirmed, Removed, Purged, Purged]
    assert isinstance(found[0], Added)
    assert found[0].record.id == whole.id
    assert found[0].record.confirmed
    assert found[2:] == events[3:]
    assert await _since(reader, await _cursor(reader)) == []


async def test_a_snapshot_and_the_feed_after_it_miss_nothing(rig: Rig) -> None:
    writer, reader = rig.open(), rig.open()
    for number in range(600):
        await writer.publish(Added(entry(f"n{number}")))
    snapshot = await reader.snapshot()
    assert snapshot.count == 600
    found: set[str] = set()
    async for batch in snapshot.batches:
        found |= {record.id for record in batch}
        await writer.publish(Added(entry(f"late {len(found)}", id=f"{len(found):032x}")))
    found |= {
        one.record.id for one in await _since(reader, snapshot.cursor) if isinstance(one, Added)
    }
    assert found >= {entry(f"n{number}").id for number in range(600)}
    assert f"{600:032x}" in found or len(found) > 600


async def test_what_a_tenant_purged_is_gone_and_does_not_come_back(rig: Rig) -> None:
    store, now = rig.open(), time.time()
    tagged = frozenset({"tag:x"})
    for record in (
        entry("a", labels=tagged, created=now - 5),
        entry("b", created=now - 5),
        entry("c", labels=tagged, created=now + 5),
        entry("d", tenant="t2", labels=tagged, created=now - 5),
    ):
        await store.publish(Added(record))
    await store.publish(Purged("t1", "tag:x", now))
    assert await kept(store) == {"b", "c", "d"}
    cursor = await _cursor(store)
    await store.publish(Added(entry("late", labels=tagged, created=now - 1)))
    assert await _since(store, cursor) == []
    await store.publish(Purged("t1", None, now))
    await store.publish(Added(entry("later", created=now - 1)))
    assert await kept(store) == {"c", "d"}


async def test_a_removed_record_does_not_come_back(rig: Rig) -> None:
    store = rig.open()
    await store.publish(Added(entry("a")))
    await store.publish(Removed("t1", entry("a").id))
    await store.publish(Confirmed(entry("a")))
    assert await kept(store) == set()


async def test_an_earlier_purge_does_not_shorten_a_later_one(rig: Rig) -> None:
    store, now = rig.open(), time.time()
    await store.publish(Purged("t1", None, now))
    await store.publish(Purged("t1", None, now - 100))
    await store.publish(Added(entry("a", created=now - 50)))
    assert await kept(store) == set()


async def test_over_its_bound_a_tenant_loses_its_oldest(rig: Rig) -> None:
    store, now = rig.open(bound=bound(3)), time.time()
    for number in range(6):
        await store.publish(Added(entry(f"n{number}", created=now + number)))
        await store.publish(Added(entry(f"o{number}", tenant="t2", created=now + number)))
    assert await kept(store) == {"n3", "n4", "n5", "o3", "o4", "o5"}


async def test_a_full_store_takes_room_from_who_fills_it(rig: Rig) -> None:
    store, now = rig.open(bound=bound(entries=5)), time.time()
    await store.publish(Added(entry("other", tenant="t2")))
    for number in range(9):
        await store.publish(Added(entry(f"n{number}", created=now + number)))
    assert await kept(store) == {"other", "n5", "n6", "n7", "n8"}
    await store.publish(Added(entry("third", tenant="t3")))
    assert len(await kept(store)) == 5
    assert "third" in await kept(store)


async def test_a_store_is_bounded_by_bytes(rig: Rig) -> None:
    store = rig.open(bound=bound(bytes=20_000))
    for number in range(30):
        await store.publish(Added(entry(f"n{number}", text=f"q n{number} " + "x" * 2_000)))
    assert 5 <= len(await kept(store)) <= 9
    await store.publish(Added(entry("huge", text="q huge " + "x" * 30_000)))
    assert "huge" not in await kept(store)


async def test_a_tenant_whose_bound_is_nothing_keeps_nothing(rig: Rig) -> None:
    store = rig.open(bound=bound(0))
    await store.publish(Added(entry()))
    assert await kept(store) == set()


async def test_expired_records_are_not_loaded_and_are_swept(rig: Rig) -> None:
    store = rig.open()
    await store.publish(Added(entry("short", expires=time.time() + 0.2)))
    await store.publish(Added(entry("long")))
    await asyncio.sleep(0.3)
    assert await kept(store) == {"long"}
    await store.sweep()
    assert (await store.snapshot()).count == 1
    await store.publish(Added(entry("past", expires=time.time() - 1)))
    assert await kept(store) == {"long"}


async def test_a_record_is_replaced_by_its_id(rig: Rig) -> None:
    store = rig.open()
    await store.publish(Added(entry("a", confirmed=False)))
    await store.publish(Confirmed(entry("a", answers=2)))
    found = await loaded(await store.snapshot())
    assert [(one.confirmed, one.answers) for one in found.values()] == [(True, 2)]
    assert (await store.snapshot()).count == 1


async def test_two_tenants_may_have_records_of_one_id(rig: Rig) -> None:
    store = rig.open()
    await store.publish(Added(entry("a", id="1" * 32)))
    await store.publish(Added(entry("b", tenant="t2", id="1" * 32)))
    await store.publish(Removed("t1", "1" * 32))
    assert await kept(store) == {"b"}


async def test_what_another_secret_sealed_is_passed_over_and_told(rig: Rig) -> None:
    mine, other = rig.open(), rig.open(b"another secret of thirty-two ...")
    if rig.place.startswith("redis"):
        # Another secret's deployment has other names: nothing is there.
        await mine.publish(Added(entry()))
        assert await kept(other) == set()
        return
    cursor = await _cursor(other)
    await mine.publish(Added(entry()))
    await mine.publish(Purged("t1", "tag:x", 1.0))
    assert await kept(other) == set()
    assert await _since(other, cursor) == [Reset()]
    assert [event.reason for event in rig.seen if isinstance(event, EntryRejected)] == ["mac"] * 3


@pytest.mark.parametrize(
    "fields", [["x", "y"], ["k", "added"], ["k", "event", "v", "junk"], ["k", "added", "v", "m"]]
)
async def test_a_stream_entry_that_is_none_of_ours_is_passed_over(
    redis: Server, fields: list[str]
) -> None:
    redis.cli("FLUSHALL")
    rig = Rig(redis.url)
    try:
        store = rig.open()
        cursor = await _cursor(store)
        keys = redis.cli("KEYS", "*:r:n").strip().removesuffix("n")
        redis.cli("SET", f"{keys}e:m", "no hash")
        number = redis.cli("INCR", f"{keys}n").strip()
        redis.cli("XADD", f"{keys}s", f"{number}-0", *fields)
        record = entry("a")
        await store.publish(Added(record))
        assert await _since(store, cursor) == [Added(record)]
    finally:
        await rig.close()


async def test_records_are_encrypted_where_asked(rig: Rig, redis: Server, tmp_path: Path) -> None:
    store = rig.open(encrypt=True)
    await store.publish(
        Added(entry("geheimnis", tenant="tenant-name", labels=frozenset({"tag:q"})))
    )
    assert await kept(store) == {"geheimnis"}
    await store.close()
    if rig.place.startswith("redis"):
        redis.cli("SAVE")
        raw = (redis.directory / "dump.rdb").read_bytes()
    else:
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"geheimnis" not in raw
    assert b"tenant-name" not in raw
    assert b"tag:q" not in raw


async def test_a_reader_that_is_too_far_behind_is_told_to_start_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trivet.semantic import record_rows

    monkeypatch.setattr(record_rows, "FEED_KEPT", 10)
    store = rig.open()
    cursor = await _cursor(store)
    for number in range(20):
        await store.publish(Added(entry(f"n{number}")))
    if rig.place.startswith("redis"):
        subprocess.run(
            ["redis-cli", "-u", rig.place, "XTRIM", _stream(rig), "MAXLEN", "5"], check=True
        )
    found = await store.changes(cursor)
    assert found.changes == (Reset(),)


def _stream(rig: Rig) -> str:
    done = subprocess.run(
        ["redis-cli", "-u", rig.place, "KEYS", "*:r:s"], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


async def test_a_store_that_was_emptied_under_us_tells_to_start_anew(
    rig: Rig, redis: Server
) -> None:
    store = rig.open()
    await store.publish(Added(entry("a")))
    cursor = await _cursor(store)
    if rig.place.startswith("redis"):
        redis.cli("FLUSHALL")
    else:
        for path in Path(rig.place).parent.iterdir():
            path.unlink()
    other = rig.open()
    assert (await store.changes(cursor)).changes == (Reset(),)
    await other.publish(Added(entry("b", created=time.time())))
    assert (await store.changes(cursor)).changes == (Reset(),)
    snapshot = await store.snapshot()
    assert {record.text.split()[1] for record in (await loaded(snapshot)).values()} == {"b"}
    await other.publish(Added(entry("c", created=time.time())))
    found = await store.changes(snapshot.cursor)
    assert [type(one) for one in found.changes] == [Added]


async def test_processes_that_start_and_write_at_once_lose_nothing(rig: Rig) -> None:
    line = "for at in range(50): await store.publish(Added(entry('NAME' + str(at))))"
    writers = [
        subprocess.Popen(other_process(rig.place, line.replace("NAME", name)))
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(await kept(rig.open())) == 150


async def test_closing_twice_is_closing_once(rig: Rig) -> None:
    store = rig.open()
    await store.ready()
    await store.close()
    await store.close()


async def test_a_record_of_text_that_no_utf8_holds_does_not_break_a_store(rig: Rig) -> None:
    store = rig.open()
    with pytest.raises(ValueError, match="surrogate"):
        await store.publish(Added(replace(entry(), text="\ud800")))
    await store.publish(Added(entry("a")))
    assert await kept(store) == {"a"}


async def test_a_memory_store_has_nothing_to_tell() -> None:
    store = MemoryRecords()
    await store.publish(Added(entry()))
    await store.ready()
    await store.sweep()
    snapshot = await store.snapshot()
    assert await loaded(snapshot) == {}
    assert (await store.changes(snapshot.cursor)).changes == ()
    await store.close()
