"""What closes the tier while it runs, who is told, and what outlives a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from parts import calibration, policy

from trivet.errors import StoreError
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.monitor import Monitor
from trivet.semantic.monitor_store import MOST, Changed, MemoryMonitorStore, Update
from trivet.semantic.tally import Cell, Counts
from trivet.telemetry import Event, SemanticAudit, SemanticState, StoreState

INFO = Intent.INFORMATIONAL
CHAT = "chat:m", str(INFO)


def opened(threshold: float = 0.8, **given: object) -> SemanticPolicy:
    made = policy(**given)
    made.attach(calibration(threshold))
    return made


OPEN = opened()


class Failing(MemoryMonitorStore):
    """Fails while it is told to; `after` means that it fails with the work done."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: str = ""

    async def add(self, batch: str, updates: Mapping[Cell, Update]) -> None:
        if self.fails == "before":
            raise StoreError("io")
        await super().add(batch, updates)
        if self.fails == "after":
            raise StoreError("timeout")

    async def add_once(self, name: str, cell: Cell, update: Update) -> bool:
        if self.fails == "before":
            raise StoreError("io")
        first = await super().add_once(name, cell, update)
        if self.fails == "after":
            raise StoreError("timeout")
        return first

    async def changes(self, cursor: int) -> Changed:
        if self.fails:
            raise StoreError("io")
        return await super().changes(cursor)

    def flush(self) -> None:
        super().__init__()


def states(told: list[Event]) -> list[tuple[str, str, bool, str]]:
    return [
        (event.tenant, event.intent, event.open, event.reason)
        for event in told
        if isinstance(event, SemanticState)
    ]


def judge(monitor: Monitor, *verdicts: bool, at: tuple[str, str] = CHAT, tenant: str = "t") -> None:
    for same in verdicts:
        monitor.observe(tenant, OPEN, at, same, "llm")


