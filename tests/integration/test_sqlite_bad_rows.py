"""Cells of a SQLite file that somebody else wrote: passed over and told, and nothing stops."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from entries import NOW, Clock, entry, key
from record_rig import Rig, bound, kept
from record_rig import entry as record
from store_contract import FREE, held

from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound
from trivet.semantic.monitor_store import Changed, Row, Update
from trivet.semantic.records import Added, Purged, Removed, Reset
from trivet.semantic.sqlite_monitor import SqliteMonitorStore
from trivet.semantic.tally import Cell, Counts
from trivet.telemetry import EntryRejected, Event

NO_TEXT = "CAST(x'ff' AS TEXT)"
HIGHEST = (1 << 63) - 1


def write(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def rejected(told: list[Event]) -> list[str]:
    return [event.reason for event in told if isinstance(event, EntryRejected)]


class Exact:
    """A store in a file, with memory before another one on the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Event] = []
        self.store, back = (
            SqliteStore(
                path,
                Seal(b"s" * 32),
                most=Bound(entries=3),
                observer=self.told.append,
                clock=Clock(),
            )
            for _ in range(2)
        )
        self.front = LayeredStore(MemoryStore(clock=Clock()), back, poll_s=3600.0)

    async def close(self) -> None:
        await self.front.close()
        await self.store.close()


@pytest.fixture
async def exact(tmp_path: Path) -> AsyncIterator[Exact]:
    made = Exact(tmp_path / "c.db")
    await made.store.put(entry("a"), FREE)
    await made.front.follow()
    assert await held(made.front, "a") == ["a"]
    yield made
    await made.close()


@pytest.mark.parametrize("cell", [NO_TEXT, "'x'", "5", "1.5", "x'00'", "x''"])
async def test_a_row_of_the_feed_that_is_no_purge_is_told_once_and_its_reader_starts_anew(
    exact: Exact, cell: str
) -> None:
    write(exact.path, f"INSERT INTO feed(purge) VALUES({cell})")
    await exact.store.purge("t1", "tag:x", NOW)
    before = await exact.store.changes(0)
    assert before.purges is None
    assert [purge.label for purge in before.rest] == ["tag:x"]
    assert rejected(exact.told) == ["mac"]
    assert (await exact.store.changes(before.cursor)).purges == ()
    assert rejected(exact.told) == ["mac"]


@pytest.mark.parametrize("cell", [NO_TEXT, "5", "x'00'"])
async def test_purges_after_a_row_that_is_none_are_followed(exact: Exact, cell: str) -> None:
    write(exact.path, f"INSERT INTO feed(purge) VALUES({cell})")
    await exact.store.purge("t1", None, NOW)
    await exact.front.follow()
    assert await held(exact.front, "a") == []


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO feed(seq, purge) VALUES({HIGHEST}, x'00')",
        f"UPDATE sqlite_sequence SET seq = {HIGHEST}",
        "UPDATE sqlite_sequence SET seq = 'x'",
        f"UPDATE sqlite_sequence SET seq = {NO_TEXT}",
        "DELETE FROM sqlite_sequence",
    ],
)
async def test_a_feed_whose_numbers_somebody_changed_takes_and_tells_purges(
    exact: Exact, statement: str
) -> None:
    write(exact.path, statement)
    await exact.front.follow()
    await exact.store.purge("t1", None, NOW)
    await exact.front.follow()
    assert await held(exact.front, "a") == []


@pytest.mark.parametrize("cell", [NO_TEXT, "'abc'", "x'00'", "-5", "1.5"])
@pytest.mark.parametrize("column", ["entries", "bytes"])
async def test_totals_that_are_no_numbers_are_counted_anew(
    exact: Exact, cell: str, column: str
) -> None:
    write(exact.path, f"UPDATE totals SET {column} = {cell}")
    usage = await exact.store.usage(None)
    assert (usage.entries, usage.bytes) == (1, entry("a").size)
    for name in "abcd":
        await exact.store.put(entry(name), FREE)
    usage = await exact.store.usage(None)
    assert (usage.entries, usage.bytes) == (3, 3 * entry("a").size)
    with closing(sqlite3.connect(exact.path)) as db:
        assert (
            db.execute("SELECT entries, bytes FROM totals").fetchall()
            == [(3, 3 * entry("a").size)] * 2
        )


