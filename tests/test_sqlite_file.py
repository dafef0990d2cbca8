"""How one SQLite file is opened, replaced and given up by several connections."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from trivet.errors import StoreError
from trivet.exact.sqlite_rows import SCHEMA
from trivet.sqlite_file import Inodes, SqliteFile

ADD = "INSERT INTO tombstones VALUES(?, 1.0)"
COUNT = "SELECT count(*) FROM tombstones"


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    return SqliteFile(tmp_path / "cache.sqlite", SCHEMA, 0.25)


def beside(file: SqliteFile) -> set[str]:
    """The endings of the files that lie beside the database."""
    return {found.name.removeprefix(file.path.name) for found in file.path.parent.iterdir()}


@pytest.fixture
def left_behind(file: SqliteFile) -> Iterator[Callable[[], None]]:
    """Closes a connection whose file was emptied, read from, and moved aside."""
    file.close(*file.open())  # So that the log is empty: a log would say how large the file is.
    old, seen = file.open()
    os.truncate(file.path, 0)
    with suppress(sqlite3.DatabaseError):
        old.execute(COUNT)
    file.move_aside(seen)
    yield lambda: file.close(old, seen)
    old.close()


def test_giving_up_an_emptied_file_takes_no_log_from_its_successor(
    file: SqliteFile, left_behind: Callable[[], None]
) -> None:
    new, seen = file.open()
    new.execute(ADD, (b"one",))
    left_behind()
    assert not file.replaced(seen)
    assert beside(file) == {"", "-wal", "-shm", ".lock", ".corrupt", ".corrupt-wal"}
    with closing(sqlite3.connect(file.path)) as other:
        assert other.execute(COUNT).fetchone() == (1,)
    new.execute(ADD, (b"two",))
    file.close(new, seen)
    again, seen = file.open()
    assert again.execute(COUNT).fetchone() == (2,)
    file.close(again, seen)


def test_giving_up_an_emptied_file_makes_no_log_where_there_is_none(
    file: SqliteFile, left_behind: Callable[[], None]
) -> None:
    left_behind()
    assert beside(file) == {".lock", ".corrupt", ".corrupt-wal"}


def test_the_last_connection_of_a_sound_file_leaves_no_log(file: SqliteFile) -> None:
    db, seen = file.open()
    db.execute(ADD, (b"one",))
    file.close(db, seen)
    assert beside(file) == {"", ".lock"}


def test_a_connection_of_a_directory_that_is_gone_is_closed(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "state" / "cache.sqlite", SCHEMA, 0.25)
    db, seen = file.open()
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    file.close(db, seen)
    assert [found.name for found in tmp_path.iterdir()] == ["elsewhere"]
    with pytest.raises(sqlite3.ProgrammingError):
        db.execute(COUNT)


@pytest.mark.parametrize("gone", ["", "-wal"])
def test_a_file_is_another_once_it_or_its_log_is_gone(file: SqliteFile, gone: str) -> None:
    db, seen = file.open()
    assert not file.replaced(seen)
    Path(f"{file.path}{gone}").unlink()
    assert file.replaced(seen)
    file.close(db, seen)


def test_only_the_file_that_was_found_broken_is_moved_aside(file: SqliteFile) -> None:
    file.path.write_bytes(b"garbage " * 512)
    with pytest.raises(StoreError, match="was moved to"):
        file.open()
    db, seen = file.open()
    stranger = Inodes(seen.file + 1, seen.log)
    assert file.move_aside(stranger).reason == "corrupt"
    assert not file.replaced(seen)
    assert Path(f"{file.path}.corrupt").read_bytes() == b"garbage " * 512
    file.close(db, seen)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    file: SqliteFile, version: int
) -> None:
    with closing(sqlite3.connect(file.path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("CREATE TABLE theirs(x)")
    before = file.path.read_bytes()
    with pytest.raises(StoreError) as caught:
        file.open()
    assert caught.value.reason == "format"
    assert file.path.read_bytes() == before
    assert beside(file) == {"", ".lock"}
