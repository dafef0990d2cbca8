"""Processes share flights over a real redis-server: killed, frozen, read-only, forged."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleet_contract import FleetContract
from fleet_rig import HEAD, FleetRig, flight, pair, until
from flight_worker import CODEC, SEAL
from redis.asyncio import Redis
from redis.exceptions import RedisError

from trivet.exact.fleet import ALONE, Lead, Remote
from trivet.exact.fleet_redis import FleetTimes, RedisFleet
from trivet.exact.flight import Failed, Unstored
from trivet.exact.redis_names import Following, Names
from trivet.telemetry import EntryRejected, Event, StoreState, ignore

pytestmark = pytest.mark.waits

# The claim's budget is wide where a busy test machine must not change the outcome.
TIMES = {"claim_s": 2.0, "line_s": 2.0, "lease_s": 1.5, "ask_s": 1.0}


class RedisServer:
    """A redis-server of our own on a free port, without persistence."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client = Redis.from_url(self.url)

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *("/usr/bin/redis-server", "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(self.directory)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(10):
            while not await self.answers():
                await asyncio.sleep(0.01)

    async def answers(self) -> bool:
        try:
            return bool(await self.client.ping())
        except (RedisError, OSError):
            return False

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        await self.client.aclose()
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Rig(FleetRig):
    """A Redis as well."""

    lapse_s = TIMES["lease_s"]

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self.redis = RedisServer(path)

    async def start(self) -> None:
        await self.redis.start()
        self.stack.push_async_callback(self.redis.close)
        await super().start()

    def where(self) -> dict[str, Any]:
        return {"redis": self.redis.url, "times": TIMES}

    async def member(self, observe: Callable[[Event], None] = ignore, **times: float) -> RedisFleet:
        chosen = FleetTimes(**(TIMES | times))
        client = Redis.from_url(self.redis.url)
        fleet = RedisFleet(lambda: client, SEAL, CODEC, observe, times=chosen)
        await fleet.start()
        self.stack.push_async_callback(fleet.close)
        return fleet


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        made = Rig(tmp_path, stack)
        await made.start()
        yield made


class TestRedisFleet(FleetContract):
    """The contract, over a Redis."""


def following_of(claim: Remote) -> Following:
    """What only the two ends of a flight know."""
    assert isinstance(claim.undo, partial)
    following = claim.undo.args[0].following
    assert isinstance(following, Following)
    return following


async def test_nothing_is_sent_for_a_flight_that_nobody_asks_for(rig: Rig) -> None:
    leader = await rig.member()
    led = flight()
    lead = await leader.claim(led)
    led.start(HEAD)
    for _ in range(20):
        await led.push(b"x")
    led.finish(Unstored("end"))
    lead.undo()
    await asyncio.sleep(0.05)
    stats = await rig.redis.client.info("commandstats")
    assert stats["cmdstat_set"]["calls"] == 2  # the probe and the claim
    assert "cmdstat_rpush" not in stats
    assert await rig.redis.client.keys("*lease*") == []


async def test_the_lease_is_renewed_and_expires_when_the_leader_is_gone(rig: Rig) -> None:
    leader, other = await rig.member(), await rig.member()
    led = flight()
    await leader.claim(led)
    await asyncio.sleep(2 * TIMES["lease_s"])
    claim = await other.claim(flight())
    assert isinstance(claim, Remote)
    await leader.close()
    assert isinstance(await other.claim(flight()), Lead)


async def test_forged_messages_are_ignored(rig: Rig) -> None:
    events: list[Event] = []
    led, copy, claim = await pair(rig, events.append)
    reader = copy.subscribe()
    feeding = asyncio.create_task(claim.feed(copy))
    led.start(HEAD)
    await led.push(b"true,")
    assert await reader.__anext__() == b"true,"
    channels = await rig.redis.client.pubsub_channels()
    known = following_of(claim)
    name = f"trivet:flight:inbox:{known.nonce.hex()}"
    number = (3).to_bytes(8, "big")
    await rig.redis.client.rpush(name, b"", b"garbage", number + b"x" * 32 + b"\x01false")
    other = replace(known, tenant="other").seal_item(3, b"\x01false")
    await rig.redis.client.rpush(name, other)
    for channel in channels:
        for message in (
            b"",
            b"W",
            b"A" + b"x" * 64,
            b"L" + known.flight_id + known.nonce + b"x" * 48,
        ):
            await rig.redis.client.publish(channel, message)
    await led.push(b"also true")
    led.finish(Unstored("end"))
    assert b"".join([chunk async for chunk in reader]) == b"also true"
    await feeding
    assert events.count(EntryRejected("fleet", "mac")) == 4


async def test_a_forged_lease_makes_this_process_lead(rig: Rig) -> None:
    events: list[Event] = []
    fleet = await rig.member(events.append)
    key = Names("trivet:flight:", SEAL).lease(flight())
    await rig.redis.client.set(key, os.urandom(64))
    assert isinstance(await fleet.claim(flight()), Lead)
    assert events[-1] == EntryRejected("fleet", "mac")


async def test_a_lost_item_fails_the_flight_and_is_never_skipped(rig: Rig) -> None:
    led, copy, claim = await pair(rig)
    reader = copy.subscribe()
    feeding = asyncio.create_task(claim.feed(copy))
    led.start(HEAD)
    assert await reader.head() == HEAD
    following = following_of(claim)
    name = f"trivet:flight:inbox:{following.nonce.hex()}"
    await rig.redis.client.rpush(name, following.seal_item(99, b"\x01skipped"))
    await led.push(b"a")
    await feeding
    result = await reader.result()
    assert isinstance(result, Failed)
    assert result.error.reason == "leader-lost"


async def test_a_lease_without_a_leader_is_given_up_in_time(rig: Rig) -> None:
    fleet = await rig.member(ask_s=0.2)
    names = Names("trivet:flight:", SEAL)
    value = names.seal_lease(flight(), b"f" * 16, b"p" * 16)
    await rig.redis.client.set(names.lease(flight()), value)
    copy = flight()
    claim = await fleet.claim(copy)
    assert isinstance(claim, Remote)
    await claim.feed(copy)
    head = await copy.subscribe().head()
    assert isinstance(head, Failed)
    assert head.error.reason == "leader-lost"
    claim.undo()
    assert not fleet._followed


async def test_a_frozen_redis_costs_its_budget_and_then_nothing(rig: Rig) -> None:
    events: list[Event] = []
    fleet = await rig.member(events.append, claim_s=0.05, line_s=0.2)
    assert isinstance(await fleet.claim(flight()), Lead)
    rig.redis.freeze()
    loop = asyncio.get_running_loop()
    began = loop.time()
    claims = await asyncio.gather(*(fleet.claim(flight()) for _ in range(100)))
    assert all(isinstance(claim, Lead) for claim in claims)
    for _ in range(1000):
        assert isinstance(await fleet.claim(flight()), Lead)
    await until(lambda: not fleet.up)
    for _ in range(1000):
        assert await fleet.claim(flight()) is ALONE
    # 2,100 claims take less than ten that each waited for the budget and the round trip's limit.
    assert loop.time() - began < 10 * (0.05 + 0.2)
    rig.redis.thaw()
    await until(lambda: fleet.up)
    assert [event for event in events if isinstance(event, StoreState)] == [
        StoreState("fleet", "up", ""),
        StoreState("fleet", "down", "timeout"),
        StoreState("fleet", "up", ""),
    ]


async def test_after_a_freeze_processes_share_again(rig: Rig) -> None:
    one = await rig.member(line_s=0.2, claim_s=0.2)
    two = await rig.member(line_s=0.2, claim_s=0.2)
    await one.claim(flight(attempt=3))
    rig.redis.freeze()
    await one.claim(flight())
    await two.claim(flight())
    await until(lambda: not one.up and not two.up)
    rig.redis.thaw()
    await until(lambda: one.up and two.up)
    led, copy = flight(attempt=5), flight(attempt=5)
    assert isinstance(await one.claim(led), Lead)
    claim = await two.claim(copy)
    assert isinstance(claim, Remote)
    feeding = asyncio.create_task(claim.feed(copy))
    led.start(HEAD)
    await led.push(b"shared")
    led.finish(Unstored("end"))
    await feeding
    assert await copy.subscribe().read(100) == b"shared"


async def test_a_follower_re_elects_at_once_when_redis_freezes_before_the_head(rig: Rig) -> None:
    leader, follower = await rig.member(), await rig.member(line_s=0.1, ask_s=5.0)
    copy = flight()
    await leader.claim(flight())
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    await leader.close()
    rig.redis.freeze()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await claim.feed(copy)
    assert loop.time() - began < 1.0
    rig.redis.thaw()


async def test_a_redis_that_is_read_only_is_left_alone_until_it_takes_writes(rig: Rig) -> None:
    events: list[Event] = []
    fleet = await rig.member(events.append)
    await rig.redis.client.replicaof("127.0.0.1", "1")
    assert isinstance(await fleet.claim(flight()), Lead)
    await until(lambda: not fleet.up)
    assert events[-1] == StoreState("fleet", "down", "refused")
    await rig.redis.client.replicaof("NO", "ONE")
    await until(lambda: fleet.up)


async def test_a_fleet_starts_without_redis_and_joins_it_later(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    fleet = RedisFleet(lambda: Redis.from_url(server.url), SEAL, CODEC, ignore)
    await fleet.start()
    assert not fleet.up
    assert isinstance(await fleet.claim(flight()), Lead)
    await server.start()
    await until(lambda: fleet.up)
    await fleet.close()
    await fleet.close()
    await server.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_restarted_redis_forgets_leases_and_hears_again(rig: Rig) -> None:
    one, two = await rig.member(), await rig.member()
    await one.claim(flight())
    rig.redis.process.kill()
    await rig.redis.process.wait()
    await one.claim(flight())
    await two.claim(flight())
    await until(lambda: not one.up and not two.up)
    await rig.redis.start()
    await until(lambda: one.up and two.up)
    led, copy = flight(), flight()
    assert isinstance(await one.claim(led), Lead)
    claim = await two.claim(copy)
    assert isinstance(claim, Remote)
    led.start(HEAD)
    led.finish(Unstored("end"))
    await claim.feed(copy)
    assert await copy.subscribe().head() == HEAD
