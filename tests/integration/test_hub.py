"""Workers of one machine share flights and admin commands over the hub: real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from fleet_rig import RawUpstream, Worker
from flight_worker import CODEC, KEY, TENANT

from trivet.errors import StoreError, UpstreamError
from trivet.exact.fleet import ALONE, Lead, Remote
from trivet.exact.flight import Failed, Flight, FlightLimits, Head, Unstored
from trivet.exact.frames import FrameLink, Kind
from trivet.exact.hub import HubServer
from trivet.exact.hub_client import HubClient
from trivet.telemetry import Event, StoreState, ignore

pytestmark = pytest.mark.alone

LIMITS = FlightLimits(1 << 20, 1 << 20)
HEAD = Head(200, ((b"a", b"b"), (b"", b"")), True)


class Rig:
    """A hub, an upstream, and workers, all closed at the end."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path / "private" / "hub.sock"
        self.stack = stack
        self.hub = HubServer(self.path, lease_s=2.0)
        self.upstream = RawUpstream()

    async def start(self) -> None:
        await self.hub.start()
        self.stack.push_async_callback(self.hub.close)
        self.port = await self.upstream.start()
        self.stack.push_async_callback(self.upstream.close)

    async def worker(self) -> Worker:
        where = {"hub": str(self.path), "budget_s": 2.0}
        worker = await Worker.start(where, self.port)
        self.stack.push_async_callback(end, worker)
        return worker

    async def client(self, observe: Callable[[Event], None] = ignore) -> HubClient:
        client = HubClient(self.path, CODEC, observe, budget_s=2.0, lease_s=2.0)
        await client.start()
        self.stack.push_async_callback(client.close)
        return client


async def end(worker: Worker) -> None:
    if worker.process.returncode is None:
        await worker.kill()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        made = Rig(tmp_path, stack)
        await made.start()
        yield made


def flight(attempt: int = 0, tenant: str = TENANT) -> Flight:
    return Flight(KEY, tenant, LIMITS, attempt=attempt)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


async def test_a_thousand_requests_over_two_processes_make_one_call(rig: Rig) -> None:
    workers = [await rig.worker(), await rig.worker()]
    for worker in workers:
        worker.ask(500)
    await rig.upstream.wait_for(1)
    for number in range(50):
        await rig.upstream.write(0, b"chunk %d," % number)
        await asyncio.sleep(0.002)
    await rig.upstream.write(0, b"end.", end=True)
    reports = [await worker.report() for worker in workers]
    answers = sum((Counter(report["answers"]) for report in reports), Counter())
    assert len(answers) == 1
    assert set(answers.values()) == {1000}
    assert next(iter(answers)).startswith("Stored chunk 0,chunk 1")
    assert rig.upstream.calls == 1
    for worker in workers:
        await worker.close()


async def test_a_leader_killed_before_its_head_leads_to_one_re_election(rig: Rig) -> None:
    leader = await rig.worker()
    leader.ask(1)
    await rig.upstream.wait_for(1)
    followers = [await rig.worker(), await rig.worker()]
    for worker in followers:
        worker.ask(200)
    await asyncio.sleep(0.3)
    await leader.kill()
    await rig.upstream.wait_for(2)
    await asyncio.sleep(0.2)
    await rig.upstream.write(1, b"second.", end=True)
    reports = [await worker.report() for worker in followers]
    assert [report["answers"] for report in reports] == [{"Stored second. 7": 200}] * 2
    assert rig.upstream.calls == 2
    for worker in followers:
        await worker.close()


async def test_a_leader_killed_in_mid_stream_ends_its_followers_streams(rig: Rig) -> None:
    leader = await rig.worker()
    leader.ask(1)
    await rig.upstream.wait_for(1)
    await rig.upstream.write(0, b"half")
    follower = await rig.worker()
    follower.ask(200)
    await asyncio.sleep(0.3)
    await leader.kill()
    assert (await follower.report())["answers"] == {"error leader-lost": 200}
    follower.ask(1)
    await rig.upstream.wait_for(2)
    await rig.upstream.write(1, b"whole.", end=True)
    assert (await follower.report())["answers"] == {"Stored whole. 6": 1}
    await follower.close()


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


