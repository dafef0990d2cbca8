"""A process with another TRIVET_SECRET on one Redis is told of, where it looked healthy."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis_servers import Server, running

from trivet.exact.redis import RedisStore
from trivet.exact.redis_secret import MARKS, RECENT_S, SecretMark
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.exact.store_url import parse_url
from trivet.telemetry import Event, StoreState

OURS, THEIRS = Seal(b"o" * 32), Seal(b"t" * 32)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared: Server) -> Server:
    shared.cli("FLUSHALL")
    return shared


@asynccontextmanager
async def opened(url: str, seal: Seal, told: list[Event]) -> AsyncIterator[RedisStore]:
    store = RedisStore(parse_url(url), seal, most=Bound(), observer=told.append, get_s=5.0)
    try:
        yield store
    finally:
        await store.close()


def forget_own(store: RedisStore) -> None:
    """As if a minute had passed since the mark was left."""
    store._secret._left = float("-inf")


async def test_both_are_told_as_soon_as_they_look(redis: Server) -> None:
    first: list[Event] = []
    second: list[Event] = []
    async with opened(redis.url, OURS, first) as ours, opened(redis.url, THEIRS, second) as theirs:
        await ours.ready()
        assert first == []
        await theirs.ready()
        forget_own(ours)
        await ours.ready()
        await ours.ready()
    (told,) = second
    assert isinstance(told, StoreState)
    assert (told.store, told.state) == ("redis-secret", "degraded")
    assert told.reason == f"another secret is in use there (mark {OURS.mark}; ours {THEIRS.mark})"
    assert [event.state for event in first if isinstance(event, StoreState)] == ["degraded"]


async def test_a_mark_that_is_no_longer_left_is_forgiven(redis: Server) -> None:
    told: list[Event] = []
    async with opened(redis.url, OURS, told) as ours:
        redis.cli("ZADD", MARKS.decode(), str(int(time.time())), THEIRS.mark)
        await ours.ready()
        past = int(time.time()) - RECENT_S - 10
        redis.cli("ZADD", MARKS.decode(), str(past), THEIRS.mark)
        forget_own(ours)
        await ours.ready()
    assert [event.state for event in told if isinstance(event, StoreState)] == ["degraded", "up"]


async def test_the_same_secret_says_nothing(redis: Server) -> None:
    told: list[Event] = []
    async with opened(redis.url, OURS, told) as one, opened(redis.url, OURS, told) as other:
        await one.ready()
        await other.ready()
    assert told == []


async def test_a_redis_that_takes_no_mark_is_as_ready_as_before(redis: Server) -> None:
    redis.cli("SET", MARKS.decode(), "of another type")
    told: list[Event] = []
    async with opened(redis.url, OURS, told) as ours:
        await ours.ready()
    assert told == []


async def test_a_mark_is_left_once_a_minute() -> None:
    asked: list[tuple[object, ...]] = []
    now = 100.0

    async def script(*given: object) -> list[bytes]:
        asked.append(given)
        return [OURS.mark.encode()]

    mark = SecretMark(script, OURS.mark, lambda event: None, lambda: now)
    await mark.leave()
    now = 159.0
    await mark.leave()
    assert len(asked) == 1
    now = 160.0
    await mark.leave()
    assert len(asked) == 2


def test_the_mark_tells_secrets_and_ciphers_apart() -> None:
    marks = {
        Seal(secret, encrypt=encrypt).mark
        for secret in (b"o" * 32, b"t" * 32)
        for encrypt in (False, True)
    }
    assert len(marks) == 4
    assert {len(mark) for mark in marks} == {16}
