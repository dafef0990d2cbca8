"""The stores of running counts, by one contract: memory, SQLite and a real Redis."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis_servers import Server, running

from trivet.errors import StoreError
from trivet.exact.redis_client import connect
from trivet.exact.seal import Seal
from trivet.exact.store_url import parse_url
from trivet.policies.calibration import Calibration
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.monitor import Monitor
from trivet.semantic.monitor_codec import RowCodec
from trivet.semantic.monitor_store import (
    MOST,
    UNREADABLE,
    Changed,
    MemoryMonitorStore,
    MonitorStore,
    Row,
    Update,
)
from trivet.semantic.redis_monitor import RedisMonitorStore
from trivet.semantic.sqlite_monitor import SqliteMonitorStore
from trivet.semantic.tally import Cell, Counts, digest_of
from trivet.telemetry import EntryRejected, Event, Observer

CELL = Cell("t", "ab", "chat:m", "informational")
SEAL = Seal(b"s" * 32)
MARK = Cell("t", "ab", "", "informational")


def redis_store(server: Server, *observer: Observer) -> RedisMonitorStore:
    link = connect(parse_url(server.url), timeout_s=5.0, connect_s=1.0, connections=32)
    return RedisMonitorStore(link, SEAL, *observer)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, redis: Server
) -> AsyncIterator[MonitorStore]:
    made: MonitorStore
    if request.param == "memory":
        made = MemoryMonitorStore()
    elif request.param == "sqlite":
        made = SqliteMonitorStore(tmp_path / "new" / "monitor.sqlite", SEAL)
    else:
        redis.cli("FLUSHALL")
        made = redis_store(redis)
    yield made
    await made.close()


async def everything(store: MonitorStore) -> Changed:
    return await store.changes(0)


class TestContract:
    async def test_an_empty_store_has_nothing_and_a_token_that_stays(
        self, store: MonitorStore
    ) -> None:
        found = await everything(store)
        assert (found.rows, found.cursor, found.more) == ({}, 0, False)
        assert found.token
        await store.add("b1", {CELL: Update(more=Counts(1))})
        assert (await everything(store)).token == found.token

    async def test_counts_add_up(self, store: MonitorStore) -> None:
        await store.add("b1", {CELL: Update(more=Counts(1, 0, 5, 2, 0))})
        await store.add("b2", {CELL: Update(more=Counts(2, 1, 5, 2, 1))})
        assert (await everything(store)).rows == {CELL: Row(Counts(3, 1, 10, 4, 1))}

    async def test_a_batch_given_again_counts_once(self, store: MonitorStore) -> None:
        for _ in range(3):
            await store.add("b1", {CELL: Update(more=Counts(1))})
        assert (await everything(store)).rows == {CELL: Row(Counts(1))}

    async def test_the_first_reason_stays(self, store: MonitorStore) -> None:
        await store.add("b1", {MARK: Update(closed="bound")})
        await store.add("b2", {MARK: Update(closed="economics")})
        await store.add("b3", {MARK: Update()})
        assert (await everything(store)).rows == {MARK: Row(closed="bound")}

    async def test_a_cell_that_is_missing_starts_as_it_was_known(self, store: MonitorStore) -> None:
        update = Update(known=Counts(100, 3), more=Counts(1))
        await store.add("b1", {CELL: update})
        await store.add("b2", {CELL: update})
        assert (await everything(store)).rows == {CELL: Row(Counts(102, 3))}

    async def test_a_cursor_leads_to_what_was_written_since(self, store: MonitorStore) -> None:
        await store.add("b1", {CELL: Update(more=Counts(1))})
        cursor = (await everything(store)).cursor
        assert (await store.changes(cursor)).rows == {}
        other = CELL._replace(tenant="ü", family='chat:"x",\n')
        await store.add("b2", {other: Update(more=Counts(1)), MARK: Update(closed="bound")})
        found = await store.changes(cursor)
        assert found.rows == {other: Row(Counts(1)), MARK: Row(closed="bound")}
        assert (await store.changes(found.cursor)).rows == {}

    async def test_many_cells_come_in_several_parts(self, store: MonitorStore) -> None:
        cells = {CELL._replace(tenant=str(n)): Update(more=Counts(n)) for n in range(MOST + 50)}
        await store.add("b1", cells)
        seen, found = dict[Cell, Row](), await everything(store)
        seen.update(found.rows)
        while found.more:
            found = await store.changes(found.cursor)
            seen.update(found.rows)
        assert seen == {cell: Row(update.more) for cell, update in cells.items()}

    async def test_writers_at_once_lose_nothing(self, store: MonitorStore) -> None:
        batches = (store.add(f"b{n}", {CELL: Update(more=Counts(1))}) for n in range(20))
        await asyncio.gather(*batches)
        assert (await everything(store)).rows == {CELL: Row(Counts(20))}


class TestOnce:
    async def test_what_is_added_once_counts_once(self, store: MonitorStore) -> None:
        update = Update(more=Counts(1))
        assert [await store.add_once("n1", CELL, update) for _ in range(3)] == [True, False, False]
        assert await store.add_once("n2", CELL, update)
        await store.add("n1", {CELL: update})
        assert (await everything(store)).rows == {CELL: Row(Counts(3))}

    async def test_of_writers_at_once_one_is_the_first(self, store: MonitorStore) -> None:
        update = Update(more=Counts(1))
        done = await asyncio.gather(*(store.add_once("n", CELL, update) for _ in range(12)))
        assert done.count(True) == 1
        assert (await everything(store)).rows == {CELL: Row(Counts(1))}

    async def test_a_cell_that_is_missing_starts_as_it_was_known(self, store: MonitorStore) -> None:
        assert await store.add_once("n", CELL, Update(Counts(100, 3), Counts(1, 1)))
        assert (await everything(store)).rows == {CELL: Row(Counts(101, 4))}


class TestSqlite:
    async def test_what_was_added_once_is_known_to_the_next_process(self, tmp_path: Path) -> None:
        path = tmp_path / "monitor.sqlite"
        update = Update(more=Counts(1))
        # A file that was made before anything was added once has no table for it.
        await SqliteMonitorStore(path, SEAL).add("b1", {CELL: update})
        assert await SqliteMonitorStore(path, SEAL).add_once("n", CELL, update)
        assert not await SqliteMonitorStore(path, SEAL).add_once("n", CELL, update)
        assert (await everything(SqliteMonitorStore(path, SEAL))).rows == {CELL: Row(Counts(2))}

    async def test_names_are_forgotten_when_no_verdict_would_be_taken(self, tmp_path: Path) -> None:
        path = tmp_path / "monitor.sqlite"
        store = SqliteMonitorStore(path, SEAL)
        for name in ("old", "new"):
            await store.add_once(name, CELL, Update(more=Counts(1)))
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE once SET at = at - 101 * 86400 WHERE name = 'old'")
            db.commit()
        assert not await store.add_once("new", CELL, Update(more=Counts(1)))
        assert await store.add_once("old", CELL, Update(more=Counts(1)))

    async def test_the_file_is_its_owners_alone_and_outlives_the_process(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "monitor.sqlite"
        await SqliteMonitorStore(path, SEAL).add("b1", {CELL: Update(more=Counts(1))})
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await everything(SqliteMonitorStore(path, SEAL))).rows == {CELL: Row(Counts(1))}

    async def test_a_file_that_was_deleted_is_another_one(self, tmp_path: Path) -> None:
        path = tmp_path / "monitor.sqlite"
        store = SqliteMonitorStore(path, SEAL)
        before = (await everything(store)).token
        path.unlink()
        assert (await everything(store)).token != before

    async def test_a_broken_file_and_another_programs_are_refused_by_name(
        self, tmp_path: Path
    ) -> None:
        broken, foreign = tmp_path / "broken", tmp_path / "foreign"
        broken.write_bytes(b"not a database at all, by any means" * 100)
        other = sqlite3.connect(foreign)
        other.execute("CREATE TABLE theirs(x)")
        other.close()
        for path, reason in ((broken, "corrupt"), (foreign, "format"), (tmp_path, "cannot-open")):
            with pytest.raises(StoreError, match=path.name) as caught:
                await everything(SqliteMonitorStore(path, SEAL))
            assert caught.value.reason == reason

    async def test_a_locked_file_is_a_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "monitor.sqlite"
        store = SqliteMonitorStore(path, SEAL, busy_s=0.05)
        await everything(store)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StoreError, match="locked"):
                await store.add("b1", {CELL: Update(more=Counts(1))})
        finally:
            holder.close()
        await store.add("b1", {CELL: Update(more=Counts(1))})
        assert (await everything(store)).rows == {CELL: Row(Counts(1))}


class TestRedis:
    async def test_a_server_that_is_gone_is_a_reason(self, tmp_path: Path) -> None:
        with running(tmp_path) as server:
            store = redis_store(server)
            await everything(store)
        with pytest.raises(StoreError):
            await store.add("b1", {CELL: Update(more=Counts(1))})
        await store.close()

    async def test_a_flushed_server_gets_back_what_its_clients_know(self, redis: Server) -> None:
        redis.cli("FLUSHALL")
        one, other = Monitor(redis_store(redis)), Monitor(redis_store(redis))
        store = redis_store(redis)
        try:
            await store.add("b1", {CELL: Update(more=Counts(9, 4)), MARK: Update(closed="bound")})
            for monitor in (one, other):
                await monitor.step()
            redis.cli("FLUSHALL")
            for monitor in (one, other):
                await monitor.step()
            rows = (await everything(store)).rows
            assert (rows[CELL], rows[MARK].closed) == (Row(Counts(9, 4)), "bound")
        finally:
            for each in (one, other, store):
                await each.close()

    async def test_writers_of_several_processes_lose_nothing(self, redis: Server) -> None:
        redis.cli("FLUSHALL")
        stores = [redis_store(redis) for _ in range(8)]
        try:
            await asyncio.gather(
                *(
                    store.add(f"{at}.{n}", {CELL: Update(more=Counts(1))})
                    for at, store in enumerate(stores)
                    for n in range(5)
                )
            )
            assert (await everything(stores[0])).rows == {CELL: Row(Counts(40))}
        finally:
            for store in stores:
                await store.close()


class Place:
    """A store's place, and who can write to it without the secret."""

    def __init__(self, redis: Server | None, path: Path) -> None:
        self._redis, self._path = redis, path
        self.seen: list[Event] = []
        if redis is not None:
            redis.cli("FLUSHALL")

    def open(self) -> MonitorStore:
        if self._redis is None:
            return SqliteMonitorStore(self._path, SEAL, self.seen.append)
        return redis_store(self._redis, self.seen.append)

    def forge(self, name: str, row: str) -> None:
        if self._redis is not None:
            key = f"trivet:{{{SEAL.pseudonym('').hex()}}}:monitor"
            self._redis.cli("HSET", f"{key}:h", name, row)
            self._redis.cli("ZADD", f"{key}:z", self._redis.cli("INCR", f"{key}:n").strip(), name)
            return
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute(
                "INSERT OR REPLACE INTO monitor VALUES(?, (SELECT max(seq) + 1 FROM monitor), ?)",
                (name, row),
            )

    @property
    def rejected(self) -> list[str]:
        return [one.store for one in self.seen if isinstance(one, EntryRejected)]


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path, redis: Server) -> Place:
    return Place(redis if request.param == "redis" else None, tmp_path / "monitor.sqlite")


