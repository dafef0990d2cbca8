"""Single flight in one process, and its contract with a fleet."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.errors import UpstreamError
from trivet.exact.collapse import Collapser, Ticket
from trivet.exact.fleet import ALONE, Claim, Lead, Remote
from trivet.exact.flight import Failed, Flight, Head, Unstored
from trivet.messages import ExactKey
from trivet.telemetry import Event, ignore

KEY = ExactKey(b"k" * 32)
HEAD = Head(200, (), True)
DONE = Unstored("test")


class Upstream:
    """An upstream that answers when it is told to, and counts its calls."""

    def __init__(self, status: int = 200, chunks: int = 3) -> None:
        self.calls = 0
        self.ended = 0
        self.status = status
        self.chunks = chunks
        self.go = asyncio.Event()
        self.error: BaseException | None = None

    async def lead(self, flight: Flight) -> None:
        self.calls += 1
        try:
            await self.go.wait()
            if self.error is not None:
                raise self.error
            flight.start(Head(self.status, (), True))
            for number in range(self.chunks):
                await flight.push(b"%d" % number)
                await asyncio.sleep(0)
            flight.finish(DONE)
        finally:
            self.ended += 1


class Seen:
    """An observer that counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        self.counts[f"{getattr(event, 'kind', '')} {getattr(event, 'where', '')}"] += 1


def make(fleet: Any = None, observer: Any = ignore, keep_bytes: int = 1 << 20) -> Collapser:
    return Collapser(fleet, observer, keep_bytes=keep_bytes, window=1 << 20)


async def body(ticket: Ticket) -> bytes:
    try:
        return b"".join([chunk async for chunk in ticket.subscription])
    finally:
        ticket.subscription.leave()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def nothing_is_left(collapser: Collapser) -> None:
    await settle()
    assert collapser.flights == 0
    assert not collapser._board
    assert not collapser._gates
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_thousand_requests_make_one_call() -> None:
    seen, upstream = Seen(), Upstream()
    collapser = make(observer=seen)
    tickets = [await collapser.join(KEY, "t", upstream.lead) for _ in range(1000)]
    assert Counter(ticket.role for ticket in tickets) == {"lead": 1, "follow": 999}
    upstream.go.set()
    assert set(await asyncio.gather(*map(body, tickets))) == {b"012"}
    assert upstream.calls == 1
    assert seen.counts == {"lead process": 1, "follow process": 999}
    await nothing_is_left(collapser)


async def test_what_is_asked_after_a_purge_joins_no_call_from_before_it() -> None:
    marks = {"t": b""}
    before, after = Upstream(), Upstream()
    collapser = make()
    collapser.purged = marks.__getitem__
    first = await collapser.join(KEY, "t", before.lead)
    marks["t"] = b"purged"
    second = await collapser.join(KEY, "t", after.lead)
    third = await collapser.join(KEY, "t", after.lead)
    assert [one.role for one in (first, second, third)] == ["lead", "lead", "follow"]
    before.go.set()
    after.go.set()
    await asyncio.gather(*map(body, (first, second, third)))
    assert (before.calls, after.calls) == (1, 1)
    await nothing_is_left(collapser)


async def test_a_late_joiner_gets_the_stream_from_its_first_byte() -> None:
    upstream = Upstream(chunks=50)
    collapser = make()
    first = await collapser.join(KEY, "t", upstream.lead)
    upstream.go.set()
    for _ in range(20):
        await first.subscription.__anext__()
    late = await collapser.join(KEY, "t", upstream.lead)
    assert late.role == "follow"
    assert await body(late) == b"".join(b"%d" % number for number in range(50))
    first.subscription.leave()
    await nothing_is_left(collapser)


async def test_other_keys_and_other_tenants_never_share() -> None:
    upstream = Upstream()
    collapser = make()
    tickets = [
        await collapser.join(ExactKey(key * 32), tenant, upstream.lead)
        for key in (b"a", b"b")
        for tenant in ("t", "u")
    ]
    assert [ticket.role for ticket in tickets] == ["lead"] * 4
    upstream.go.set()
    await asyncio.gather(*map(body, tickets))
    assert upstream.calls == 4
    await nothing_is_left(collapser)


async def test_a_successor_of_another_tenant_is_not_followed() -> None:
    upstream = Upstream()
    collapser = make()
    failed = await collapser.join(KEY, "t", upstream.lead)
    elected = await collapser.join(KEY, "t", upstream.lead, attempt=1, after=failed.subscription)
    other = await collapser.join(KEY, "u", upstream.lead, attempt=1, after=failed.subscription)
    assert other.role == "lead"
    upstream.go.set()
    await asyncio.gather(*map(body, (failed, elected, other)))
    assert upstream.calls == 3


