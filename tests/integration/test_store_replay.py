"""Copies of entries that somebody who can write the store, without the secret, puts back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from entries import NOW, Clock, entry, key
from redis.client import Redis
from redis_servers import Server, running
from store_contract import FREE, held

from trivet.exact import redis as redis_module
from trivet.exact import sqlite_purged, sqlite_rows
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.purges import SharedStore
from trivet.exact.redis import RedisStore
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound
from trivet.exact.store_url import parse_url
from trivet.telemetry import EntryRejected, Event, Observer, ignore

SEAL = Seal(b"s" * 32)
LABEL = "tag:x"
LABELLED = entry("a", labels=frozenset({LABEL, "version:p=1"}))


class Attacker(Protocol):
    """Reads and writes the store, knows no secret."""

    def copy(self) -> Callable[[], None]:
        """Copy the entries without their place in the indexes; calling the result puts them."""
        ...

    def copy_indexed(self) -> Callable[[], None]:
        """The same with their places in the indexes."""
        ...

    def forget_purges(self, *, feed: bool = False) -> None:
        """Delete the tombstones, and the feed too."""
        ...


@dataclass
class SqliteAttacker:
    path: Path

    def copy(self) -> Callable[[], None]:
        return self._copy("entries")

    def copy_indexed(self) -> Callable[[], None]:
        return self._copy("entries", "labels")

    def _copy(self, *tables: str) -> Callable[[], None]:
        with closing(sqlite3.connect(self.path)) as db:
            found = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}

        def put_back() -> None:
            with closing(sqlite3.connect(self.path)) as db, db:
                for name, rows in found.items():
                    marks = ",".join("?" * len(rows[0]))
                    db.executemany(f"INSERT OR REPLACE INTO {name} VALUES({marks})", rows)

        return put_back

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(statement)

    def forget_purges(self, *, feed: bool = False) -> None:
        self.change("DELETE FROM tombstones")
        if feed:
            self.change("DELETE FROM feed")


@dataclass
class RedisAttacker:
    client: Redis

    def copy(self) -> Callable[[], None]:
        return self._copy("*:e:*")

    def copy_indexed(self) -> Callable[[], None]:
        return self._copy("*")

    def _copy(self, pattern: str) -> Callable[[], None]:
        found = {name: self.client.dump(name) or b"" for name in self.client.keys(pattern)}

        def put_back() -> None:
            for name, value in found.items():
                self.client.restore(name, 0, value, replace=True)

        return put_back

    def delete(self, pattern: str) -> None:
        for name in self.client.keys(pattern):
            self.client.delete(name)

    def forget_purges(self, *, feed: bool = False) -> None:
        self.delete("*:t")
        self.delete("*:w")
        if feed:
            self.delete("*:z")
            self.delete("*:n")


@dataclass
class Place:
    """Where the store is, and the attacker there."""

    make: Callable[[Observer], SharedStore]
    attacker: Attacker

    @asynccontextmanager
    async def opened(self, observer: Observer = ignore) -> AsyncIterator[SharedStore]:
        store = self.make(observer)
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def layered(self, observer: Observer = ignore) -> AsyncIterator[LayeredStore]:
        front = MemoryStore(clock=Clock())
        store = LayeredStore(front, self.make(ignore), poll_s=3600.0, observer=observer)
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(server: Server) -> Iterator[RedisAttacker]:
    server.cli("FLUSHALL")
    with Redis(port=server.port) as client:
        yield RedisAttacker(client)


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteAttacker:
    return SqliteAttacker(tmp_path / "c.db")


def sqlite_place(attacker: SqliteAttacker) -> Place:
    return Place(
        lambda observer: SqliteStore(
            attacker.path, SEAL, most=Bound(), observer=observer, clock=Clock()
        ),
        attacker,
    )


def redis_place(attacker: RedisAttacker, server: Server) -> Place:
    address = parse_url(server.url)
    return Place(
        lambda observer: RedisStore(
            address, SEAL, most=Bound(), observer=observer, clock=Clock(), get_s=5.0
        ),
        attacker,
    )


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "sqlite":
        return sqlite_place(request.getfixturevalue("sqlite"))
    return redis_place(request.getfixturevalue("redis"), request.getfixturevalue("server"))


@pytest.mark.parametrize("label", [None, LABEL])
async def test_a_purged_entry_that_was_put_back_is_a_miss_told_and_deleted(
    place: Place, label: str | None
) -> None:
    told: list[Event] = []
    async with place.opened(told.append) as store:
        await store.put(LABELLED, FREE)
        await store.put(entry("b", "t2"), FREE)
        put_back = place.attacker.copy()
        assert await store.purge("t1", label, NOW) == 1
        put_back()
        assert await held(store, "a") == []
        assert told == [EntryRejected(store.name, "purged")]
        assert await held(store, "a") == []
        assert len(told) == 1
        assert await held(store, "b", tenant="t2") == ["b"]


@pytest.mark.parametrize("label", [None, LABEL])
async def test_a_process_that_has_just_started_does_not_serve_it_either(
    place: Place, label: str | None
) -> None:
    async with place.opened() as store:
        await store.put(LABELLED, FREE)
        put_back = place.attacker.copy()
        await store.purge("t1", label, NOW)
    put_back()
    async with place.opened() as store:
        assert await held(store, "a") == []


@pytest.mark.parametrize("label", [None, LABEL])
async def test_a_purge_in_another_process_counts_from_the_next_get_on(
    place: Place, label: str | None
) -> None:
    async with place.opened() as store, place.opened() as other:
        await store.put(LABELLED, FREE)
        assert await held(store, "a") == ["a"]
        put_back = place.attacker.copy()
        await other.purge("t1", label, NOW)
        put_back()
        assert await held(store, "a") == []


async def test_a_newer_answer_is_served_although_its_name_was_purged(place: Place) -> None:
    async with place.opened() as store:
        await store.purge("t1", None, NOW - 1)
        await store.purge("t1", LABEL, NOW - 1)
        await store.put(LABELLED, FREE)
        assert await held(store, "a") == ["a"]


@pytest.mark.parametrize("label", [None, LABEL])
async def test_the_next_purge_deletes_and_counts_what_was_put_back_with_its_indexes(
    place: Place, label: str | None
) -> None:
    async with place.opened() as store:
        await store.put(LABELLED, FREE)
        put_back = place.attacker.copy_indexed()
        assert await store.purge("t1", label, NOW) == 1
        put_back()
        assert await store.purge("t1", label, NOW) == 1
        assert (await store.usage("t1")).entries == 0


async def test_a_running_process_knows_a_purge_whose_tombstone_was_deleted(place: Place) -> None:
    told: list[Event] = []
    async with place.layered(told.append) as store:
        await store.put(LABELLED, FREE)
        put_back = place.attacker.copy()
        await store.purge("t1", LABEL, NOW)
        place.attacker.forget_purges(feed=True)
        put_back()
        assert await held(store, "a") == []
        assert told == [EntryRejected(store.name, "purged")]
    async with place.opened() as bare:
        assert await held(bare, "a") == []


async def test_a_new_process_learns_from_the_feed_what_the_tombstones_lost(place: Place) -> None:
    async with place.layered() as store:
        await store.put(LABELLED, FREE)
        put_back = place.attacker.copy()
        await store.purge("t1", LABEL, NOW)
    place.attacker.forget_purges()
    put_back()
    async with place.layered() as store:
        await store.follow()
        assert await held(store, "a") == []


async def test_a_feed_that_lost_its_beginning_still_tells_the_rest(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "FEED_KEPT", 3)
    async with place.opened() as store:
        cursor = (await store.changes(0)).cursor
        for number in range(6):
            await store.purge("t1", f"tag:{number}", NOW)
        if isinstance(place.attacker, RedisAttacker):
            place.attacker.client.zremrangebyrank(
                next(place.attacker.client.scan_iter("*:z")), 0, 2
            )
        changes = await store.changes(cursor)
        assert changes.purges is None
        assert [purge.label for purge in changes.rest] == ["tag:3", "tag:4", "tag:5"]


async def test_a_forgotten_tombstone_takes_no_entry_of_long_ago_that_nobody_purged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "TOMBSTONES_KEPT", 5)
    monkeypatch.setattr(redis_module, "_TOMBSTONES_KEPT", 5)
    async with place.opened() as store:
        await store.put(entry("a", created=1.0), FREE)
        for number in range(20):
            await store.purge("t1", f"tag:{number}", NOW)
        assert await held(store, "a") == ["a"]


async def test_an_older_answer_put_back_over_a_newer_one_is_good_until_it_expires(
    place: Place,
) -> None:
    """What no store without trusted state of its own can tell: see `trivet.exact.purges`."""
    async with place.opened() as store:
        await store.put(LABELLED, FREE)
        put_back = place.attacker.copy()
        await store.put(entry("a", created=NOW + 1, body=b"newer"), FREE)
        put_back()
        assert await store.get("t1", key("a")) == LABELLED


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET created = 9e18",
        "DELETE FROM labels",
        "UPDATE tombstones SET at = 'never'",
        "UPDATE tombstones SET at = x'00'",
    ],
)
async def test_sqlite_goes_by_the_seal_and_not_by_columns(
    sqlite: SqliteAttacker, statement: str
) -> None:
    async with sqlite_place(sqlite).opened() as store:
        await store.put(LABELLED, FREE)
        put_back = sqlite.copy()
        await store.purge("t1", LABEL, NOW)
        put_back()
        sqlite.change(statement)
        assert await held(store, "a") == []


async def test_sqlite_finds_what_was_put_back_of_a_tenant_without_any_index(
    sqlite: SqliteAttacker,
) -> None:
    async with sqlite_place(sqlite).opened() as store:
        await store.put(LABELLED, FREE)
        put_back = sqlite.copy()
        await store.purge("t1", None, NOW)
        put_back()
        assert await store.purge("t1", None, NOW) == 1


async def test_sqlite_is_asked_where_its_tombstones_are_too_many_to_know(
    sqlite: SqliteAttacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_purged, "TOMBSTONES_KEPT", 5)
    async with sqlite_place(sqlite).opened() as store:
        await store.put(LABELLED, FREE)
        await store.put(entry("b"), FREE)
        put_back = sqlite.copy()
        for number in range(20):
            await store.purge("t1", f"tag:{number}", NOW)
        await store.purge("t1", LABEL, NOW)
        put_back()
        assert await held(store, "a", "b") == ["b"]


@pytest.mark.parametrize("token", ["deleted", "altered"])
async def test_redis_without_its_token_still_has_its_tombstones(
    redis: RedisAttacker, server: Server, token: str
) -> None:
    async with redis_place(redis, server).opened() as store:
        await store.put(LABELLED, FREE)
        put_back = redis.copy()
        await store.purge("t1", LABEL, NOW)
        put_back()
        for name in redis.client.keys("*:w"):
            redis.client.delete(name)
            if token == "altered":
                redis.client.set(name, "another")
        assert await held(store, "a") == []


@pytest.mark.parametrize("time", ["never", "nan", ""])
async def test_redis_tombstones_that_cannot_be_read_hold_for_all_times(
    redis: RedisAttacker, server: Server, time: str
) -> None:
    place = redis_place(redis, server)
    async with place.opened() as store:
        await store.put(LABELLED, FREE)
        put_back = redis.copy()
        await store.purge("t1", LABEL, NOW)
    put_back()
    for name in redis.client.keys("*:t"):
        label = SEAL.pseudonym("t1", LABEL).hex()
        redis.client.hset(name, label, time)
    async with place.opened() as store:
        assert await held(store, "a") == []


async def test_a_redis_entry_without_its_place_in_the_indexes_goes_at_the_next_get(
    redis: RedisAttacker, server: Server
) -> None:
    async with redis_place(redis, server).opened() as store:
        await store.put(LABELLED, FREE)
        put_back = redis.copy()
        await store.purge("t1", None, NOW)
        put_back()
        assert await store.purge("t1", None, NOW) == 0
        assert await held(store, "a") == []
        assert redis.client.keys("*:e:*") == []


async def test_the_gets_of_one_tick_read_redis_tombstones_once_for_each_purge(
    redis: RedisAttacker, server: Server
) -> None:
    names = [f"n{number}" for number in range(30)]
    async with redis_place(redis, server).opened() as store:
        await asyncio.gather(*(store.put(entry(name), FREE) for name in names))
        for at, reads in ((NOW - 2, 1), (NOW - 1, 1), (NOW - 1, 0)):
            await store.purge("t1", LABEL, at)
            redis.client.config_resetstat()
            for _ in range(2):
                found = await asyncio.gather(*(store.get("t1", key(name)) for name in names))
                assert all(found)
            calls = redis.client.info("commandstats")
            assert calls["cmdstat_mget"]["calls"] == 2
            assert calls.get("cmdstat_hgetall", {}).get("calls", 0) == reads


async def test_tombstones_of_many_tenants_are_read_together(
    redis: RedisAttacker, server: Server
) -> None:
    place = redis_place(redis, server)
    tenants = [f"t{number}" for number in range(200)]
    async with place.opened() as store:
        await asyncio.gather(*(store.put(entry("a", name), FREE) for name in tenants))
        put_back = redis.copy()
        await store.purge("t7", None, NOW)
        put_back()
    async with place.opened() as store:
        redis.client.config_resetstat()
        found = await asyncio.gather(*(store.get(name, key("a")) for name in tenants))
        assert [name for name, made in zip(tenants, found, strict=True) if not made] == ["t7"]
        calls = redis.client.info("commandstats")
        # One read, and the deletion of what was purged; a script that is new is sent twice.
        assert (
            sum(calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
            <= 4
        )
