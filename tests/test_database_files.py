"""The files beside a SQLite database: the lock, what a kill left, what is new."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trivet import database_files as files
from trivet.errors import StoreError


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Somebody else has the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def test_a_lock_that_somebody_holds_is_a_reason_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "c.lock"
    lock = files.Lock()
    with (
        holding(path),
        pytest.raises(StoreError, match=str(path)) as caught,
        lock.held(str(path), 0.05),
    ):
        raise AssertionError
    assert caught.value.reason == "locked"


def test_after_a_wait_in_vain_nobody_waits_until_the_lock_was_free(tmp_path: Path) -> None:
    path, lock = str(tmp_path / "c.lock"), files.Lock()
    with holding(Path(path)):
        with pytest.raises(StoreError), lock.held(path, 0.05):
            pass
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreError), lock.held(path, 60.0):
                pass
        assert time.monotonic() - started < 30.0
    with lock.held(path, 0.0):
        pass


def test_a_lock_file_that_was_removed_keeps_nobody_out(tmp_path: Path) -> None:
    path, one, other = tmp_path / "c.lock", files.Lock(), files.Lock()
    with holding(path):
        path.unlink()
        with one.held(str(path), 0.0), pytest.raises(StoreError), other.held(str(path), 0.0):
            pass


def test_a_new_database_meets_no_log_and_no_index_of_a_removed_one(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    for ending in ("-journal", "-wal", "-shm"):
        Path(f"{path}{ending}").write_text("old")
    assert files.make(str(path))
    assert [found.name for found in tmp_path.iterdir()] == ["c.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_log_of_a_database_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_text("database")
    (tmp_path / "c.db-wal").write_text("log")
    assert not files.make(str(tmp_path / "c.db"))
    assert (tmp_path / "c.db-wal").read_text() == "log"


def test_a_file_that_is_removed_while_it_is_kept_lies_there_again(tmp_path: Path) -> None:
    path = tmp_path / "c.db-wal"
    path.write_text("log")
    before = files.inode(str(path))
    with files.kept(str(path)):
        path.unlink()
    assert files.inode(str(path)) == before
    assert [found.name for found in tmp_path.iterdir()] == ["c.db-wal"]


def test_keeping_raises_nothing_when_the_directory_is_gone_at_the_end(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.mkdir()
    (place / "c.db-wal").write_text("log")
    with files.kept(str(place / "c.db-wal")):
        place.rename(tmp_path / "elsewhere")


@pytest.mark.parametrize("removed", [True, False])
def test_what_a_kill_left_while_a_log_was_kept_is_put_right(tmp_path: Path, removed: bool) -> None:
    path, spare = tmp_path / "c.db-wal", tmp_path / "c.db-wal.kept"
    path.write_text("log")
    os.link(path, spare)
    if removed:
        path.unlink()
    files.settle(str(tmp_path / "c.db"))
    assert path.read_text() == "log"
    assert not spare.exists()


def test_a_moved_log_of_an_earlier_broken_file_does_not_stay_beside_a_later_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    path.write_text("broken")
    (tmp_path / "c.db.corrupt-wal").write_text("of another")
    files.move_aside(files.Seen(str(path), files.inode(str(path)), 0))
    assert {found.name for found in tmp_path.iterdir()} == {"c.db.corrupt"}