async def test_the_call_goes_on_when_the_leaders_client_leaves() -> None:
    upstream = Upstream()
    collapser = make()
    leader = await collapser.join(KEY, "t", upstream.lead)
    follower = await collapser.join(KEY, "t", upstream.lead)
    leader.subscription.leave()
    await settle()
    upstream.go.set()
    assert await body(follower) == b"012"
    assert upstream.calls == 1
    await nothing_is_left(collapser)


async def test_a_call_that_nobody_waits_for_is_cancelled() -> None:
    seen, upstream = Seen(), Upstream()
    collapser = make(observer=seen)
    tickets = [await collapser.join(KEY, "t", upstream.lead) for _ in range(3)]
    await settle()
    for ticket in tickets:
        ticket.subscription.leave()
    result = await tickets[0].subscription.result()
    assert isinstance(result, Failed)
    assert result.error.reason == "abandoned"
    await nothing_is_left(collapser)
    assert (upstream.calls, upstream.ended) == (1, 1)
    assert seen.counts["abandoned process"] == 1


async def test_a_newcomer_never_joins_an_abandoned_flight() -> None:
    upstream = Upstream()
    collapser = make()
    gone = await collapser.join(KEY, "t", upstream.lead)
    await settle()
    gone.subscription.leave()
    newcomer = await collapser.join(KEY, "t", upstream.lead)
    assert newcomer.role == "lead"
    upstream.go.set()
    assert await body(newcomer) == b"012"
    await nothing_is_left(collapser)


async def test_a_finished_flight_is_off_the_board_while_its_task_cleans_up() -> None:
    upstream, cleaning = Upstream(), asyncio.Event()

    async def lead(flight: Flight) -> None:
        await upstream.lead(flight)
        await cleaning.wait()

    upstream.go.set()
    collapser = make()
    first = await collapser.join(KEY, "t", lead)
    assert await body(first) == b"012"
    second = await collapser.join(KEY, "t", lead)
    assert second.role == "lead"
    cleaning.set()
    assert await body(second) == b"012"
    await nothing_is_left(collapser)


async def test_a_leader_that_returns_without_an_answer_fails_the_flight() -> None:
    async def lead(flight: Flight) -> None:
        flight.start(HEAD)
        await flight.push(b"half")

    collapser = make()
    ticket = await collapser.join(KEY, "t", lead)
    assert await ticket.subscription.__anext__() == b"half"
    with pytest.raises(UpstreamError) as caught:
        await ticket.subscription.__anext__()
    assert caught.value.reason == "no-answer"
    ticket.subscription.leave()
    await nothing_is_left(collapser)


async def test_an_upstream_error_reaches_all_as_itself() -> None:
    upstream = Upstream()
    upstream.error = UpstreamError("connect", "Connection refused.", 502)
    collapser = make()
    tickets = [await collapser.join(KEY, "t", upstream.lead) for _ in range(3)]
    upstream.go.set()
    for ticket in tickets:
        head = await ticket.subscription.head()
        assert isinstance(head, Failed)
        assert (head.error.reason, head.error.status) == ("connect", 502)
        ticket.subscription.leave()
    await nothing_is_left(collapser)


async def test_a_leader_that_breaks_down_is_reported_and_nobody_hangs() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))
    upstream = Upstream()
    upstream.error = ValueError("a bug")
    upstream.go.set()
    collapser = make()
    ticket = await collapser.join(KEY, "t", upstream.lead)
    head = await ticket.subscription.head()
    assert isinstance(head, Failed)
    assert (head.error.reason, head.error.status) == ("internal", 500)
    ticket.subscription.leave()
    await nothing_is_left(collapser)
    assert [report["exception"] for report in reports] == [upstream.error]


async def test_a_thousand_rejoiners_elect_exactly_one() -> None:
    seen, failing, working = Seen(), Upstream(status=500), Upstream()
    collapser = make(observer=seen)
    tickets = [await collapser.join(KEY, "t", failing.lead) for _ in range(1000)]

    async def again(number: int, ticket: Ticket) -> tuple[str, bytes]:
        head = await ticket.subscription.head()
        assert isinstance(head, Head)
        assert head.status == 500
        for _ in range(number % 7):
            await asyncio.sleep(0)
        joined = await collapser.join(KEY, "t", working.lead, attempt=1, after=ticket.subscription)
        ticket.subscription.leave()
        return joined.role, await body(joined)

    rejoining = [asyncio.create_task(again(*pair)) for pair in enumerate(tickets)]
    failing.go.set()
    await settle()
    working.go.set()
    got = await asyncio.gather(*rejoining)
    assert Counter(got) == {("lead", b"012"): 1, ("follow", b"012"): 999}
    assert (failing.calls, working.calls) == (1, 1)
    assert seen.counts["reelect process"] == 1
    await nothing_is_left(collapser)


