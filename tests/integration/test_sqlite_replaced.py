"""Purges where the SQLite file is removed, replaced or broken: none is lost, none comes undone."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from entries import NOW, Clock, entry
from store_contract import FREE, held

from trivet.errors import StoreError
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound

LATE_S = 3600.0
"""A poll of the feed that no test waits for: it asks itself."""


@dataclass
class Fleet:
    """Two processes on one file: a bare store, and one that has memory in front."""

    path: Path
    clock: Clock
    one: SqliteStore
    two: SqliteStore
    front: LayeredStore

    def remove(self, *endings: str) -> None:
        for ending in endings:
            Path(f"{self.path}{ending}").unlink(missing_ok=True)

    def saved(self) -> Callable[[], None]:
        """A backup; calling the result moves it into place."""
        backup = self.path.with_name("backup")
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("VACUUM INTO ?", (str(backup),))
        return lambda: os.replace(backup, self.path)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Fleet]:
    clock, seal = Clock(), Seal(b"s" * 32)
    one, two = (SqliteStore(path, seal, most=Bound(), clock=clock) for _ in range(2))
    front = LayeredStore(MemoryStore(clock=clock), two, poll_s=LATE_S)
    yield Fleet(path, clock, one, two, front)
    await front.close()
    await one.close()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with opened(tmp_path / "c.db") as made:
        await made.one.put(entry("a"), FREE)
        await made.front.follow()
        assert await held(made.front, "a") == ["a"]
        made.clock.now = NOW + 10
        yield made


@pytest.mark.parametrize(
    "gone", [("",), ("", "-wal"), ("", "-wal", "-shm"), ("", "-wal", "-shm", ".lock")]
)
async def test_a_purge_right_after_the_file_was_removed_reaches_the_other_process(
    fleet: Fleet, gone: tuple[str, ...]
) -> None:
    fleet.remove(*gone)
    await fleet.one.purge("t1", None, NOW)
    await fleet.front.follow()
    assert await held(fleet.front, "a") == []
    assert await held(fleet.one, "a") == []
    with closing(sqlite3.connect(fleet.path)) as db:
        assert db.execute("SELECT count(*) FROM feed").fetchone() == (1,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_an_answer_asked_for_before_a_purge_is_not_stored_in_the_file_that_comes_next(
    fleet: Fleet,
) -> None:
    await fleet.one.purge("t1", None, NOW)
    fleet.remove("", "-wal", "-shm")
    await fleet.two.put(entry("a"), FREE)
    await fleet.two.put(entry("b", created=NOW + 11), FREE)
    assert await held(fleet.one, "a", "b") == ["b"]


async def test_an_answer_asked_for_before_a_purge_is_not_stored_after_the_file_was_broken(
    fleet: Fleet,
) -> None:
    await fleet.one.purge("t1", None, NOW)
    fleet.path.write_bytes(b"garbage " * 4096)
    for store in (fleet.one, fleet.two):
        for _ in range(2):
            with suppress(StoreError):
                await store.put(entry("a"), FREE)
    await fleet.two.put(entry("b", created=NOW + 11), FREE)
    assert await held(fleet.one, "a", "b") == ["b"]


async def test_an_answer_asked_for_before_the_first_file_was_made_is_stored(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as fleet:
        await fleet.two.put(entry("a"), FREE)
        assert await held(fleet.one, "a") == ["a"]


async def test_as_many_purges_in_a_new_file_as_in_the_old_one_are_heard(fleet: Fleet) -> None:
    await fleet.one.purge("t2", None, NOW)
    await fleet.front.follow()
    fleet.remove("", "-wal", "-shm")
    await fleet.one.purge("t1", None, NOW)
    await fleet.front.follow()
    assert await held(fleet.front, "a") == []


async def test_as_many_purges_in_a_restored_file_as_in_the_one_before_are_heard(
    fleet: Fleet,
) -> None:
    put_back = fleet.saved()
    await fleet.one.purge("t2", None, NOW)
    await fleet.front.follow()
    put_back()
    await fleet.one.purge("t1", None, NOW)
    await fleet.front.follow()
    assert await held(fleet.front, "a") == []


async def test_a_backup_that_is_moved_over_a_live_file_is_what_is_read(fleet: Fleet) -> None:
    put_back = fleet.saved()
    for number in range(50):
        await fleet.one.put(entry(f"n{number}", created=NOW + 10), FREE)
    put_back()
    assert await held(fleet.one, "a", "n0", "n49") == ["a"]
    await fleet.two.put(entry("b", created=NOW + 11), FREE)
    assert await held(fleet.one, "a", "b") == ["a", "b"]
    with closing(sqlite3.connect(fleet.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_numbers_of_a_feed_begin_elsewhere_in_each_file(fleet: Fleet) -> None:
    before = (await fleet.one.changes(0)).cursor
    fleet.remove("", "-wal", "-shm")
    assert (await fleet.one.changes(before)).purges is None
    with closing(sqlite3.connect(fleet.path)) as db:
        begin = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'feed'").fetchone()[0]
    assert begin > before > 0


async def test_a_file_whose_numbers_begin_at_1_goes_on_as_it_is(fleet: Fleet) -> None:
    with closing(sqlite3.connect(fleet.path)) as db, db:
        db.execute("DELETE FROM sqlite_sequence")
        db.execute("DELETE FROM feed")
    first = await fleet.one.changes(0)
    assert (first.cursor, first.purges) == (0, ())
    await fleet.one.purge("t1", None, NOW)
    found = await fleet.one.changes(first.cursor)
    assert found.cursor == 1
    assert found.purges is not None
    assert [purge.tenant for purge in found.purges] == ["t1"]


async def test_a_copy_of_the_whole_state_keeps_what_its_log_holds(fleet: Fleet) -> None:
    await fleet.one.purge("t1", None, NOW)
    copied = fleet.path.parent / "copied"
    shutil.copytree(fleet.path.parent, copied, ignore=shutil.ignore_patterns("copied"))
    async with opened(copied / fleet.path.name) as other:
        await other.one.put(entry("a"), FREE)
        assert await held(other.one, "a") == []
