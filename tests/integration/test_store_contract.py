"""The contract over SQLite and Redis, bare and behind guard and memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from entries import Clock
from redis_servers import Server, cluster, running
from store_contract import SharedContract, StoreContract

from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.redis import RedisStore
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound
from trivet.exact.store_url import parse_url
from trivet.telemetry import ignore

MOST = Bound(entries=10_000, bytes=1 << 30)
SEAL = Seal(b"s" * 32)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as servers:
        yield servers


def sqlite(path: Path, clock: Clock, seal: Seal = SEAL) -> SqliteStore:
    return SqliteStore(path / "cache.db", seal, most=MOST, clock=clock)


class TestSqliteStore(SharedContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
        store = sqlite(tmp_path, clock)
        yield store
        await store.close()


class TestEncryptedSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
        store = sqlite(tmp_path, clock, Seal(b"s" * 32, encrypt=True))
        yield store
        await store.close()


class TestRedisStore(SharedContract):
    @pytest.fixture
    async def store(self, redis: Server, clock: Clock) -> AsyncIterator[RedisStore]:
        redis.cli("FLUSHALL")
        store = RedisStore(parse_url(redis.url), SEAL, most=MOST, clock=clock, get_s=5.0)
        yield store
        await store.close()


class TestClusterStore(SharedContract):
    @pytest.fixture
    async def store(self, nodes: list[Server], clock: Clock) -> AsyncIterator[RedisStore]:
        for node in nodes:
            node.cli("FLUSHALL")
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        store = RedisStore(parse_url(url), SEAL, most=MOST, clock=clock, get_s=5.0)
        yield store
        await store.close()


class TestLayeredStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: Clock) -> AsyncIterator[LayeredStore]:
        back = GuardedStore(sqlite(tmp_path, clock), Budget(get_s=5.0, put_s=5.0), ignore)
        store = LayeredStore(MemoryStore(clock=clock), back, poll_s=0.01)
        yield store
        await store.close()