async def test_totals_over_all_that_somebody_deleted_bound_the_store_again(exact: Exact) -> None:
    write(exact.path, "DELETE FROM totals WHERE tenant = x''")
    for name in "abcde":
        await exact.store.put(entry(name), FREE)
    assert (await exact.store.usage(None)).entries == 3


@pytest.mark.parametrize("cell", [NO_TEXT, "'abc'", "x'00'"])
@pytest.mark.parametrize("column", ["used", "size", "created"])
async def test_an_entry_whose_columns_are_no_numbers_is_evicted_like_another(
    exact: Exact, cell: str, column: str
) -> None:
    write(exact.path, f"UPDATE entries SET {column} = {cell}")
    for name in "bcdefg":
        await exact.store.put(entry(name), FREE)
    assert len(await held(exact.store, *"abcdefg")) >= 2


@pytest.mark.parametrize(
    "row", [f"{NO_TEXT}, 1.0", f"x'00', {NO_TEXT}", "7, 'x'", "x'00', x'00'", "'x', 5"]
)
async def test_a_tombstone_that_is_none_hides_no_other(exact: Exact, row: str) -> None:
    write(exact.path, f"INSERT INTO tombstones VALUES({row})")
    assert await held(exact.store, "a") == ["a"]
    await exact.store.put(entry("b", tenant="t2"), FREE)
    await exact.store.purge("t1", None, NOW)
    assert await held(exact.store, "a") == []
    assert await held(exact.store, "b", tenant="t2") == ["b"]