async def test_a_failing_answer_is_re_elected_once_over_all_processes(rig: Rig) -> None:
    workers = [await rig.worker() for _ in range(2)]
    for worker in workers:
        worker.ask(100)
    await rig.upstream.wait_for(1)
    await asyncio.sleep(0.3)
    await rig.upstream.write(0, b"!no", end=True)
    await rig.upstream.wait_for(2)
    await rig.upstream.write(1, b"yes.", end=True)
    answers: Counter[str] = Counter()
    for worker in workers:
        answers.update((await worker.report())["answers"])
    assert answers == {"Stored yes. 4": 199, "error no-answer": 1}
    assert rig.upstream.calls == 2


async def test_the_call_lives_while_a_remote_follower_waits_and_no_longer(rig: Rig) -> None:
    leader, follower = await rig.client(), await rig.client()
    led = flight()
    own = led.subscribe()
    assert isinstance(await leader.claim(led), Lead)
    claim = await follower.claim(flight())
    assert isinstance(claim, Remote)
    copy = flight()
    feeding = asyncio.create_task(claim.feed(copy))
    await until(lambda: len(led._subscriptions) == 2)
    own.leave()
    assert not led.deserted
    feeding.cancel()
    claim.undo()
    await until(lambda: led.deserted)


async def test_tenants_and_attempts_are_claimed_apart(rig: Rig) -> None:
    one, two = await rig.client(), await rig.client()
    assert isinstance(await one.claim(flight()), Lead)
    assert isinstance(await two.claim(flight(tenant="other")), Lead)
    assert isinstance(await two.claim(flight(attempt=1)), Lead)
    assert isinstance(await two.claim(flight()), Remote)


async def test_a_freed_claim_is_free_at_once(rig: Rig) -> None:
    one, two = await rig.client(), await rig.client()
    first = await one.claim(flight())
    first.undo()
    first.undo()
    assert isinstance(await one.claim(flight()), Lead)
    again = await one.claim(flight())
    assert isinstance(again, Lead)
    again.undo()
    await until(lambda: not rig.hub._board)
    assert isinstance(await two.claim(flight()), Lead)


async def test_what_crosses_the_hub_arrives_as_it_left(rig: Rig) -> None:
    leader, follower = await rig.client(), await rig.client()
    led, copy = flight(), flight()
    await leader.claim(led)
    claim = await follower.claim(copy)
    assert isinstance(claim, Remote)
    reader = copy.subscribe()
    feeding = asyncio.create_task(claim.feed(copy))
    led.start(HEAD)
    assert await reader.head() == HEAD
    big = bytes(range(256)) * 2000
    for chunk in (b"a", big, b"", b"z"):
        await led.push(chunk)
    led.finish(Unstored("length"))
    assert b"".join([chunk async for chunk in reader]) == b"a" + big + b"z"
    assert await reader.result() == Unstored("length")
    await feeding


async def test_a_slow_remote_reader_holds_the_sender_back(rig: Rig) -> None:
    leader, follower = await rig.client(), await rig.client()
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
    leader, follower = await rig.client(), await rig.client()
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


async def test_a_cancelled_claim_is_given_back(rig: Rig) -> None:
    one, two = await rig.client(), await rig.client()
    for wait in range(4):
        claiming = asyncio.create_task(one.claim(flight()))
        for _ in range(wait):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
    await asyncio.sleep(0.05)
    assert not rig.hub._board
    assert isinstance(await two.claim(flight()), Lead)


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
    good = await rig.client()
    reader, writer = await asyncio.open_unix_connection(str(rig.path))
    writer.write(b"\xff" * 64)
    await reader.read()
    writer.close()
    assert isinstance(await good.claim(flight()), Lead)
    assert rig.hub.workers == 1


async def test_a_hub_that_goes_away_ends_the_flights_that_were_followed(rig: Rig) -> None:
    leader, follower = await rig.client(), await rig.client()
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