async def test_a_rejoiner_that_comes_after_the_second_flight_gets_its_answer() -> None:
    failing, working = Upstream(status=500), Upstream()
    failing.go.set()
    working.go.set()
    collapser = make()
    first = await collapser.join(KEY, "t", failing.lead)
    late = await collapser.join(KEY, "t", failing.lead)
    elected = await collapser.join(KEY, "t", working.lead, attempt=1, after=first.subscription)
    assert await body(elected) == b"012"
    await settle()
    joined = await collapser.join(KEY, "t", working.lead, attempt=1, after=late.subscription)
    assert joined.role == "follow"
    assert await body(joined) == b"012"
    assert working.calls == 1
    first.subscription.leave()
    late.subscription.leave()
    await nothing_is_left(collapser)


async def test_a_rejoiner_never_follows_the_flight_that_failed() -> None:
    upstream = Upstream(status=500)
    collapser = make()
    first = await collapser.join(KEY, "t", upstream.lead, attempt=1)
    second = await collapser.join(KEY, "t", upstream.lead, attempt=1, after=first.subscription)
    assert second.role == "lead"
    assert second.subscription.flight is not first.subscription.flight
    upstream.go.set()
    await asyncio.gather(body(first), body(second))
    await nothing_is_left(collapser)


async def test_newcomers_start_afresh_after_a_failure() -> None:
    upstream = Upstream(status=500)
    upstream.go.set()
    collapser = make()
    assert await body(await collapser.join(KEY, "t", upstream.lead)) == b"012"
    newcomer = await collapser.join(KEY, "t", upstream.lead)
    assert newcomer.role == "lead"
    await body(newcomer)


async def test_an_overflown_flight_takes_no_more_followers_and_the_next_leads() -> None:
    upstream = Upstream(chunks=100)
    upstream.go.set()
    collapser = make(keep_bytes=10)
    first = await collapser.join(KEY, "t", upstream.lead)
    for _ in range(20):
        await first.subscription.__anext__()
    second = await collapser.join(KEY, "t", upstream.lead)
    assert second.role == "lead"
    whole = b"".join(b"%d" % number for number in range(100))
    rest, again = await asyncio.gather(body(first), body(second))
    assert (rest, again) == (whole[30:], whole)
    await nothing_is_left(collapser)


