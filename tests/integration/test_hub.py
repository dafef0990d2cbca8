"""Workers of one machine share flights and admin commands over the hub: real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fleet_contract import FleetContract
from fleet_rig import HEAD, FleetRig, flight, until
from flight_worker import CODEC, KEY, TENANT

from trivet.errors import StoreError, UpstreamError
from trivet.exact.fleet import ALONE, Lead, Remote
from trivet.exact.flight import Failed, Flight, FlightLimits, Unstored
from trivet.exact.frames import FrameLink, Kind
from trivet.exact.hub import HubServer
from trivet.exact.hub_client import HubClient
from trivet.telemetry import Event, StoreState, ignore

pytestmark = pytest.mark.waits


class Rig(FleetRig):
    """A hub as well."""

    lapse_s = 0.2

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self.path = path / "private" / "hub.sock"
        self.hub = HubServer(self.path, lease_s=2.0)

    async def start(self) -> None:
        await self.hub.start()
        self.stack.push_async_callback(self.hub.close)
        await super().start()

    def where(self) -> dict[str, Any]:
        return {"hub": str(self.path), "budget_s": 2.0}

    async def member(self, observe: Callable[[Event], None] = ignore) -> HubClient:
        client = HubClient(self.path, CODEC, observe, budget_s=2.0, lease_s=2.0)
        await client.start()
        self.stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        made = Rig(tmp_path, stack)
        await made.start()
        yield made


class TestHub(FleetContract):
    """The contract, over a hub."""


async def test_the_hub_forgets_a_freed_claim(rig: Rig) -> None:
    one, two = await rig.member(), await rig.member()
    claim = await one.claim(flight())
    assert isinstance(claim, Lead)
    claim.undo()
    await until(lambda: not rig.hub._board)
    assert isinstance(await two.claim(flight()), Lead)


async def test_a_frozen_leader_is_given_up_within_the_lease(rig: Rig) -> None:
    leader = await rig.worker()
    leader.ask(1)
    await rig.upstream.wait_for(1)
    follower = await rig.worker()
    follower.ask(10)
    await asyncio.sleep(0.2)
    leader.process.send_signal(signal.SIGSTOP)
    await rig.upstream.wait_for(2)
    await rig.upstream.write(1, b"second.", end=True)
    assert (await follower.report())["answers"] == {"Stored second. 7": 10}
    leader.process.send_signal(signal.SIGCONT)
    await rig.upstream.write(0, b"first.", end=True)
    assert (await leader.report())["answers"] == {"Stored first. 6": 1}
    await leader.close()


async def test_a_slow_remote_reader_holds_the_sender_back(rig: Rig) -> None:
    leader, follower = await rig.member(), await rig.member()
    led = Flight(KEY, TENANT, FlightLimits(1 << 30, 1 << 18))
    await leader.claim(led)
    copy = Flight(KEY, TENANT, FlightLimits(1 << 30, 1 << 18))
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    reader = copy.subscribe()
    feeding = asyncio.create_task(claim.feed(copy))
    led.start(HEAD)
    await until(lambda: not led.deserted)
    pushed = 0

    async def produce() -> None:
        nonlocal pushed
        for _ in range(400):
            await led.push(b"x" * 65536)
            pushed += 65536
        led.finish(Unstored("end"))

    producing = asyncio.create_task(produce())
    await asyncio.sleep(0.5)
    assert pushed < 4 << 20
    size = 0
    async for chunk in reader:
        size += len(chunk)
    assert size == 400 * 65536
    await asyncio.gather(producing, feeding)


async def test_a_follower_that_comes_when_all_is_over_is_told(rig: Rig) -> None:
    leader, follower = await rig.member(), await rig.member()
    led = Flight(KEY, TENANT, FlightLimits(0, 1 << 20))
    await leader.claim(led)
    led.start(HEAD)
    await led.push(b"overflow")
    copy = flight()
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    await claim.feed(copy)
    head = await copy.subscribe().head()
    assert isinstance(head, Failed)
    assert head.error.reason == "flight-over"


async def test_without_a_hub_a_worker_leads_alone_and_comes_back(tmp_path: Path) -> None:
    events: list[Event] = []
    path = tmp_path / "hub.sock"
    client = HubClient(path, CODEC, events.append)
    await client.start()
    for _ in range(100):
        assert isinstance(await client.claim(flight()), Lead)
    with pytest.raises(StoreError):
        await client.ask("any", b"")
    hub = HubServer(path)
    await hub.start()
    await until(lambda: client.up)
    await hub.close()
    await until(lambda: not client.up)
    assert events == [
        StoreState("hub", "down", "unreachable"),
        StoreState("hub", "up", ""),
        StoreState("hub", "down", "lost"),
    ]
    await client.close()
    await client.close()
    await hub.close()


async def test_a_frozen_hub_costs_its_budget_once(tmp_path: Path) -> None:
    events: list[Event] = []
    path = tmp_path / "hub.sock"
    silent = await asyncio.get_running_loop().create_unix_server(
        lambda: FrameLink(
            lambda link, kind, number, payload: None,
            lambda link: link.send(Kind.PING, 0),
            lambda link: None,
        ),
        str(path),
    )
    client = HubClient(path, CODEC, events.append, budget_s=0.05, lease_s=30.0)
    await client.start()
    await until(lambda: client.up)
    assert isinstance(await client.claim(flight()), Lead)
    began = asyncio.get_running_loop().time()
    for _ in range(1000):
        assert await client.claim(flight()) is ALONE
    assert asyncio.get_running_loop().time() - began < 100 * 0.05
    assert events[-1] == StoreState("hub", "down", "timeout")
    await client.close()
    silent.close()


async def test_questions_go_both_ways(tmp_path: Path) -> None:
    async def name(payload: bytes) -> bytes:
        return b"hub " + payload

    async def fails(payload: bytes) -> bytes:
        raise ValueError("no")

    async def slow(payload: bytes) -> bytes:
        await asyncio.sleep(10)
        return b""

    def purge(number: int) -> Callable[[bytes], Awaitable[bytes]]:
        async def handler(payload: bytes) -> bytes:
            if number == 2:
                raise ValueError("broken worker")
            return b"%d %b" % (number, payload)

        return handler

    hub = HubServer(tmp_path / "hub.sock", {"name": name, "fails": fails})
    await hub.start()
    clients = [
        HubClient(tmp_path / "hub.sock", CODEC, ignore, {"purge": purge(number), "slow": slow})
        for number in range(3)
    ]
    for client in clients:
        await client.start()
    await until(lambda: hub.workers == 3)
    assert sorted(await hub.call_all("purge", b"x", 2.0)) == [b"0 x", b"1 x"]
    assert await hub.call_all("slow", b"", 0.02) == []
    assert await hub.call_all("nobody", b"", 2.0) == []
    assert await clients[0].ask("name", b"y") == b"hub y"
    for topic in ("fails", "unknown"):
        with pytest.raises(StoreError) as caught:
            await clients[0].ask(topic, b"")
        assert caught.value.reason == "refused"
    for client in clients:
        await client.close()
    assert await hub.call_all("purge", b"x", 2.0) == []
    await hub.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_socket_is_for_its_owner_alone(rig: Rig) -> None:
    assert stat.S_IMODE(os.stat(rig.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(rig.path.parent).st_mode) == 0o700


async def test_the_hub_refuses_a_directory_that_is_open_to_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(PermissionError):
        await HubServer(tmp_path / "open" / "hub.sock").start()


async def test_a_client_that_sends_rubbish_is_cut_off_and_harms_nobody(rig: Rig) -> None:
    good = await rig.member()
    reader, writer = await asyncio.open_unix_connection(str(rig.path))
    writer.write(b"\xff" * 64)
    await reader.read()
    writer.close()
    assert isinstance(await good.claim(flight()), Lead)
    assert rig.hub.workers == 1


async def test_a_hub_that_goes_away_ends_the_flights_that_were_followed(rig: Rig) -> None:
    leader, follower = await rig.member(), await rig.member()
    led, copy = flight(), flight()
    own = led.subscribe()
    await leader.claim(led)
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    feeding = asyncio.create_task(claim.feed(copy))
    await until(lambda: len(led._subscriptions) == 2)
    await rig.hub.close()
    await feeding
    result = await copy.subscribe().result()
    assert isinstance(result, Failed)
    assert isinstance(result.error, UpstreamError)
    assert result.error.reason == "leader-lost"
    await until(lambda: len(led._subscriptions) == 1)
    own.leave()
