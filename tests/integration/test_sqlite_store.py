"""The SQLite store with real files, real processes and real trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from entries import NOW, Clock, entry, key
from store_contract import FREE, held

from trivet.errors import StoreError
from trivet.exact import sqlite_rows
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound
from trivet.telemetry import EntryRejected, Event, StoreState

WRITER = Path(__file__).with_name("sqlite_writer.py")
BUDGET = Budget(get_s=0.5, put_s=1.0, failures=3, probe_s=0.1)
GENEROUS = 10


@asynccontextmanager
async def opened(path: Path, **options: object) -> AsyncIterator[SqliteStore]:
    given: dict[str, object] = {"most": Bound(), "clock": Clock(), **options}
    store = SqliteStore(path, Seal(b"s" * 32), **given)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def guarded(path: Path, told: list[Event]) -> AsyncIterator[GuardedStore]:
    inner = SqliteStore(
        path, Seal(b"s" * 32), most=Bound(), observer=told.append, busy_s=0.1, clock=Clock()
    )
    store = GuardedStore(inner, BUDGET, told.append)
    try:
        yield store
    finally:
        await store.close()


def states(told: list[Event]) -> list[str]:
    return [event.state for event in told if isinstance(event, StoreState)]


def spawn(path: Path, what: str, *prefix: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, str(WRITER), str(path), what],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


async def until_state(told: list[Event], state: str) -> None:
    async with asyncio.timeout(20):
        while not states(told) or states(told)[-1] != state:
            await asyncio.sleep(0.01)


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(tmp_path / "deep" / "cache.db") as store:
            await store.put(entry("a"), FREE)
            modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "deep").iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}, modes


async def test_entries_survive_a_new_process_and_wait_for_no_close(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as one, opened(tmp_path / "c.db") as two:
        await one.put(entry("a"), FREE)
        assert await held(two, "a") == ["a"]
        await two.purge("t1", None, NOW)
        assert await held(one, "a") == []
        await one.put(entry("a"), FREE)
        assert await held(two, "a") == []


async def test_a_purge_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.purge("t1", "tag:x", NOW)
    async with opened(tmp_path / "c.db") as store:
        await store.put(entry("a", labels=frozenset({"tag:x"})), FREE)
        assert await held(store, "a") == []


async def test_what_was_committed_survives_kill_9_in_mid_write(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    written: list[str] = []
    for _ in range(3):
        with spawn(path, "fill") as process:
            assert process.stdout is not None
            written.extend(process.stdout.readline().strip() for _ in range(40))
            process.send_signal(signal.SIGKILL)
    async with opened(path, clock=time.time) as store:
        names = sorted(set(written))
        assert sorted(await held(store, *names)) == names
        usage = await store.usage("t1")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        counted = db.execute("SELECT count(*), sum(size) FROM entries").fetchone()
    assert (usage.entries, usage.bytes) == counted


async def test_two_processes_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with spawn(path, "fill") as process:
        assert process.stdout is not None
        process.stdout.readline()
        async with opened(path, clock=time.time, busy_s=5.0) as store:
            now = time.time()
            times = {"created": now, "expires": now + 99, "stale_until": now + 99}
            await asyncio.gather(
                *(store.put(entry(f"m{n}", "t2", **times), FREE) for n in range(200))
            )
            names = [f"m{n}" for n in range(200)]
            assert await held(store, *names, tenant="t2") == names
            assert await held(store, "n0") == ["n0"]
        process.kill()


async def test_a_purge_in_another_process_reaches_this_ones_memory(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    now = time.time()
    made = entry("a", created=now, expires=now + 99, stale_until=now + 99)
    back = SqliteStore(path, Seal(b"s" * 32), most=Bound())
    store = LayeredStore(MemoryStore(), back, poll_s=0.05)
    await store.put(made, FREE)
    assert await held(store, "a") == ["a"]
    with spawn(path, "purge") as process:
        assert process.stdout is not None
        assert process.stdout.read().strip() == "1"
    async with asyncio.timeout(20):
        while await held(store, "a"):
            await asyncio.sleep(0.01)
    await store.put(made, FREE)
    assert await held(store, "a") == []
    await store.close()


async def test_an_altered_entry_is_a_miss_told_and_deleted(tmp_path: Path) -> None:
    path, told = tmp_path / "c.db", list[Event]()
    async with opened(path, observer=told.append) as store:
        for name in "abc":
            await store.put(entry(name), FREE)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE entries SET value = value || x'00' WHERE key = ?", (key("a"),))
            db.execute(
                "UPDATE entries SET value = (SELECT value FROM entries WHERE key = ?)"
                " WHERE key = ?",
                (key("c"), key("b")),
            )
        assert await held(store, *"abc") == ["c"]
        assert (await store.usage(None)).entries == 1
    assert told == [EntryRejected("sqlite", "mac")] * 2


async def test_the_store_is_bounded_over_all_tenants_and_keeps_what_was_read(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with opened(tmp_path / "c.db", most=Bound(entries=10), clock=clock) as store:
        for number in range(10):
            clock.now += 1
            await store.put(entry(f"n{number}", f"t{number % 3}"), FREE)
        assert await held(store, "n0", tenant="t0") == ["n0"]
        clock.now += 1
        store._tidy(False)
        clock.now += 1
        await store.put(entry("new", "t9"), FREE)
        assert (await store.usage(None)).entries == 10
        assert await held(store, "n0", tenant="t0") == ["n0"]
        assert await held(store, "n1", tenant="t1") == []


async def test_expired_entries_are_swept(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path / "c.db", clock=clock) as store:
        await store.put(entry("a", stale_until=NOW + 10), FREE)
        await store.put(entry("b", stale_until=NOW + 30), FREE)
        clock.now = NOW + 20
        store._tidy(False)
        assert (await store.usage(None)).entries == 1


async def test_a_purge_of_thousands_lets_others_write_in_between(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await asyncio.gather(*(store.put(entry(f"n{n}"), FREE) for n in range(2100)))
        purge = asyncio.create_task(store.purge("t1", None, NOW))
        await asyncio.sleep(0)
        await store.put(entry("a", "t2"), FREE)
        assert await purge == 2100
        assert await held(store, "a", tenant="t2") == ["a"]


async def test_the_event_loop_goes_on_while_the_file_is_locked(tmp_path: Path) -> None:
    path, told = tmp_path / "c.db", list[Event]()
    async with guarded(path, told) as store:
        await store.put(entry("a"), FREE)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.005)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            started = time.monotonic()
            for name in "bcd":
                with pytest.raises(StoreError) as caught:
                    await store.put(entry(name), FREE)
                assert caught.value.reason == "locked"
            assert time.monotonic() - started < 3 * BUDGET.put_s * GENEROUS
            assert ticks > 5
            ticking.cancel()
            with pytest.raises(StoreError, match="open"):
                await store.put(entry("e"), FREE)
            assert await held(store, "a") == ["a"]
            db.execute("ROLLBACK")
        await asyncio.sleep(2 * BUDGET.probe_s)
        await store.put(entry("f"), FREE)
    assert states(told) == ["up", "degraded", "up"]


@pytest.mark.parametrize("damage", ["not a database", "torn pages"])
async def test_a_corrupted_file_is_moved_aside_once_and_started_anew(
    tmp_path: Path, damage: str
) -> None:
    path, told = tmp_path / "c.db", list[Event]()
    async with opened(path) as store:
        await asyncio.gather(*(store.put(entry(f"n{n}"), FREE) for n in range(300)))
    if damage == "not a database":
        path.write_bytes(b"garbage " * 4096)
    else:
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(os.urandom(path.stat().st_size - 8192))
    async with guarded(path, told) as store:
        with pytest.raises(StoreError) as caught:
            await store.get("t1", key("n7"))
        assert caught.value.reason == "corrupt"
        await until_state(told, "up")
        await store.put(entry("a", created=NOW + 1), FREE)
        assert await held(store, "a", "n7") == ["a"]
    assert states(told) == ["down", "up"]
    assert (tmp_path / "c.db.corrupt").exists()
    reasons = [event.reason for event in told if isinstance(event, StoreState)]
    assert "moved to" in reasons[0]


async def test_a_file_that_somebody_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as store:
        await store.put(entry("a"), FREE)
        for name in ("c.db", "c.db-wal", "c.db-shm"):
            (tmp_path / name).unlink()
        assert await held(store, "a") == []
        await store.put(entry("b", created=NOW + 1), FREE)
        assert await held(store, "a", "b") == ["b"]
    assert path.exists()


_COUNT = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())"


async def test_after_somebody_deleted_the_log_processes_see_what_others_store(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as one, opened(path) as two:
        await one.put(entry("a"), FREE)
        assert await held(two, "a") == ["a"]
        for name in ("c.db-wal", "c.db-shm"):
            (tmp_path / name).unlink()

        async def shared(name: str) -> bool:
            found = []
            for number, store in enumerate((one, two)):
                with suppress(StoreError):
                    await store.put(entry(f"{name}{number}"), FREE)
                with suppress(StoreError):
                    found += await held(store, f"{name}0", f"{name}1")
            return found[-2:] == [f"{name}0", f"{name}1"]

        async with asyncio.timeout(20):
            names = (f"n{turn}-" for turn in range(1000))
            while not await shared(next(names)):
                await asyncio.sleep(0.3)
        assert await shared("last")
        query = f"SELECT count(*) FROM entries WHERE key = x'{key('last1').hex()}'"
        counting = [sys.executable, "-c", _COUNT, str(path), query]
        counted = await asyncio.to_thread(subprocess.check_output, counting, text=True)
        assert counted == "1\n"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_place_where_no_file_can_be_made_is_a_store_in_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    told: list[Event] = []
    async with guarded(tmp_path / "file" / "c.db", told) as store:
        for _ in range(3):
            with pytest.raises(StoreError):
                await store.get("t1", key("a"))
        with pytest.raises(StoreError, match="open"):
            await store.get("t1", key("a"))
    assert states(told) == ["down"]


async def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("CREATE TABLE theirs(x)")
    async with opened(path) as store:
        with pytest.raises(StoreError, match="another"):
            await store.get("t1", key("a"))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM theirs").fetchone() == (0,)


def test_a_full_disk_fails_writes_and_not_reads(tmp_path: Path) -> None:
    """A tmpfs of 1 MiB in a mount namespace of the writer's own."""
    script = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    room = tmp_path / "room"
    room.mkdir()
    allowed = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("this machine lets nobody make a mount namespace")
    with spawn(
        room / "c.db", "until-full", "unshare", "-rm", "sh", "-c", script, str(room)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read().split() == ["full", "True"]


async def test_tombstones_and_feed_are_bounded_and_still_refuse_what_they_forgot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "TOMBSTONES_KEPT", 10)
    monkeypatch.setattr(sqlite_rows, "FEED_KEPT", 5)
    async with opened(tmp_path / "c.db") as store:
        first = await store.changes(0)
        for number in range(30):
            await store.purge("t1", f"tag:{number}", float(number))
        assert (await store.changes(first.cursor)).purges is None
        await store.put(entry("old", created=0.0, labels=frozenset({"tag:0"})), FREE)
        await store.put(entry("new", labels=frozenset({"tag:0"})), FREE)
        assert await held(store, "old", "new") == ["new"]
    with closing(sqlite3.connect(tmp_path / "c.db")) as db:
        assert db.execute("SELECT count(*) FROM tombstones").fetchone()[0] <= 11
        assert db.execute("SELECT count(*) FROM feed").fetchone() == (5,)


