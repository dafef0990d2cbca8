"""What the workers of one machine and machines have to do alike: flights led, followed, lost.

The hub's and Redis' test modules run it, each with its own `rig`.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from fleet_rig import HEAD, FleetRig, flight, pair, until

from trivet.exact.fleet import Lead, Remote
from trivet.exact.flight import Unstored


class FleetContract:
    """Real processes and a raw upstream; `rig` is a fixture of the module."""

    async def test_a_thousand_requests_over_two_processes_make_one_call(
        self, rig: FleetRig
    ) -> None:
        workers = [await rig.worker(), await rig.worker()]
        for worker in workers:
            worker.ask(500)
        await rig.upstream.wait_for(1)
        for number in range(50):
            await rig.upstream.write(0, b"chunk %d," % number)
            await asyncio.sleep(0.002)
        await rig.upstream.write(0, b"end.", end=True)
        answers: Counter[str] = Counter()
        for worker in workers:
            answers.update((await worker.report())["answers"])
        assert len(answers) == 1
        assert set(answers.values()) == {1000}
        assert next(iter(answers)).startswith("Stored chunk 0,chunk 1")
        assert rig.upstream.calls == 1
        for worker in workers:
            await worker.close()

    async def test_a_leader_killed_before_its_head_leads_to_one_re_election(
        self, rig: FleetRig
    ) -> None:
        leader = await rig.worker()
        leader.ask(1)
        await rig.upstream.wait_for(1)
        followers = [await rig.worker(), await rig.worker()]
        for worker in followers:
            worker.ask(200)
        await asyncio.sleep(0.4)
        await leader.kill()
        await rig.upstream.wait_for(2)
        await asyncio.sleep(rig.lapse_s)
        await rig.upstream.write(1, b"second.", end=True)
        reports = [await worker.report() for worker in followers]
        assert [report["answers"] for report in reports] == [{"Stored second. 7": 200}] * 2
        assert rig.upstream.calls == 2
        for worker in followers:
            await worker.close()

    async def test_a_leader_killed_in_mid_stream_ends_its_followers_streams(
        self, rig: FleetRig
    ) -> None:
        leader = await rig.worker()
        leader.ask(1)
        await rig.upstream.wait_for(1)
        await rig.upstream.write(0, b"half")
        follower = await rig.worker()
        follower.ask(100)
        await asyncio.sleep(0.4)
        await leader.kill()
        assert (await follower.report())["answers"] == {"error leader-lost": 100}
        await asyncio.sleep(rig.lapse_s)
        follower.ask(1)
        await rig.upstream.wait_for(2)
        await rig.upstream.write(1, b"whole.", end=True)
        assert (await follower.report())["answers"] == {"Stored whole. 6": 1}
        await follower.close()

    async def test_a_failing_answer_is_re_elected_once_over_all_processes(
        self, rig: FleetRig
    ) -> None:
        workers = [await rig.worker() for _ in range(2)]
        for worker in workers:
            worker.ask(100)
        await rig.upstream.wait_for(1)
        await asyncio.sleep(0.4)
        await rig.upstream.write(0, b"!no", end=True)
        await rig.upstream.wait_for(2)
        await rig.upstream.write(1, b"yes.", end=True)
        answers: Counter[str] = Counter()
        for worker in workers:
            answers.update((await worker.report())["answers"])
        assert answers == {"Stored yes. 4": 199, "error no-answer": 1}
        assert rig.upstream.calls == 2

    async def test_what_crosses_arrives_as_it_left(self, rig: FleetRig) -> None:
        led, copy, claim = await pair(rig)
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

    async def test_the_call_lives_while_a_remote_follower_waits_and_no_longer(
        self, rig: FleetRig
    ) -> None:
        led, copy, claim = await pair(rig)
        own = led.subscribe()
        feeding = asyncio.create_task(claim.feed(copy))
        await until(lambda: len(led._subscriptions) == 2)
        own.leave()
        await asyncio.sleep(2 * rig.lapse_s)
        assert not led.deserted
        feeding.cancel()
        claim.undo()
        await until(lambda: led.deserted)

    async def test_tenants_and_attempts_are_claimed_apart(self, rig: FleetRig) -> None:
        one, two = await rig.member(), await rig.member()
        assert isinstance(await one.claim(flight()), Lead)
        assert isinstance(await two.claim(flight(tenant="other")), Lead)
        assert isinstance(await two.claim(flight(attempt=1)), Lead)
        assert isinstance(await two.claim(flight()), Remote)

    async def test_a_freed_claim_is_free_at_once(self, rig: FleetRig) -> None:
        one = await rig.member()
        first = await one.claim(flight())
        first.undo()
        first.undo()
        assert isinstance(await one.claim(flight()), Lead)
        assert isinstance(await (await rig.member()).claim(flight()), Remote)

    async def test_a_cancelled_claim_is_given_back(self, rig: FleetRig) -> None:
        one, two = await rig.member(), await rig.member()
        for wait in range(6):
            claiming = asyncio.create_task(one.claim(flight()))
            for _ in range(wait):
                await asyncio.sleep(0)
            claiming.cancel()
            (claim,) = await asyncio.gather(claiming, return_exceptions=True)
            if not isinstance(claim, BaseException):
                claim.undo()
        await asyncio.sleep(0.1)
        assert isinstance(await two.claim(flight()), Lead)
