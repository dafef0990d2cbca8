"""How one SQLite file is opened, replaced and given up by several connections."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from trivet import sqlite_file
from trivet.errors import StoreError
from trivet.exact.sqlite_rows import SCHEMA
from trivet.sqlite_file import SqliteFile, SqliteHandle

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
    stranger = seen._replace(file=seen.file + 1)
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


def count(db: sqlite3.Connection) -> int:
    found: int = db.execute(COUNT).fetchone()[0]
    return found


@contextmanager
def locked(file: SqliteFile) -> Iterator[None]:
    """Another program holds the lock file, and does not let go."""
    handle = os.open(f"{file.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_OPEN_S", 0.05)
    monkeypatch.setattr(sqlite_file, "_CLOSE_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_file_whose_lock_somebody_holds_is_not_opened_and_not_waited_for(
    file: SqliteFile,
) -> None:
    with locked(file), pytest.raises(StoreError, match=r"cache\.sqlite\.lock") as caught:
        file.open()
    assert caught.value.reason == "locked"
    file.close(*file.open())


@pytest.mark.usefixtures("impatient")
def test_a_connection_is_left_open_while_somebody_holds_the_lock(file: SqliteFile) -> None:
    db, seen = file.open()
    db.execute(ADD, (b"one",))
    with locked(file):
        file.close(db, seen)
    assert count(db) == 1
    db.close()


_LEFT = """
import fcntl, os, sys
from pathlib import Path
from trivet import sqlite_file
from trivet.exact.sqlite_rows import SCHEMA
sqlite_file._CLOSE_S = 0.0
file = sqlite_file.SqliteFile(Path(sys.argv[1]), SCHEMA, 0.25)
db, seen = file.open()
db.execute("INSERT INTO tombstones VALUES(x'01', 1.0)")
held = os.open(f"{file.path}.lock", os.O_RDWR)
fcntl.flock(held, fcntl.LOCK_EX)
file.close(db, seen)
"""


def test_a_process_that_ends_with_a_connection_left_open_leaves_the_log(file: SqliteFile) -> None:
    subprocess.run([sys.executable, "-c", _LEFT, str(file.path)], check=True)
    assert {"", "-wal"} <= beside(file)
    db, seen = file.open()
    assert count(db) == 1
    file.close(db, seen)


def test_what_a_dangling_link_names_is_made_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "link").symlink_to("deep/real.sqlite")
        file = SqliteFile(tmp_path / "link", SCHEMA, 0.25)
        db, seen = file.open()
        db.execute(ADD, (b"one",))
        real = sorted((tmp_path / "deep").iterdir())
        assert [found.name for found in real] == [
            f"real.sqlite{ending}" for ending in ("", "-shm", "-wal", ".lock")
        ]
        assert {stat.S_IMODE(found.stat().st_mode) for found in real} == {0o600}
        assert not file.replaced(seen)
        file.close(db, seen)
    finally:
        os.umask(before)


@pytest.mark.usefixtures("impatient")
def test_two_names_of_one_file_have_one_lock(file: SqliteFile) -> None:
    link = file.path.parent / "link"
    link.symlink_to(file.path)
    with locked(file), pytest.raises(StoreError, match="locked"):
        SqliteFile(link, SCHEMA, 0.25).open()


def test_a_link_that_leads_elsewhere_is_another_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("one")
    file = SqliteFile(link, SCHEMA, 0.25)
    db, seen = file.open()
    link.unlink()
    link.symlink_to("two")
    assert file.replaced(seen)
    file.close(db, seen)
    db, seen = file.open()
    assert Path(seen.path).name == "two"
    file.close(db, seen)


def test_a_broken_link_target_is_moved_aside_beside_itself(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "real").write_bytes(b"garbage " * 512)
    (tmp_path / "link").symlink_to("deep/real")
    file = SqliteFile(tmp_path / "link", SCHEMA, 0.25)
    with pytest.raises(StoreError, match="was moved to"):
        file.open()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep" / "real.corrupt").exists()
    file.close(*file.open())


def test_a_handle_writes_to_the_file_that_lies_there(file: SqliteFile) -> None:
    handle = SqliteHandle(file)
    handle.write(lambda db: db.execute(ADD, (b"one",)))
    file.path.unlink()
    handle.write(lambda db: db.execute(ADD, (b"two",)))
    with closing(sqlite3.connect(file.path)) as other:
        assert other.execute("SELECT name FROM tombstones").fetchall() == [(b"two",)]
    handle.close()


def test_a_write_that_went_into_a_file_removed_meanwhile_is_done_again(file: SqliteFile) -> None:
    handle, tries = SqliteHandle(file), 0

    def work(db: sqlite3.Connection) -> None:
        nonlocal tries
        tries += 1
        db.execute(ADD, (b"one",))
        if tries == 1:
            file.path.unlink()

    handle.write(work)
    assert tries == 2
    with closing(sqlite3.connect(file.path)) as other:
        assert count(other) == 1
    handle.close()


def test_a_write_gives_up_where_the_file_is_removed_each_time(file: SqliteFile) -> None:
    handle = SqliteHandle(file)
    with pytest.raises(StoreError) as caught:
        handle.write(lambda db: file.path.unlink())
    assert caught.value.reason == "replaced"
    handle.close()


def test_a_database_that_is_moved_over_a_live_one_does_not_meet_its_log(file: SqliteFile) -> None:
    handle, other = SqliteHandle(file), SqliteHandle(file)
    backup = file.path.parent / "backup"
    handle.write(lambda db: db.execute(ADD, (b"saved",)))
    handle.run(lambda db: db.execute("VACUUM INTO ?", (str(backup),)))
    late = [(b"late %d" % number,) for number in range(300)]
    handle.write(lambda db: db.executemany(ADD, late))
    other.run(count)
    os.replace(backup, file.path)
    assert [each.run(count) for each in (handle, other)] == [1, 1]
    handle.write(lambda db: db.execute(ADD, (b"new",)))
    assert other.run(count) == 2
    other.close()
    handle.close()
    with closing(sqlite3.connect(file.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert count(db) == 2


def test_a_database_that_was_moved_away_takes_what_is_in_its_log_along(file: SqliteFile) -> None:
    handle = SqliteHandle(file)
    handle.write(lambda db: db.execute(ADD, (b"one",)))
    away = file.path.with_suffix(".away")
    file.path.rename(away)
    assert handle.run(count) == 0
    with closing(sqlite3.connect(away)) as db:
        assert count(db) == 1
    handle.close()


class TestSuccession:
    @pytest.fixture
    def succeeded(self) -> list[int]:
        return []

    @pytest.fixture
    def file(self, tmp_path: Path, succeeded: list[int]) -> SqliteFile:
        path = tmp_path / "cache.sqlite"
        return SqliteFile(path, SCHEMA, 0.25, lambda db: succeeded.append(count(db)))

    def test_a_first_file_succeeds_none(self, file: SqliteFile, succeeded: list[int]) -> None:
        for _ in range(2):
            file.close(*file.open())
        assert succeeded == []

    @pytest.mark.parametrize("by", ["us", "others"])
    def test_a_file_in_another_ones_place_succeeds_it_once(
        self, file: SqliteFile, succeeded: list[int], by: str
    ) -> None:
        old = file.open()
        file.path.unlink()
        if by == "others":
            other = SqliteFile(file.path, SCHEMA, 0.25)
            other.close(*other.open())
        file.close(*old)
        for _ in range(2):
            file.close(*file.open())
        assert succeeded == [0]

    def test_a_file_after_a_broken_one_succeeds_it(
        self, file: SqliteFile, succeeded: list[int]
    ) -> None:
        file.path.write_bytes(b"garbage " * 512)
        with pytest.raises(StoreError, match="was moved to"):
            file.open()
        file.close(*file.open())
        assert succeeded == [0]

    def test_a_file_that_cannot_be_told_yet_is_told_at_the_next_opening(
        self, tmp_path: Path
    ) -> None:
        tries: list[int] = []

        def succeed(db: sqlite3.Connection) -> None:
            tries.append(1)
            if len(tries) == 1:
                raise sqlite3.OperationalError("the disk is full")

        file = SqliteFile(tmp_path / "c.sqlite", SCHEMA, 0.25, succeed)
        file.close(*file.open())
        file.path.unlink()
        with pytest.raises(StoreError):
            file.open()
        file.close(*file.open())
        assert tries == [1, 1]