class TestSealed:
    @pytest.mark.parametrize(
        "row", ["", '[1e400,0,0,0,0,""]', '[1,0,0,0,0,""]', "9" * 5000, "null"]
    )
    async def test_a_row_that_was_not_sealed_is_passed_over_and_told_by_itself(
        self, place: Place, row: str
    ) -> None:
        store = place.open()
        other = CELL._replace(tenant="u")
        await store.add("b1", {CELL: Update(more=Counts(9, 9)), other: Update(more=Counts(1))})
        name = store.name_of(CELL)
        place.forge(name, row)
        found = await everything(store)
        assert found.rows == {other: Row(Counts(1))}
        assert found.unreadable == {name}
        assert place.rejected == ["semantic-monitor"]
        await store.add("b2", {CELL: Update(known=Counts(9, 9), more=Counts(1))})
        assert (await everything(store)).rows[CELL] == Row(Counts(10, 9))
        await store.close()

    async def test_a_row_of_another_cell_does_not_pass_for_this_ones(self, place: Place) -> None:
        store = place.open()
        open_ = RowCodec(SEAL).seal(MARK._replace(tenant="u"), Row())
        await store.add("b1", {MARK: Update(closed="bound")})
        place.forge(store.name_of(MARK), open_.decode("latin-1"))
        assert (await everything(store)).unreadable == {store.name_of(MARK)}
        await store.close()

    async def test_names_tell_nothing(self, place: Place) -> None:
        store = place.open()
        assert "acme" not in store.name_of(CELL._replace(tenant="acme"))
        await store.close()

    async def test_a_closed_tier_whose_row_was_altered_stays_closed_until_a_calibration(
        self, place: Place
    ) -> None:
        given = opened()
        mark = Cell("t", digest_of(given.measured), "", "informational")
        store = place.open()
        await store.add("b1", {mark: Update(closed="bound")})
        place.forge(store.name_of(mark), '[0,0,0,0,0,""]')
        for _ in range(2):  # The second one finds what the first wrote.
            monitor = Monitor(place.open(), place.seen.append)
            await monitor.step()
            assert monitor.closed("t", given, Intent.INFORMATIONAL) == UNREADABLE
            assert monitor.closed("u", given, Intent.INFORMATIONAL) == ""
            assert monitor.closed("t", opened(0.9), Intent.INFORMATIONAL) == ""
            await monitor.close()
        assert (await everything(store)).rows[mark] == Row(closed=UNREADABLE)
        await store.close()

    async def test_an_update_of_an_altered_row_closes_it(self, place: Place) -> None:
        store = place.open()
        await store.add("b1", {MARK: Update(closed="bound")})
        place.forge(store.name_of(MARK), "x")
        await store.add("b2", {MARK: Update(more=Counts(reported=1))})
        assert (await everything(store)).rows == {MARK: Row(Counts(reported=1), UNREADABLE)}
        await store.close()

    def test_a_reason_that_is_none_is_not_taken(self) -> None:
        codec = RowCodec(SEAL)
        for row in (Row(closed="fun"), Row(Counts(-1))):
            assert codec.unseal(codec.name(MARK), codec.seal(MARK, row)) == "format"


async def test_redis_numbers_that_are_none_do_not_end_reading(redis: Server) -> None:
    place = Place(redis, Path())
    store = place.open()
    await store.add("b1", {CELL: Update(more=Counts(1))})
    key = f"trivet:{{{SEAL.pseudonym('').hex()}}}:monitor:z"
    for score in ("inf", "-inf", "0.5", "1e15"):
        redis.cli("ZADD", key, score, f"n{score}")
    found = await everything(store)
    assert (found.rows, found.cursor) == ({CELL: Row(Counts(1))}, 1)
    await store.close()


def opened(threshold: float = 0.8) -> SemanticPolicy:
    measured = {"pairs": 400, "same": 200, "hits": 150, "false_hits": 0, "upper_bound": 0.0198}
    made = SemanticPolicy(mode="replace")
    made.attach(
        Calibration.model_validate(
            {
                "made": "2026-11-30",
                "fingerprint": {"chain": "cosine", "embedder": "e"},
                "dataset": "0" * 64,
                "target": 0.02,
                "confidence": 0.95,
                "threshold": threshold,
                "measured": measured,
            }
        )
    )
    return made
