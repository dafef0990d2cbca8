"""The Redis store against real servers, in health and in trouble."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from entries import Clock, entry, key
from redis_servers import Server, certificate, cluster, replica_of, running, sentinel
from store_contract import FREE, held

from trivet.errors import StoreError
from trivet.exact import redis as redis_module
from trivet.exact.guard import Budget, GuardedStore
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.redis import RedisStore
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.exact.store_url import parse_url
from trivet.telemetry import EntryRejected, Event, StoreOperation, StoreState

pytestmark = pytest.mark.alone

BUDGET = Budget(get_s=0.1, put_s=1.0, failures=3, probe_s=0.1)
GENEROUS = 10
SEAL = Seal(b"s" * 32)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared: Server) -> Server:
    shared.cli("FLUSHALL")
    return shared


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[RedisStore]:
    given: dict[str, object] = {"most": Bound(), "clock": Clock(), "get_s": 5.0, **options}
    seal = given.pop("seal", SEAL)
    store = RedisStore(parse_url(url), seal, **given)  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def guarded(
    url: str, told: list[Event], budget: Budget = BUDGET
) -> AsyncIterator[GuardedStore]:
    inner = RedisStore(
        parse_url(url),
        SEAL,
        most=Bound(),
        observer=told.append,
        get_s=budget.get_s,
        clock=Clock(),
    )
    store = GuardedStore(inner, budget, told.append)
    try:
        yield store
    finally:
        await store.close()


def states(told: list[Event]) -> list[str]:
    return [event.state for event in told if isinstance(event, StoreState)]


def why(told: list[Event]) -> str:
    """The short reason of the last state."""
    return [event.reason for event in told if isinstance(event, StoreState)][-1].split(":")[0]


async def trouble(store: GuardedStore, calls: int = BUDGET.failures) -> list[str]:
    """The reasons with which gets fail; each within the budget."""
    reasons: list[str] = []
    for _ in range(calls):
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            await store.get("t1", key("a"))
        assert time.monotonic() - started < BUDGET.get_s * GENEROUS
        reasons.append(caught.value.reason)
    return reasons


async def until_state(told: list[Event], state: str) -> None:
    async with asyncio.timeout(30):
        while not states(told) or states(told)[-1] != state:
            await asyncio.sleep(0.01)


async def test_gets_of_one_tick_are_one_mget(redis: Server) -> None:
    async with opened(redis.url) as store:
        names = [f"n{number}" for number in range(50)]
        await asyncio.gather(*(store.put(entry(name), FREE) for name in names))
        redis.cli("CONFIG", "RESETSTAT")
        found = await asyncio.gather(
            *(store.get("t1", key(name)) for name in names), store.get("t1", key("n0"))
        )
        assert all(found)
        assert "cmdstat_mget:calls=1," in redis.cli("INFO", "commandstats")


async def test_entries_expire_in_redis_itself(redis: Server) -> None:
    now = time.time()
    async with opened(redis.url, clock=time.time) as store:
        made = entry("a", created=now, expires=now + 0.1, stale_until=now + 0.3)
        await store.put(made, FREE)
        assert await held(store, "a") == ["a"]
        redis.wait_for("0\n", "EVAL", "return #redis.call('KEYS', '*:e:*')", "0")
        assert (await store.usage("t1")).entries == 0
        assert redis.cli("KEYS", "*:m").strip() == ""


@pytest.mark.parametrize("encrypt", [False, True])
async def test_names_of_tenants_and_labels_are_not_in_redis(redis: Server, encrypt: bool) -> None:
    seal = Seal(b"s" * 32, encrypt=encrypt)
    async with opened(redis.url, seal=seal) as store:
        made = entry("a", "acme-corp", labels=frozenset({"tag:merger.pdf"}), body=b"payload-x")
        await store.put(made, FREE)
        await store.purge("acme-corp", "tag:other.pdf", 5.0)
        assert await store.get("acme-corp", made.key) == made
    keys = redis.cli("KEYS", "*")
    assert "acme" not in keys
    assert "merger" not in keys
    value = redis.cli("--no-raw", "GET", next(k for k in keys.split() if ":e:" in k))
    assert ("payload-x" in value) is not encrypt
    assert ("merger" in value) is not encrypt


async def test_an_entry_that_somebody_else_wrote_is_a_miss_told_and_deleted(
    redis: Server,
) -> None:
    told: list[Event] = []
    async with opened(redis.url, observer=told.append) as store:
        await store.put(entry("a"), FREE)
        await store.put(entry("b"), FREE)
        names = {k[-64:]: k for k in redis.cli("KEYS", "*:e:*").split()}
        a, b = names[key("a").hex()], names[key("b").hex()]
        redis.cli("COPY", b, a, "REPLACE")
        forged = b.replace(key("b").hex(), key("c").hex())
        redis.cli("SET", forged, "hello")
        assert await held(store, *"abc") == ["b"]
        assert (await store.usage("t1")).entries == 1
        assert forged not in redis.cli("KEYS", "*")
    assert told == [EntryRejected("redis", "mac"), EntryRejected("redis", "format")]


async def test_another_deployments_secret_sees_nothing_and_rejects_nothing(redis: Server) -> None:
    told: list[Event] = []
    other = Seal(b"o" * 32)
    async with (
        opened(redis.url) as ours,
        opened(redis.url, seal=other, observer=told.append) as theirs,
    ):
        await ours.put(entry("a"), FREE)
        await ours.purge("t2", None, 1.0)
        assert await held(theirs, "a") == []
        assert (await theirs.changes(0)).purges == ()
    assert told == []


async def test_all_tenants_together_are_trimmed_and_the_largest_gives(redis: Server) -> None:
    clock = Clock()
    async with opened(redis.url, most=Bound(entries=12), clock=clock) as store:
        for number in range(10):
            clock.now += 1
            await store.put(entry(f"big{number}", "big"), FREE)
        for number in range(5):
            await store.put(entry(f"s{number}", "small"), FREE)
        await store._keep.sweep()
        usage = await store.usage(None)
        size = entry("big0").size
        assert (usage.entries, usage.bytes) == (12, 12 * size)
        assert (await store.usage("small")).entries == 5
        assert await held(store, "big2", "big3", tenant="big") == ["big3"]


async def test_what_was_read_stays_when_a_tenant_is_at_its_bound(redis: Server) -> None:
    clock = Clock()
    async with opened(redis.url, clock=clock) as store:
        for name in "abc":
            clock.now += 1
            await store.put(entry(name), Bound(entries=3))
        await held(store, "a")
        clock.now += 1
        await store._keep._flush()
        await store.put(entry("d"), Bound(entries=3))
        assert await held(store, *"abcd") == ["a", "c", "d"]


async def test_tombstones_are_bounded_and_still_refuse_what_they_forgot(
    redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_module, "_TOMBSTONES_KEPT", 10)
    async with opened(redis.url) as store:
        for number in range(30):
            await store.purge("t1", f"tag:{number}", float(number))
        tombs = next(k for k in redis.cli("KEYS", "*:t").split())
        assert int(redis.cli("HLEN", tombs)) <= 11
        await store.put(entry("old", created=0.0, labels=frozenset({"tag:0"})), FREE)
        await store.put(entry("new", labels=frozenset({"tag:0"})), FREE)
        assert await held(store, "old", "new") == ["new"]


async def test_a_flushed_redis_tells_its_readers_to_forget_everything(redis: Server) -> None:
    clock = Clock()
    async with opened(redis.url, clock=clock) as store:
        await store.purge("t1", None, 1.0)
        cursor = (await store.changes(0)).cursor
        redis.cli("FLUSHALL")
        assert (await store.changes(cursor)).purges is None
        clock.now += 10
        await store.purge("t1", None, 1.0)
        assert (await store.changes(cursor)).purges is None


async def test_a_purge_by_another_process_reaches_this_ones_memory(redis: Server) -> None:
    clock = Clock()
    async with opened(redis.url, clock=clock) as other:
        back = RedisStore(parse_url(redis.url), SEAL, most=Bound(), clock=clock, get_s=5.0)
        store = LayeredStore(MemoryStore(clock=clock), back, poll_s=0.02)
        await store.put(entry("a"), FREE)
        await store.put(entry("b"), FREE)
        await other.purge("t1", None, entry().created)
        async with asyncio.timeout(20):
            while await held(store, "a", "b"):
                await asyncio.sleep(0.01)
        await store.close()


async def test_a_frozen_redis_costs_its_budget_three_times_and_then_nothing(
    tmp_path: Path,
) -> None:
    told: list[Event] = []
    with running(tmp_path) as server:
        async with guarded(server.url, told) as store:
            await store.put(entry("a"), FREE)
            assert await held(store, "a") == ["a"]
            server.freeze()
            assert await trouble(store) == ["timeout"] * 3
            started = time.monotonic()
            assert await trouble(store, 200) == ["open"] * 200
            assert time.monotonic() - started < 200 * BUDGET.get_s / 4
            server.thaw()
            await until_state(told, "up")
            assert await held(store, "a") == ["a"]
    assert states(told) == ["up", "down", "up"]
    outcomes = [e.outcome for e in told if isinstance(e, StoreOperation) and e.operation == "get"]
    assert outcomes[:5] == ["hit", "timeout", "timeout", "timeout", "open"]


async def test_many_gets_at_once_wait_for_a_frozen_redis_one_budget_only(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path) as server:
        async with guarded(server.url, told) as store:
            await store.put(entry("a"), FREE)
            server.freeze()
            started = time.monotonic()
            gets = (store.get("t1", key(f"n{n}")) for n in range(500))
            found = await asyncio.gather(*gets, return_exceptions=True)
            assert time.monotonic() - started < BUDGET.get_s * GENEROUS
            assert all(isinstance(item, StoreError) for item in found)
            assert states(told) == ["up"]  # All that was one pause of the server.
            await trouble(store, 2)
            server.thaw()
            received = server.cli("INFO", "stats").split("total_connections_received:")[1]
            # Two readers, a writer, and this and the first redis-cli; the probe is a reader.
            assert int(received.split()[0]) < 12
    assert states(told)[:2] == ["up", "down"]


async def test_the_memory_in_front_serves_while_redis_is_frozen(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path) as server:
        async with guarded(server.url, told) as back:
            store = LayeredStore(MemoryStore(clock=Clock()), back, poll_s=0.05)
            await store.put(entry("a"), FREE)
            server.freeze()
            assert await held(store, "a") == ["a"]
            with pytest.raises(StoreError):
                await store.get("t1", key("b"))
            with pytest.raises(StoreError):
                await store.purge("t1", "tag:x", entry().created)
            await store.close()


async def test_a_redis_that_starts_late_is_found(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path, start=False) as server:
        async with guarded(server.url, told) as store:
            with pytest.raises(StoreError) as caught:
                await store.ready()
            assert caught.value.reason == "refused"
            assert await trouble(store, 5) == ["open"] * 5
            server.start()
            await until_state(told, "up")
            await store.put(entry("a"), FREE)
            assert await held(store, "a") == ["a"]
    assert states(told) == ["down", "up"]


async def test_a_redis_that_was_restarted_costs_no_error(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path) as server:
        async with guarded(server.url, told) as store:
            await store.put(entry("a"), FREE)
            assert await held(store, "a") == ["a"]
            server.stop()
            server.start()
            assert await held(store, "a") == []
            await store.put(entry("a"), FREE)
            assert await held(store, "a") == ["a"]
    assert states(told) == ["up"]


async def test_a_read_only_replica_is_read_and_degraded(tmp_path: Path, redis: Server) -> None:
    told: list[Event] = []
    async with opened(redis.url) as store:
        await store.put(entry("a"), FREE)
    with replica_of(redis, tmp_path) as replica:
        async with guarded(replica.url, told) as store:
            for _ in range(3):
                with pytest.raises(StoreError):
                    await store.put(entry("b"), FREE)
            assert await held(store, "a") == ["a"]
            with pytest.raises(StoreError, match="open"):
                await store.put(entry("b"), FREE)
            assert why(told) == "readonly"
            replica.cli("REPLICAOF", "NO", "ONE")
            await asyncio.sleep(2 * BUDGET.probe_s)
            await store.put(entry("b"), FREE)
            assert await held(store, "a", "b") == ["a", "b"]
    assert [state for state in states(told) if state != "up"] == ["degraded"]
    assert states(told)[-1] == "up"


async def test_a_full_redis_is_read_and_degraded(tmp_path: Path) -> None:
    told: list[Event] = []
    options = ("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    with running(tmp_path, *options) as server:
        async with guarded(server.url, told) as store:
            stored, reason = 0, ""
            while not reason:
                try:
                    await store.put(entry(f"n{stored}", body=os.urandom(50_000)), FREE)
                    stored += 1
                except StoreError as error:
                    reason = error.reason
            assert reason == "full"
            for _ in range(2):
                with pytest.raises(StoreError):
                    await store.put(entry("x", body=os.urandom(50_000)), FREE)
            assert await held(store, "n0") == ["n0"]
            assert await store.purge("t1", None, entry().created) == stored
            await asyncio.sleep(2 * BUDGET.probe_s)
            await store.put(entry("y"), Bound())
    assert states(told)[:2] == ["up", "degraded"]
    assert states(told)[-1] == "up"


async def test_an_evicting_redis_is_refused_because_it_may_forget_purges(tmp_path: Path) -> None:
    told: list[Event] = []
    options = ("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    with running(tmp_path, *options) as server:
        async with guarded(server.url, told) as store:
            with pytest.raises(StoreError) as caught:
                await store.ready()
    assert caught.value.reason == "policy"
    assert states(told) == ["down"]


async def test_a_wrong_password_is_told_at_once(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path, "--requirepass", "right", login=("-a", "right")) as server:
        url = server.url.replace("redis://", "redis://:{}@")
        async with guarded(url.format("wrong-one"), told) as store:
            assert await trouble(store, 1) == ["auth"]
            assert await trouble(store, 3) == ["open"] * 3
        assert "wrong-one" not in str(told)
        async with guarded(server.url, told) as store:
            assert await trouble(store, 1) == ["auth"]
        async with opened(url.format("right")) as good:
            await good.put(entry("a"), FREE)
            assert await held(good, "a") == ["a"]
    assert states(told) == ["down", "down"]


async def test_an_acl_user_without_rights_is_trouble_and_with_rights_is_not(
    redis: Server,
) -> None:
    told: list[Event] = []
    redis.cli("ACL", "SETUSER", "reader", "on", ">pw", "~trivet:*", "+mget")
    redis.cli("ACL", "SETUSER", "app", "on", ">pw", "~trivet:*", "+@read", "+@write", "+@scripting")
    place = redis.url.removeprefix("redis://")
    async with guarded(f"redis://reader:pw@{place}", told) as store:
        assert await held(store, "a") == []
        with pytest.raises(StoreError) as caught:
            await store.put(entry("a"), FREE)
        assert caught.value.reason == "auth"
    async with opened(f"redis://app:pw@{place}") as good:
        await good.ready()
        await good.put(entry("a"), FREE)
        assert await held(good, "a") == ["a"]
    assert states(told) == ["up", "degraded"]


async def test_a_redis_that_is_loading_is_trouble_for_a_while(tmp_path: Path) -> None:
    told: list[Event] = []
    with running(tmp_path, "--enable-debug-command", "yes") as server:
        server.cli("DEBUG", "POPULATE", "20000", "filler", "100")
        server.cli(
            "CONFIG", "SET", "key-load-delay", "50", "loading-process-events-interval-bytes", "1024"
        )
        loading = asyncio.create_task(asyncio.to_thread(server.cli, "DEBUG", "RELOAD"))
        await asyncio.to_thread(server.wait_for, "loading:1", "INFO", "persistence")
        async with guarded(server.url, told) as store:
            reasons = await trouble(store)
            assert set(reasons) <= {"loading", "timeout"}
            server.cli("CONFIG", "SET", "key-load-delay", "0")
            await until_state(told, "up")
        await loading
    assert states(told) == ["down", "up"]


async def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    made, secret = certificate(tmp_path / "tls")
    login = ("--tls", "--cacert", str(made))
    with running(tmp_path / "r", "--port", "0", start=False, login=login) as server:
        server.arguments = ("--port", "0", "--tls-port", str(server.port))
        server.arguments += ("--tls-cert-file", str(made), "--tls-key-file", str(secret))
        server.arguments += ("--tls-ca-cert-file", str(made), "--tls-auth-clients", "no")
        server.start()
        place = f"127.0.0.1:{server.port}"
        async with opened(f"rediss://{place}/0?ssl_ca_certs={made}") as store:
            await store.put(entry("a"), FREE)
            assert await held(store, "a") == ["a"]
        async with opened(f"rediss://{place}") as store:
            with pytest.raises(StoreError) as caught:
                await store.get("t1", key("a"))
        assert caught.value.reason == "tls"


async def test_sentinel_failover_is_followed(tmp_path: Path) -> None:
    told: list[Event] = []
    with (
        running(tmp_path / "m") as master,
        replica_of(master, tmp_path / "r") as replica,
        sentinel(tmp_path / "s", master, "main") as watcher,
    ):
        watcher.wait_for(str(replica.port), "SENTINEL", "REPLICAS", "main")
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watcher.port}/main"
        async with guarded(url, told) as store:
            await store.put(entry("a"), FREE)
            replica.wait_for("0\n", "EVAL", "return #redis.call('KEYS', '*:e:*') - 1", "0")
            master.freeze()
            await trouble(store)
            replica.wait_for("role:master", "INFO", "replication")
            await until_state(told, "up")
            assert await held(store, "a") == ["a"]
            await store.put(entry("b"), FREE)
            assert await held(store, "b") == ["b"]
    assert states(told)[:2] == ["up", "down"]
    assert states(told)[-1] == "up"


async def test_a_cluster_spreads_tenants_and_survives_the_loss_of_a_node(tmp_path: Path) -> None:
    told: list[Event] = []
    with cluster(tmp_path) as nodes:
        url = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        async with guarded(f"redis+cluster://{url}", told) as store:
            tenants = [f"t{number}" for number in range(12)]
            await asyncio.gather(*(store.put(entry("a", tenant), FREE) for tenant in tenants))
            found = await asyncio.gather(*(store.get(tenant, key("a")) for tenant in tenants))
            assert [item.tenant for item in found if item] == tenants
            assert all(node.cli("DBSIZE").strip() != "0" for node in nodes)
            nodes[2].stop()
            nodes[0].wait_for("cluster_state:fail", "CLUSTER", "INFO")
            assert len(await trouble(store)) == 3
            assert await trouble(store, 3) == ["open"] * 3
            nodes[2].start()
            for node in nodes:
                node.wait_for("cluster_state:ok", "CLUSTER", "INFO")
            await until_state(told, "up")
            await store.put(entry("a", "t1"), FREE)
            assert await held(store, "a") == ["a"]
    assert states(told)[0] == "up"
    assert states(told)[-1] == "up"


async def test_a_burst_of_puts_takes_few_connections(redis: Server) -> None:
    async with opened(redis.url) as store:
        names = [f"n{number}" for number in range(300)]
        await asyncio.gather(*(store.put(entry(name, name), FREE) for name in names))
        found = await asyncio.gather(*(store.get(name, key(name)) for name in names))
        assert all(found)
        assert redis.cli("CLIENT", "LIST").count("\n") < 25


async def test_calls_after_close_say_so(redis: Server) -> None:
    async with opened(redis.url) as store:
        await store.put(entry("a"), FREE)
    with pytest.raises(StoreError, match="closed"):
        await store.get("t1", key("a"))


async def test_a_slow_redis_does_not_open_the_breaker_for_reads_in_time(redis: Server) -> None:
    told: list[Event] = []
    async with guarded(redis.url, told, Budget(get_s=5.0)) as store:
        await store.put(entry("a"), FREE)
        blocked = asyncio.create_task(asyncio.to_thread(redis.cli, "DEBUG", "SLEEP", "0.3"))
        for _ in range(5):
            assert await held(store, "a") == ["a"]
        await blocked
    assert states(told) == ["up"]