async def test_two_own_calls_of_one_key_at_a_time() -> None:
    collapser, now, most = make(), 0, 0

    async def call(key: ExactKey) -> None:
        nonlocal now, most
        async with collapser.own_call(key):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(call(KEY) for _ in range(50)))
    assert most == 2
    calls = [asyncio.create_task(call(KEY)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in calls:
        task.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await nothing_is_left(collapser)


async def test_closing_waits_for_flights_then_cancels_them() -> None:
    quick, stuck = Upstream(), Upstream()
    quick.go.set()
    collapser = make()
    first = await collapser.join(KEY, "t", quick.lead)
    second = await collapser.join(ExactKey(b"s" * 32), "t", stuck.lead)
    await collapser.close(limit_s=0.02)
    assert await body(first) == b"012"
    head = await second.subscription.head()
    assert isinstance(head, Failed)
    assert (head.error.reason, head.error.status) == ("cancelled", 503)
    await nothing_is_left(collapser)


class FakeFleet:
    """A fleet whose answer is set by the test."""

    where: Literal["machine", "fleet"] = "machine"

    def __init__(self, claim: Claim | None = None) -> None:
        self.answer: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        if claim is not None:
            self.answer.set_result(claim)
        self.cancelled = 0
        self.undone = 0

    def undo(self) -> None:
        self.undone += 1

    async def claim(self, flight: Flight) -> Claim:
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def replay(flight: Flight) -> None:
    flight.start(HEAD)
    await flight.push(b"remote")
    flight.finish(DONE)


async def test_a_flight_of_another_process_is_followed_without_a_call() -> None:
    fleet, seen, upstream = FakeFleet(), Seen(), Upstream()
    fleet.answer.set_result(Remote(replay, fleet.undo))
    collapser = make(fleet, seen)
    tickets = await asyncio.gather(*(collapser.join(KEY, "t", upstream.lead) for _ in range(3)))
    assert [ticket.role for ticket in tickets] == ["follow"] * 3
    assert set(await asyncio.gather(*map(body, tickets))) == {b"remote"}
    assert upstream.calls == 0
    assert seen.counts == {"follow machine": 1, "follow process": 2}
    await nothing_is_left(collapser)
    assert fleet.undone == 1


async def test_the_claim_is_freed_when_the_flight_finishes_overflows_or_is_abandoned() -> None:
    for chunks, keep_bytes, leaves in ((3, 100, False), (3, 1, False), (3, 100, True)):
        fleet, upstream = FakeFleet(), Upstream(chunks=chunks)
        fleet.answer.set_result(Lead(fleet.undo))
        collapser = make(fleet, keep_bytes=keep_bytes)
        ticket = await collapser.join(KEY, "t", upstream.lead)
        assert ticket.role == "lead"
        assert fleet.undone == 0
        if leaves:
            ticket.subscription.leave()
        else:
            upstream.go.set()
            await body(ticket)
        assert fleet.undone >= 1
        await nothing_is_left(collapser)


async def test_a_joiner_that_is_cancelled_during_the_claim_leaves_nothing_behind() -> None:
    fleet, upstream = FakeFleet(), Upstream()
    collapser = make(fleet)
    joining = asyncio.create_task(collapser.join(KEY, "t", upstream.lead))
    await settle()
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    await nothing_is_left(collapser)
    assert (fleet.cancelled, upstream.calls) == (1, 0)


async def test_a_claim_serves_those_who_came_meanwhile_though_the_first_is_gone() -> None:
    fleet, upstream = FakeFleet(), Upstream()
    collapser = make(fleet)
    joining = asyncio.create_task(collapser.join(KEY, "t", upstream.lead))
    await settle()
    follower = await collapser.join(KEY, "t", upstream.lead)
    joining.cancel()
    await settle()
    fleet.answer.set_result(ALONE)
    upstream.go.set()
    assert await body(follower) == b"012"
    await nothing_is_left(collapser)


async def test_closing_during_a_claim_leaves_no_joiner_waiting() -> None:
    fleet, upstream = FakeFleet(), Upstream()
    collapser = make(fleet)
    joining = asyncio.create_task(collapser.join(KEY, "t", upstream.lead))
    await settle()
    await collapser.close(limit_s=0)
    ticket = await joining
    assert isinstance(await ticket.subscription.head(), Failed)
    ticket.subscription.leave()
    await nothing_is_left(collapser)


async def ask_as_the_pipeline_does(collapser: Collapser, upstream: Upstream, start: int) -> bytes:
    for _ in range(start):
        await asyncio.sleep(0)
    ticket = await collapser.join(KEY, "t", upstream.lead)
    try:
        head = await ticket.subscription.head()
        usable = isinstance(head, Head) and head.status == 200
        if ticket.role == "follow" and not usable:
            old = ticket
            ticket = await collapser.join(
                KEY, "t", upstream.lead, attempt=1, after=old.subscription
            )
            old.subscription.leave()
        return b"".join([chunk async for chunk in ticket.subscription])
    finally:
        ticket.subscription.leave()


@settings(max_examples=300, deadline=None)
@given(
    cancels=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 25)), max_size=8),
    starts=st.lists(st.integers(0, 12), min_size=6, max_size=6),
    chunks=st.integers(0, 4),
    fails=st.booleans(),
    fleet=st.sampled_from(["none", "lead", "remote"]),
)
def test_cancelled_anywhere_nothing_is_left_and_the_others_get_their_answer(
    cancels: list[tuple[int, int]], starts: list[int], chunks: int, fails: bool, fleet: str
) -> None:
    async def remote(flight: Flight) -> None:
        flight.start(Head(500 if fails else 200, (), True))
        for number in range(chunks):
            await flight.push(b"%d" % number)
            await asyncio.sleep(0)
        flight.finish(DONE)

    async def scenario() -> None:
        upstream = Upstream(status=500 if fails else 200, chunks=chunks)
        upstream.go.set()
        claims: dict[str, Claim] = {"lead": ALONE, "remote": Remote(remote, lambda: None)}
        collapser = make(FakeFleet(claims[fleet]) if fleet != "none" else None)
        tasks = [
            asyncio.create_task(ask_as_the_pipeline_does(collapser, upstream, start))
            for start in starts
        ]
        for tick in range(30):
            for index in (index for index, when in cancels if when == tick):
                tasks[index].cancel()
            await asyncio.sleep(0)
        got = await asyncio.gather(*tasks, return_exceptions=True)
        whole = b"".join(b"%d" % number for number in range(chunks))
        may_be_cancelled = {index for index, _ in cancels}
        for index, answer in enumerate(got):
            cancelled = isinstance(answer, asyncio.CancelledError) and index in may_be_cancelled
            assert cancelled or answer == whole
        await nothing_is_left(collapser)

    asyncio.run(scenario())


async def test_a_finished_flight_is_not_kept_in_memory() -> None:
    upstream = Upstream()
    upstream.go.set()
    collapser = make()
    ticket = await collapser.join(KEY, "t", upstream.lead)
    flight = weakref.ref(ticket.subscription.flight)
    await body(ticket)
    del ticket
    await settle()
    gc.collect()
    assert flight() is None