async def test_tombstones_that_are_none_are_forgotten_with_the_others(
    exact: Exact, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trivet.exact import sqlite_rows

    monkeypatch.setattr(sqlite_rows, "TOMBSTONES_KEPT", 3)
    write(exact.path, f"INSERT INTO tombstones VALUES({NO_TEXT}, {NO_TEXT}), ('x', 1.0)")
    for number in range(5):
        await exact.store.purge("t1", f"tag:{number}", 5.0 + number)
    await exact.store.put(entry("old", created=6.0), FREE)
    assert await exact.store.get("t1", key("old")) is None
    with closing(sqlite3.connect(exact.path)) as db:
        assert db.execute("SELECT count(*) FROM tombstones").fetchone()[0] <= 4


# Records.


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(str(tmp_path / "records.db"), bound=bound(entries=3))
    yield made
    await made.close()


async def test_a_record_whose_id_is_no_text_is_passed_over_and_told(rig: Rig) -> None:
    store = rig.open()
    await store.publish(Added(record("a")))
    for cells in (f"x'00', {NO_TEXT}", f"{NO_TEXT}, 'x'", "7, 8"):
        write(
            Path(rig.place),
            "INSERT INTO records(tenant, id, created, expires, size, value)"
            f" VALUES({cells}, 1.0, 9e15, 1, {NO_TEXT})",
        )
    assert await kept(store) == {"a"}
    assert rejected(rig.seen) == ["format"] * 3
    await store.publish(Added(record("b")))
    assert await kept(store) >= {"b"}


@pytest.mark.parametrize(
    "cells",
    [
        f"{NO_TEXT}, NULL, NULL, x'00'",
        f"'event', NULL, NULL, {NO_TEXT}",
        "'event', NULL, NULL, NULL",
        f"'event', NULL, {NO_TEXT}, 5",
        "7, NULL, NULL, 8.5",
    ],
)
async def test_an_event_that_is_none_is_told_once_and_its_reader_starts_anew(
    rig: Rig, cells: str
) -> None:
    store = rig.open()
    cursor = (await store.snapshot()).cursor
    write(Path(rig.place), f"INSERT INTO feed(kind, tenant, id, value) VALUES({cells})")
    await store.publish(Added(record("a")))
    assert (await store.changes(cursor)).changes == (Reset(),)
    assert rejected(rig.seen) == ["mac"]
    snapshot = await store.snapshot()
    await store.publish(Purged("t1", None, 1.0))
    assert (await store.changes(snapshot.cursor)).changes == (Purged("t1", None, 1.0),)
    assert rejected(rig.seen) == ["mac"]


async def test_an_addition_that_is_none_is_passed_over(rig: Rig) -> None:
    store = rig.open()
    cursor = (await store.snapshot()).cursor
    write(
        Path(rig.place),
        f"INSERT INTO feed(kind, tenant, id, value) VALUES('added', x'00', {NO_TEXT}, x'00')",
    )
    kept_record = record("a")
    await store.publish(Added(kept_record))
    assert (await store.changes(cursor)).changes == (Added(kept_record),)
    assert rejected(rig.seen) == ["format"]


async def test_events_that_somebody_deleted_from_the_middle_are_a_gap(rig: Rig) -> None:
    store = rig.open()
    cursor = (await store.snapshot()).cursor
    for at in (1.0, 2.0, 3.0):
        await store.publish(Purged("t1", None, at))
    write(Path(rig.place), "DELETE FROM feed WHERE seq = 2")
    assert (await store.changes(cursor)).changes == (Reset(),)


@pytest.mark.parametrize("table", ["records", "gone", "feed"])
async def test_a_row_of_the_highest_number_does_not_end_writing(rig: Rig, table: str) -> None:
    store = rig.open()
    await store.publish(Added(record("a")))
    await store.publish(Removed("t1", record("z").id))
    highest = f"(SELECT max(seq) FROM {table})"
    write(Path(rig.place), f"UPDATE {table} SET seq = {HIGHEST} WHERE seq = {highest}")
    write(Path(rig.place), f"UPDATE sqlite_sequence SET seq = {HIGHEST} WHERE name = '{table}'")
    cursor = (await store.snapshot()).cursor
    await store.publish(Added(record("b")))
    await store.publish(Removed("t1", record("y").id))
    assert "b" in await kept(store)
    changes = (await store.changes(cursor)).changes
    assert Reset() in changes or Removed("t1", record("y").id) in changes


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM file",
        f"UPDATE file SET token = {NO_TEXT}",
        f"UPDATE sqlite_sequence SET seq = {NO_TEXT}",
        f"UPDATE totals SET entries = {NO_TEXT}, bytes = 'x'",
        "UPDATE totals SET entries = x'00'",
        f"INSERT INTO tombstones VALUES({NO_TEXT}, {NO_TEXT})",
    ],
)
async def test_records_are_stored_and_bounded_whatever_somebody_wrote_beside_them(
    rig: Rig, statement: str
) -> None:
    store = rig.open()
    await store.publish(Added(record("a")))
    write(Path(rig.place), statement)
    for name in "bcdef":
        await store.publish(Added(record(name)))
    assert len(await kept(store)) == 3
    assert (await store.snapshot()).count == 3
    cursor = (await store.snapshot()).cursor
    assert (await store.changes(cursor)).changes == ()


# Running counts.


@pytest.mark.parametrize(
    "row",
    [
        f"{NO_TEXT}, 2, x'00'",
        f"'name', 2, {NO_TEXT}",
        f"'name', {NO_TEXT}, 7",
        f"'name', {HIGHEST}, x'00'",
        "7, 2, 8",
    ],
)
async def test_a_row_of_counts_that_is_none_stops_neither_reading_nor_adding(
    tmp_path: Path, row: str
) -> None:
    path, told = tmp_path / "monitor.sqlite", list[Event]()
    store = SqliteMonitorStore(path, Seal(b"s" * 32), told.append)
    cell, other = Cell("t", "ab", "chat:m", "informational"), Cell("u", "ab", "chat:m", "x")
    await store.add("b1", {cell: Update(more=Counts(1))})
    write(path, f"INSERT INTO monitor VALUES({row})")
    found: Changed = await store.changes(0)
    assert found.rows == {cell: Row(Counts(1))}
    await store.add("b2", {other: Update(more=Counts(2))})
    assert (await store.changes(found.cursor)).rows == {other: Row(Counts(2))}


@pytest.mark.parametrize("statement", ["DELETE FROM file", f"UPDATE file SET token = {NO_TEXT}"])
async def test_counts_are_read_where_their_token_is_none(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "monitor.sqlite"
    store = SqliteMonitorStore(path, Seal(b"s" * 32))
    await store.add("b1", {Cell("t", "ab", "", "x"): Update(more=Counts(1))})
    write(path, statement)
    assert len((await store.changes(0)).rows) == 1