class TestClosing:
    def test_a_tier_that_was_not_audited_is_open(self) -> None:
        assert Monitor().closed("t", OPEN, INFO) == ""

    def test_false_hits_close_at_once_and_are_told_once(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        judge(monitor, *[False] * 6)
        assert monitor.closed("t", OPEN, INFO) == "bound"
        assert states(told) == [("t", "informational", False, "bound")]

    def test_another_tenant_and_another_intent_stay_open(self) -> None:
        monitor = Monitor()
        wide = opened(intents=(INFO, Intent.TIME))
        judge(monitor, *[True] * 400)
        for _ in range(10):
            monitor.observe("t", wide, ("chat:m", "time"), False, "llm")
        assert monitor.closed("t", wide, Intent.TIME) == "bound"
        assert monitor.closed("t", wide, INFO) == ""
        assert monitor.closed("u", wide, Intent.TIME) == ""

    def test_one_family_closes_its_intent_for_the_tenant(self) -> None:
        monitor = Monitor()
        judge(monitor, *[True] * 400)
        judge(monitor, *[False] * 10, at=("chat:other", str(INFO)))
        assert monitor.closed("t", OPEN, INFO) == "bound"

    def test_a_tenant_that_is_wrong_in_all_intents_together_is_closed_in_all(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        wide = opened(intents=(INFO, Intent.TIME, Intent.CREATIVE))
        for intent in ("time", "creative"):
            monitor.observe("t", wide, ("chat:m", intent), False, "llm")
        assert {monitor.closed("t", wide, intent) for intent in wide.intents} == {"bound"}
        assert len(states(told)) == 3

    def test_closed_stays_closed_whatever_comes_after(self) -> None:
        monitor = Monitor()
        judge(monitor, *[False] * 6, *[True] * 3000)
        assert monitor.closed("t", OPEN, INFO) == "bound"

    def test_another_calibration_opens_it_and_starts_the_counts_anew(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        judge(monitor, *[False] * 6)
        other = opened(0.9)
        assert monitor.closed("t", other, INFO) == ""
        assert monitor.counts("t", other) == {}
        assert states(told)[1:] == [("t", "informational", True, "calibration")]

    def test_the_old_calibration_finds_it_closed_again(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        judge(monitor, *[False] * 6)
        monitor.closed("t", opened(0.9), INFO)
        assert monitor.closed("t", opened(), INFO) == "bound"
        assert states(told)[2:] == [("t", "informational", False, "bound")]

    def test_a_late_audit_under_the_old_calibration_changes_nothing_for_the_new_one(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        other = opened(0.9)
        judge(monitor, *[False] * 6)
        monitor.closed("t", other, INFO)
        before = states(told)
        judge(monitor, False)
        assert monitor.closed("t", other, INFO) == ""
        assert states(told) == before

    async def test_reports_are_counted_apart_and_close(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        for _ in range(25):
            monitor.looked("t", OPEN, CHAT, True)
        for _ in range(5):
            monitor.reported("t", OPEN, "informational", True)
        assert monitor.counts("t", OPEN)["", "informational"] == Counts(reported=5)
        assert monitor.closed("t", OPEN, INFO) == "reports"
        assert [event.judge for event in told if isinstance(event, SemanticAudit)] == ["caller"] * 5

    def test_a_good_word_of_a_caller_counts_for_nothing(self) -> None:
        monitor = Monitor()
        monitor.reported("t", OPEN, "informational", False)
        assert monitor.counts("t", OPEN) == {}

    async def test_economics_are_weighed_in_the_background(self) -> None:
        monitor = Monitor()
        given = opened(economics={"call_cost": 0.01, "false_hit_cost": 1.0})
        for _ in range(100):
            monitor.looked("t", given, CHAT, True)
        assert monitor.closed("t", given, INFO) == ""
        await monitor.step()
        assert monitor.closed("t", given, INFO) == "economics"

    def test_each_judgement_is_told_with_the_bound_of_the_intent(self) -> None:
        told: list[Event] = []
        monitor = Monitor(observer=told.append)
        judge(monitor, True, True)
        first, second = (event for event in told if isinstance(event, SemanticAudit))
        assert (first.tenant, first.intent, first.judge, first.same) == (
            "t",
            "informational",
            "llm",
            True,
        )
        assert second.upper_bound < first.upper_bound < 1

    def test_callers_cannot_make_it_count_without_end(self) -> None:
        monitor = Monitor()
        for number in range(500):
            monitor.looked("t", OPEN, (f"chat:{number}", str(INFO)), False)
        counts = monitor.counts("t", OPEN)
        assert len(counts) == 65
        assert counts["other", str(INFO)].lookups == 500 - 64


class TestSharing:
    async def test_what_one_process_closed_is_closed_in_another(self) -> None:
        store, told = MemoryMonitorStore(), list[Event]()
        one, other = Monitor(store), Monitor(store, told.append)
        other.closed("t", OPEN, INFO)
        judge(one, *[False] * 6)
        await one.step()
        await other.step()
        assert other.closed("t", OPEN, INFO) == "bound"
        assert states(told) == [("t", "informational", False, "bound")]

    async def test_audits_of_two_processes_add_up_to_what_closes(self) -> None:
        store = MemoryMonitorStore()
        one, other = Monitor(store), Monitor(store)
        for monitor in (one, other):
            judge(monitor, False)
            await monitor.step()
        await one.step()
        assert one.counts("t", OPEN)[CHAT] == Counts(audits=2, false_hits=2)
        judge(one, False)
        assert one.closed("t", OPEN, INFO) == "bound"

    async def test_counts_are_not_added_twice(self) -> None:
        store = MemoryMonitorStore()
        one, other = Monitor(store), Monitor(store)
        judge(one, True, True)
        judge(other, True)
        for _ in range(3):
            await one.step()
            await other.step()
        assert one.counts("t", OPEN) == other.counts("t", OPEN) == {CHAT: Counts(audits=3)}

    async def test_a_restart_goes_on_where_it_was_and_tells_what_is_closed(self) -> None:
        store, told = MemoryMonitorStore(), list[Event]()
        first = Monitor(store)
        judge(first, *[False] * 6)
        await first.close()
        again = Monitor(store, told.append)
        assert again.closed("t", OPEN, INFO) == "starting"
        await again.step()
        assert again.closed("t", OPEN, INFO) == "bound"
        assert again.counts("t", OPEN)[CHAT] == Counts(audits=6, false_hits=6)
        assert states(told) == [("t", "informational", False, "bound")]

    async def test_what_an_older_calibration_closed_is_not_told_of_the_new_one(self) -> None:
        store, told = MemoryMonitorStore(), list[Event]()
        first = Monitor(store)
        judge(first, *[False] * 6)
        await first.close()
        again = Monitor(store, told.append)
        await again.step()
        assert again.closed("t", opened(0.9), INFO) == ""
        assert states(told) == []

    async def test_more_cells_than_one_batch_takes_are_all_written(self) -> None:
        store = MemoryMonitorStore()
        one, other = Monitor(store), Monitor(store)
        for number in range(2 * MOST + 7):
            one.looked(str(number), OPEN, CHAT, True)
        await one.step()
        await other.step()
        for number in range(2 * MOST + 7):
            assert other.counts(str(number), OPEN) == {CHAT: Counts(lookups=1, hits=1)}


class TestTrouble:
    @pytest.mark.parametrize("fails", ["before", "after"])
    async def test_counts_wait_for_a_store_in_trouble_and_are_added_once(self, fails: str) -> None:
        store = Failing()
        monitor = Monitor(store)
        await monitor.step()
        store.fails = fails
        judge(monitor, True)
        for _ in range(2):
            with pytest.raises(StoreError):
                await monitor.step()
        judge(monitor, True)
        assert monitor.counts("t", OPEN)[CHAT].audits == 2
        store.fails = ""
        await monitor.step()
        await monitor.step()
        reader = Monitor(store)
        await reader.step()
        assert reader.counts("t", OPEN)[CHAT] == monitor.counts("t", OPEN)[CHAT] == Counts(2)

    async def test_closing_goes_on_while_the_store_is_in_trouble(self) -> None:
        store = Failing()
        monitor = Monitor(store)
        await monitor.step()
        store.fails = "before"
        judge(monitor, *[False] * 6)
        assert monitor.closed("t", OPEN, INFO) == "bound"

    async def test_a_store_that_was_emptied_is_given_what_is_known(self) -> None:
        store = Failing()
        one, other = Monitor(store), Monitor(store)
        judge(one, *[False] * 6)
        for monitor in (one, other):
            await monitor.step()
        store.flush()
        for monitor in (one, other, one):
            await monitor.step()
        fresh = Monitor(store)
        await fresh.step()
        for monitor in (one, other, fresh):
            assert monitor.closed("t", OPEN, INFO) == "bound"
            assert monitor.counts("t", OPEN)[CHAT] == Counts(audits=6, false_hits=6)

    async def test_trouble_is_told_once_and_its_end_too(self) -> None:
        store, told = Failing(), list[Event]()
        monitor = Monitor(store, told.append, poll_s=0.001)
        store.fails = "before"
        monitor.start()
        try:
            await until(told, "down")
            store.fails = ""
            await until(told, "up")
        finally:
            await monitor.close()
        assert [event.state for event in told if isinstance(event, StoreState)] == ["down", "up"]

    async def test_closing_the_monitor_writes_what_is_left(self) -> None:
        store = MemoryMonitorStore()
        monitor = Monitor(store)
        monitor.start()
        judge(monitor, True)
        await monitor.close()
        reader = Monitor(store)
        await reader.step()
        assert reader.counts("t", OPEN)[CHAT] == Counts(audits=1)


class TestHearing:
    @staticmethod
    async def hear(monitor: Monitor, draw: str, same: bool = True) -> bool:
        return await monitor.hear("t", OPEN, CHAT, same, draw)

    @pytest.mark.parametrize("stored", [True, False])
    async def test_a_draw_counts_once_and_is_told_once(self, stored: bool) -> None:
        told: list[Event] = []
        monitor = Monitor(MemoryMonitorStore() if stored else None, told.append)
        assert [await self.hear(monitor, "one", same) for same in (False, False, True)] == [
            True,
            False,
            False,
        ]
        assert monitor.counts("t", OPEN)[CHAT] == Counts(audits=1, false_hits=1)
        (event,) = (one for one in told if isinstance(one, SemanticAudit))
        assert (event.tenant, event.intent, event.judge, event.same) == (
            "t",
            "informational",
            "person",
            False,
        )

    async def test_what_one_process_heard_another_and_the_next_do_not_count(self) -> None:
        store = MemoryMonitorStore()
        one, other = Monitor(store), Monitor(store)
        assert await self.hear(one, "a")
        assert not await self.hear(other, "a")
        assert await self.hear(other, "b")
        await one.close()
        again = Monitor(store)
        await again.step()
        assert not await self.hear(again, "b")
        assert again.counts("t", OPEN) == {CHAT: Counts(audits=2)}

    async def test_of_many_at_once_one_counts(self) -> None:
        store = MemoryMonitorStore()
        monitors = [Monitor(store) for _ in range(3)]
        heard = await asyncio.gather(*(self.hear(one, "a") for one in monitors * 5))
        assert heard.count(True) == 1
        await monitors[0].step()
        assert monitors[0].counts("t", OPEN)[CHAT] == Counts(audits=1)

    @pytest.mark.parametrize("stored", [True, False])
    async def test_false_hits_that_a_person_finds_close_at_once(self, stored: bool) -> None:
        monitor = Monitor(MemoryMonitorStore() if stored else None)
        await monitor.step()
        for number in range(6):
            await self.hear(monitor, str(number), False)
        assert monitor.closed("t", OPEN, INFO) == "bound"

    async def test_verdicts_and_other_counts_add_up_whatever_comes_between(self) -> None:
        store = MemoryMonitorStore()
        monitor, reader = Monitor(store), Monitor(store)
        for number in range(5):
            monitor.looked("t", OPEN, CHAT, True)
            judge(monitor, True)
            await asyncio.gather(self.hear(monitor, str(number)), monitor.step())
        expected = {CHAT: Counts(audits=10, lookups=5, hits=5)}
        assert monitor.counts("t", OPEN) == expected
        await reader.step()
        assert reader.counts("t", OPEN) == expected

    @pytest.mark.parametrize("fails", ["before", "after"])
    async def test_a_verdict_given_again_after_trouble_counts_once(self, fails: str) -> None:
        store = Failing()
        monitor = Monitor(store)
        await monitor.step()
        judge(monitor, True)
        store.fails = fails
        for _ in range(2):
            with pytest.raises(StoreError):
                await self.hear(monitor, "a")
        store.fails = ""
        await self.hear(monitor, "a")
        await monitor.step()
        reader = Monitor(store)
        await reader.step()
        assert monitor.counts("t", OPEN) == reader.counts("t", OPEN) == {CHAT: Counts(audits=2)}

    async def test_the_book_is_the_stores_and_another_one_once_it_was_emptied(self) -> None:
        store = Failing()
        one, other = Monitor(store), Monitor(store)
        assert one.book == ""
        for monitor in (one, other):
            await monitor.step()
        before = one.book
        assert before == other.book != ""
        store.flush()
        await one.step()
        assert one.book not in ("", before)

    def test_without_a_store_each_process_has_a_book_of_its_own(self) -> None:
        assert Monitor().book != Monitor().book


async def until(told: list[Event], state: str) -> None:
    async with asyncio.timeout(5):
        while not any(isinstance(one, StoreState) and one.state == state for one in told):
            await asyncio.sleep(0.001)