async def test_names_that_are_no_text_fail_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        done = await asyncio.gather(
            store.put(entry("a"), FREE),
            store.put(entry("b", model="\ud800"), FREE),
            store.put(entry("c"), FREE),
            return_exceptions=True,
        )
        assert [getattr(item, "reason", None) for item in done] == [None, "unstorable", None]
        assert await held(store, *"abc") == ["a", "c"]


async def test_processes_that_share_a_broken_file_all_go_on_with_one_new_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as one, opened(path) as two, opened(path) as three:
        stores = (one, two, three)
        for number, store in enumerate(stores):
            await store.put(entry(f"n{number}"), FREE)
        path.write_bytes(b"garbage " * 4096)
        for store in stores:
            for _ in range(3):
                await asyncio.gather(
                    store.get("t1", key("n0")), store.put(entry("x"), FREE), return_exceptions=True
                )
        for number, store in enumerate(stores):
            await store.put(entry(f"m{number}", created=NOW + 1), FREE)
        for store in stores:
            assert await held(store, "m0", "m1", "m2") == ["m0", "m1", "m2"]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_calls_after_close_say_so(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        await store.put(entry("a"), FREE)
    with pytest.raises(StoreError, match="closed"):
        await store.get("t1", key("a"))


async def test_accepted_writes_are_finished_by_close(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as store:
        puts = [asyncio.create_task(store.put(entry(f"n{n}"), FREE)) for n in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*puts)
    async with opened(tmp_path / "c.db") as store:
        assert (await store.usage(None)).entries == 50
