"""Redis in trouble behind the running proxy: callers get the upstream's answers, soon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
import trouble_rig as rig
from proxy import Proxy, chat_body, request
from raw_http import Answer, post
from redis_servers import Server, replica_of, running, sentinel
from slow_line import slow_line
from trouble_rig import (
    BUDGET_S,
    GENEROUS,
    PATIENT_S,
    Kept,
    ask,
    assert_altered_entries_are_misses,
    assert_answered,
    assert_degraded,
    assert_works,
    calls,
    component,
    faults,
    fronts,
    metric,
    mocked,
    one_by_one,
    operations,
    states,
    text_of,
    texts,
    timed,
    troubled,
    until,
    until_stored,
    until_up,
)

from trivet.middleware.mock_upstream.commands import in_baggage

pytestmark = pytest.mark.waits


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "redis") as server:
        yield server


def assert_stands_aside(proxy: Proxy, reason: str, label: str = "aside") -> None:
    """The fleet, which goes over the same Redis, stands aside as well."""
    until(lambda: states(proxy, "fleet")[-1:] == ["down"], "fleet down in the log")
    rig.assert_stands_aside(proxy, "redis", reason, label)
    assert component(proxy, "fleet")["state"] == "down"


@fronts
def test_a_frozen_redis_costs_a_few_budgets_and_its_entries_are_there_afterwards(
    redis: Server, front: int
) -> None:
    with troubled(redis.url, front=front) as proxy:
        warm = texts("warm", 20)
        assert_answered(ask(proxy, warm), hits=0)
        for turn in range(2):
            redis.freeze()
            # One after another: the worst case for those who come first.
            assert one_by_one(proxy, f"first {turn}") < BUDGET_S * GENEROUS
            assert_stands_aside(proxy, "timeout", f"aside {turn}")
            # What this process holds in its memory is still served.
            assert_answered(ask(proxy, warm), hits=20 if front else 0)
            redis.thaw()
            until_up(proxy, "redis")
            until(lambda: states(proxy, "fleet")[-1] == "up", "the fleet is up")
            assert_answered(ask(proxy, warm), hits=20)
        assert operations(proxy, "redis", "get", "timeout") <= 2 * 6
        assert operations(proxy, "redis", "put", "timeout") <= 2 * 6
        assert_works(proxy, "redis", "after")
        assert states(proxy, "redis") == ["up", "down", "up", "down", "up"]
        assert states(proxy, "fleet") == ["up", "down", "up", "down", "up"]
        assert faults(proxy) == []


def test_requests_that_wait_for_a_redis_when_it_freezes_are_all_answered(redis: Server) -> None:
    """Two hundred at once, in flight at that moment; the breaker has not opened yet."""
    with troubled(redis.url) as proxy:
        assert_answered(ask(proxy, texts("warm", 5)))

        async def freeze_in_the_middle() -> list[Answer]:
            waiting = [
                asyncio.create_task(
                    post(
                        proxy.url,
                        chat_body(text, stream=at % 2 == 1),
                        baggage=in_baggage("delay=200"),
                    )
                )
                for at, text in enumerate(texts("middle", 200))
            ]
            await asyncio.sleep(0.1)
            redis.freeze()
            return await asyncio.gather(*waiting)

        answers: list[Answer] = []
        took = timed(lambda: answers.extend(asyncio.run(freeze_in_the_middle())))
        assert_answered(answers, hits=0)
        assert took < 0.2 + BUDGET_S * GENEROUS
        for at in range(3):
            ask(proxy, texts(f"next {at}", 2))
        assert_stands_aside(proxy, "timeout")
        redis.thaw()
        assert_works(proxy, "redis", "after")
        assert [state for state in states(proxy, "redis") if state != "degraded"] == [
            "up",
            "down",
            "up",
        ]


@fronts
def test_a_redis_that_refuses_and_is_started_late_is_found(tmp_path: Path, front: int) -> None:
    with (
        running(tmp_path, start=False) as server,
        troubled(server.url, front=front) as proxy,
    ):
        assert states(proxy, "redis") == ["down"]
        assert_stands_aside(proxy, "refused")
        server.start()
        assert_works(proxy, "redis", "late")
        until(lambda: states(proxy, "fleet") == ["down", "up"], "the fleet is up")
        assert states(proxy, "redis") == ["down", "up"]
        assert faults(proxy) == []


def test_a_proxy_starts_while_its_redis_is_frozen(redis: Server) -> None:
    redis.freeze()
    with troubled(redis.url) as proxy:
        assert_stands_aside(proxy, "timeout")
        redis.thaw()
        assert_works(proxy, "redis", "after")
        assert states(proxy, "redis") == ["down", "up"]


def test_a_redis_that_is_killed_under_load_and_comes_back_fails_no_request(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server, troubled(server.url) as proxy:
        answers: list[Answer] = []

        async def load(worker: int) -> None:
            number = 0
            while len(answers) < 4000 and not over.is_set():
                number += 1
                body = chat_body(f"{worker} {number // 2}", stream=number % 4 < 2)
                answers.append(await post(proxy.url, body))

        async def trouble() -> None:
            for _ in range(2):
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.stop)
                await asyncio.sleep(1.0)
                await asyncio.to_thread(server.start)
                await asyncio.to_thread(until_up, proxy, "redis")
            over.set()

        over = asyncio.Event()

        async def both() -> None:
            await asyncio.gather(trouble(), *(load(worker) for worker in range(10)))

        asyncio.run(both())
        assert_answered(answers)
        assert len(answers) > 100
        assert states(proxy, "redis") in (
            ["up", "down", "up", "down", "up"],
            ["up", "degraded", "down", "up", "down", "up"],
            ["up", "down", "up", "degraded", "down", "up"],
            ["up", "degraded", "down", "up", "degraded", "down", "up"],
        )
        assert_works(proxy, "redis", "after")
        assert faults(proxy) == []


def test_a_slow_redis_is_used_within_the_budget_and_left_alone_beyond_it(redis: Server) -> None:
    with slow_line(redis.port) as line, troubled(f"redis://127.0.0.1:{line.port}") as proxy:
        line.delay_s = BUDGET_S / 10
        assert_answered([*ask(proxy, texts("warm", 1)), *ask(proxy, texts("warm", 1))], hits=1)
        line.delay_s = BUDGET_S * 4
        assert one_by_one(proxy, "slow") < BUDGET_S * GENEROUS
        assert operations(proxy, "redis", "get", "timeout") <= 6
        assert_stands_aside(proxy, "timeout")
        line.delay_s = 0
        assert_works(proxy, "redis", "after")
        assert states(proxy, "redis") == ["up", "down", "up"]
        assert faults(proxy) == []


@fronts
def test_a_full_redis_serves_what_it_holds_and_stores_no_more(tmp_path: Path, front: int) -> None:
    with (
        running(tmp_path, "--maxmemory", "8mb") as server,
        troubled(server.url, front=front, budget=PATIENT_S) as proxy,
    ):
        warm = texts("warm", 20)
        assert_answered(ask(proxy, warm), hits=0)
        fill = "for i = 1, 200 do redis.call('SET', 'f' .. i, string.rep('x', 50000)) end"
        server.cli("EVAL", fill, "0")
        assert_degraded(proxy, "redis", "full", warm)
        assert len(states(proxy, "fleet")) <= 2
        assert operations(proxy, "redis", "put", "full") >= 3
        server.cli("DEL", *(f"f{number}" for number in range(1, 201)))
        until_stored(proxy)
        assert_works(proxy, "redis", "after")
        assert states(proxy, "redis") == ["up", "degraded", "up"]
        assert faults(proxy) == []


def test_a_read_only_replica_serves_and_stores_again_once_it_is_the_master(
    redis: Server, tmp_path: Path
) -> None:
    warm = texts("warm", 20)
    with mocked() as upstream:
        with troubled(redis.url, upstream) as writer:
            assert_answered(ask(writer, warm), hits=0)
        with (
            replica_of(redis, tmp_path / "replica") as replica,
            troubled(replica.url, upstream, budget=PATIENT_S) as proxy,
        ):
            assert_answered(ask(proxy, warm), hits=20)
            assert_degraded(proxy, "redis", "readonly", warm)
            assert states(proxy, "fleet") == ["down"]
            assert component(proxy, "fleet")["state"] == "down"
            replica.cli("REPLICAOF", "NO", "ONE")
            until_stored(proxy)
            assert_works(proxy, "redis", "after")
            assert states(proxy, "redis") == ["up", "degraded", "up"]
            until(lambda: states(proxy, "fleet") == ["down", "up"], "the fleet is up")
            assert faults(proxy) == []


@pytest.mark.alone
def test_a_failover_is_followed_and_costs_no_request(tmp_path: Path) -> None:
    warm = texts("warm", 20)
    with (
        running(tmp_path / "m") as master,
        replica_of(master, tmp_path / "r") as replica,
        sentinel(tmp_path / "s", master, "main") as watcher,
    ):
        watcher.wait_for(str(replica.port), "SENTINEL", "REPLICAS", "main")
        with troubled(f"redis+sentinel://127.0.0.1:{watcher.port}/main") as proxy:
            assert_answered(ask(proxy, warm), hits=0)
            assert_answered(ask(proxy, warm), hits=20)
            size = master.cli("DBSIZE").strip()
            replica.wait_for(size, "DBSIZE")
            master.freeze()
            number = 0
            while "role:master" not in replica.cli("INFO", "replication"):
                number += 1
                assert_answered(ask(proxy, texts(f"during {number}", 10)), hits=0)
                assert number < 500
            until_up(proxy, "redis")
            assert_answered(ask(proxy, warm), hits=20)
            assert_works(proxy, "redis", "after")
            assert states(proxy, "redis")[:2] == ["up", "down"]
            assert len(states(proxy, "redis")) <= 5
            until(lambda: states(proxy, "fleet")[-1] == "up", "the fleet is up")
            assert faults(proxy) == []


def test_a_wrong_password_is_told_without_the_password_and_healed_without_a_restart(
    tmp_path: Path,
) -> None:
    login = ("-a", "right")
    with running(tmp_path, "--requirepass", "right", login=login) as server:
        url = server.url.replace("redis://", "redis://:wrong-one@")
        with troubled(url) as proxy:
            assert_stands_aside(proxy, "auth")
            assert states(proxy, "redis") == ["down"]
            server.cli("CONFIG", "SET", "requirepass", "wrong-one")
            assert_works(proxy, "redis", "after")
            assert states(proxy, "redis") == ["down", "up"]
            assert "wrong-one" not in proxy.log.read_text()
            assert "wrong-one" not in proxy.get("/readyz", admin=True).body.decode()
            assert faults(proxy) == []


def test_a_user_without_rights_is_trouble_until_it_has_them(redis: Server) -> None:
    redis.cli("ACL", "SETUSER", "app", "on", ">pw", "resetchannels", "+ping")
    with troubled(redis.url.replace("redis://", "redis://app:pw@")) as proxy:
        assert_stands_aside(proxy, "auth")
        redis.cli("ACL", "SETUSER", "app", "~trivet:*", "+@all", "allchannels")
        assert_works(proxy, "redis", "after")
        assert states(proxy, "redis") == ["down", "up"]
        assert faults(proxy) == []


def test_a_purge_that_redis_cannot_take_says_so(redis: Server) -> None:
    with troubled(redis.url) as proxy:
        assert_answered(ask(proxy, texts("warm", 3)))
        redis.stop()
        reply = request(
            "POST",
            f"{proxy.admin}/trivet/purge",
            b'{"tenant": "someone"}',
            {"content-type": "application/json"},
            30.0,
        )
        assert reply.status == 503
        assert "trouble" in reply.json["error"]["message"]
        assert faults(proxy) == []


@pytest.mark.parametrize("stream", [False, True])
def test_two_workers_collapse_on_their_machine_while_redis_is_down(
    tmp_path: Path, stream: bool
) -> None:
    with (
        running(tmp_path, start=False) as server,
        troubled(server.url, workers=2) as proxy,
    ):
        until(lambda: len(states(proxy, "redis")) == 2, "both workers tell that Redis is down")
        until(lambda: len(states(proxy, "fleet")) == 2, "both workers tell that the fleet is down")
        assert set(states(proxy, "redis")) == {"down"}

        async def many() -> list[Answer]:
            body = chat_body("all the same", stream=stream)
            wanted = (post(proxy.url, body, baggage=in_baggage("delay=1500")) for _ in range(100))
            return await asyncio.gather(*wanted)

        answers = asyncio.run(many())
        assert_answered(answers)
        assert calls(proxy) == 1
        assert_answered(ask(proxy, texts("aside", 200)), hits=0)
        assert component(proxy, "store:redis")["state"] == "down"
        assert states(proxy, "redis") == states(proxy, "fleet") == ["down"] * 2
        assert metric(proxy, "trivet_store_up", store="redis") == 0
        server.start()
        until(lambda: len(states(proxy, "redis")) == 4, "both workers tell that Redis is up")
        until(lambda: component(proxy, "store:redis")["state"] == "up", "redis up in /readyz")
        assert_answered(ask(proxy, texts("after", 10)), hits=0)
        assert_answered(ask(proxy, texts("after", 10)), hits=10)
        assert faults(proxy) == []


# Entries that somebody else wrote, altered, or can read.


def kept_in(server: Server) -> Kept:
    return Kept("redis", server.url, lambda: set(server.cli("KEYS", "trivet:*:e:*").split()))


_CUT = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, -9))"
ALTERATIONS = {
    "a byte changed": ("SETRANGE", "{one}", "90", "\x07"),
    "another format": ("SETRANGE", "{one}", "0", "\x07"),
    "cut short": ("EVAL", _CUT, "1", "{one}"),
    "replaced by garbage": ("SET", "{one}", "garbage"),
    "replaced by nothing": ("SET", "{one}", ""),
    "another answer of the tenant": ("COPY", "{two}", "{one}", "REPLACE"),
    "another tenant's answer to that request": ("COPY", "{theirs}", "{one}", "REPLACE"),
    "of another deployment": ("COPY", "{foreign}", "{one}", "REPLACE"),
}


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_altered_entries_are_misses_counted_and_deleted(redis: Server, encrypt: bool) -> None:
    def alter(command: Sequence[str], names: Mapping[str, str]) -> None:
        assert "ERR" not in redis.cli(*(part.format(**names) for part in command))

    alterations = {how: partial(alter, command) for how, command in ALTERATIONS.items()}
    assert_altered_entries_are_misses(kept_in(redis), encrypt, alterations)


def test_an_entry_of_the_wrong_type_is_a_miss_and_is_replaced(redis: Server) -> None:
    with troubled(redis.url) as proxy:
        name = kept_in(redis).stored_as(proxy, "one", "sk-us")
        redis.cli("DEL", name)
        redis.cli("LPUSH", name, "a list")
        assert proxy.chat("one", key="sk-us").exact == {"fwd": "miss", "stored": True}
        assert proxy.chat("one", key="sk-us").exact["hit"] is True
        assert states(proxy, "redis") == ["up"]


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_what_redis_keeps_tells_nothing_when_it_is_encrypted(tmp_path: Path, encrypt: bool) -> None:
    """The append-only file holds every command that Redis was given, the fleet's as well."""
    with (
        running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server,
        mocked() as upstream,
        troubled(server.url, upstream, encrypt=encrypt) as one,
        troubled(server.url, upstream, encrypt=encrypt) as two,
    ):
        assert one.chat("walnut", key="sk-hazel", trivet_tag="almond").exact["stored"] is True

        async def across_machines() -> list[Answer]:
            body = chat_body("chestnut", stream=True)
            headers = {"baggage": in_baggage("delay=1000"), "authorization": "Bearer sk-hazel"}
            return await asyncio.gather(
                *(post(proxy.url, body, **headers) for proxy in (one, two, one, two))
            )

        answers = asyncio.run(across_machines())
        assert upstream.mock.calls.total == 2
        said = text_of(answers[0]).encode()
        assert len(said) > 10
        written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        readable = [word for word in (b"walnut", b"chestnut", said) if word in written]
        assert readable == ([] if encrypt else [b"walnut", b"chestnut", said])
        assert b"hazel" not in written
        if encrypt:
            assert b"almond" not in written
