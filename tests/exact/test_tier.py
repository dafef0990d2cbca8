"""The tier finds, judges and keeps; a store in trouble makes it step aside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from entries import NOW, Clock, entry, key

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Hit, Miss, Question, carrying
from trivet.messages import ExactKey
from trivet.telemetry import EntryRejected, Event


class OddStore(MemoryStore):
    """Answers with what a test says: an entry for every key, an error, or late."""

    def __init__(self, given: Entry | StoreError | None = None, late: float = 0.0) -> None:
        super().__init__()
        self.given = given
        self.late = late
        self.refused = ""
        self.kept: list[Entry] = []
        self.deleted: list[ExactKey] = []

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        if isinstance(self.given, StoreError):
            raise self.given
        return self.given

    async def put(self, entry: Entry, bound: Bound) -> str:
        await asyncio.sleep(self.late)
        if isinstance(self.given, StoreError):
            raise self.given
        self.kept.append(entry)
        return self.refused

    async def delete(self, tenant: str, key: ExactKey) -> None:
        self.deleted.append(key)


def question(name: str = "a", tenant: str = "t1", **changes: Any) -> Question:
    asked = Question(tenant, key(name), f"request {name}".encode().ljust(50))
    return asked._replace(**changes)


def tier(store: MemoryStore, now: float = NOW) -> tuple[ExactTier, list[Event]]:
    events: list[Event] = []
    return ExactTier(store, events.append, Clock(now), patience_s=0.05), events


async def found(given: Entry, asked: Question, now: float) -> Hit | Miss:
    return await tier(OddStore(given), now)[0].find(asked)


class TestFind:
    async def test_a_fresh_entry_is_a_hit_with_its_age(self) -> None:
        assert await found(entry(), question(), NOW + 600) == Hit(entry(), 600, 3000)

    async def test_nothing_stored_is_a_miss_without_a_reason(self) -> None:
        assert await tier(OddStore())[0].find(question()) == Miss("", key("a"))

    async def test_a_store_in_trouble_is_a_miss_with_its_reason(self) -> None:
        asked, _ = tier(OddStore(StoreError("timeout")))
        assert await asked.find(question()) == Miss("store-timeout", key("a"))

    @pytest.mark.parametrize("changes", [{"canonical": b"another"}, {"tenant": "t2"}])
    async def test_an_entry_of_another_request_or_tenant_is_refused_and_counted(
        self, changes: dict[str, Any]
    ) -> None:
        asked, events = tier(OddStore(entry(**changes)))
        assert await asked.find(question()) == Miss("canonical", key("a"))
        assert events == [EntryRejected("memory", "canonical")]

    async def test_an_entry_ends_exactly_with_its_lifetime(self) -> None:
        assert isinstance(await found(entry(), question(), NOW + 3599.9), Hit)
        assert await found(entry(), question(), NOW + 3600) == Miss("expired", key("a"))

    async def test_a_policy_that_became_stricter_ends_an_entry_sooner(self) -> None:
        asked = question(fresh_for=60.0)
        assert await found(entry(), asked, NOW + 30) == Hit(entry(), 30, 30)
        assert await found(entry(), asked, NOW + 61) == Miss("expired", key("a"))

    async def test_a_policy_that_became_laxer_does_not_prolong_one(self) -> None:
        asked = question(fresh_for=7200.0, stale_for=7200.0)
        assert await found(entry(), asked, NOW + 3601) == Miss("expired", key("a"))

    async def test_an_answer_that_is_too_old_for_the_caller_is_a_miss_even_as_a_stand_in(
        self,
    ) -> None:
        kept = entry(stale_until=NOW + 7200)
        asked = question(max_age=600.0, stale_for=3600.0)
        assert isinstance(await found(kept, asked, NOW + 600), Hit)
        assert await found(kept, asked, NOW + 601) == Miss("max-age", key("a"))
        assert await found(kept, asked, NOW + 3700) == Miss("max-age", key("a"))

    async def test_an_answer_with_too_little_life_left_is_a_miss_even_as_a_stand_in(self) -> None:
        kept = entry(stale_until=NOW + 7200)
        asked = question(min_fresh=600.0, stale_for=3600.0)
        assert isinstance(await found(kept, asked, NOW + 3000), Hit)
        assert await found(kept, asked, NOW + 3001) == Miss("min-fresh", key("a"))
        assert await found(kept, asked, NOW + 3700) == Miss("min-fresh", key("a"))
        strict = question(fresh_for=700.0, min_fresh=600.0)
        assert await found(kept, strict, NOW + 101) == Miss("min-fresh", key("a"))

    async def test_an_expired_entry_may_stand_in_as_long_as_both_policies_say(self) -> None:
        kept = entry(stale_until=NOW + 7200)
        stale = Hit(kept, 3700, -100)
        assert await found(kept, question(stale_for=3600.0), NOW + 3700) == Miss(
            "expired", key("a"), stale
        )
        assert await found(kept, question(stale_for=50.0), NOW + 3700) == Miss("expired", key("a"))
        assert await found(kept, question(), NOW + 3700) == Miss("expired", key("a"))
        assert await found(kept, question(stale_for=9000.0), NOW + 7200) == Miss(
            "expired", key("a")
        )

    async def test_a_clock_that_went_back_gives_no_negative_age(self) -> None:
        assert await found(entry(), question(), NOW - 10) == Hit(entry(), 0, 3610)


class TestDraw:
    async def test_free_slots_are_filled_before_any_answer_is_drawn(self) -> None:
        store = MemoryStore(clock=Clock())
        asked, _ = tier(store)
        slots = [key(f"slot {number}") for number in range(3)]
        filled: set[ExactKey] = set()
        while len(filled) < len(slots):
            drawn = await asked.draw(question(), slots)
            assert isinstance(drawn, Miss)
            assert drawn.key not in filled
            filled.add(drawn.key)
            await store.put(entry(key=drawn.key), Bound())
        hits = [await asked.draw(question(), slots) for _ in range(60)]
        assert {hit.entry.key for hit in hits if isinstance(hit, Hit)} == set(slots)


class TestKeep:
    async def test_what_was_kept_says_nothing(self) -> None:
        store = OddStore()
        assert await tier(store)[0].keep(entry(), Bound()) == ""
        assert store.kept == [entry()]

    async def test_a_store_in_trouble_gives_its_reason(self) -> None:
        assert await tier(OddStore(StoreError("full")))[0].keep(entry(), Bound()) == "store-full"

    async def test_what_the_store_refuses_is_told_with_its_reason(self) -> None:
        store = OddStore()
        store.refused = "purged"
        assert await tier(store)[0].keep(entry(), Bound()) == "purged"

    async def test_a_slow_store_does_not_hold_the_caller_and_keeps_the_answer(self) -> None:
        store = OddStore(late=0.1)
        assert await tier(store)[0].keep(entry(), Bound()) == "store-slow"
        await asyncio.sleep(0.15)
        assert store.kept == [entry()]

    async def test_a_caller_who_leaves_does_not_undo_the_write(self) -> None:
        store = OddStore(late=0.02)
        keeping = asyncio.create_task(tier(store)[0].keep(entry(), Bound()))
        await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.sleep(0.05)
        assert store.kept == [entry()]

    @pytest.mark.parametrize("replaces", [False, True])
    async def test_what_it_takes_the_place_of_is_deleted_everywhere(self, replaces: bool) -> None:
        store = OddStore()
        assert await tier(store)[0].keep(entry(), Bound(), replaces=replaces) == ""
        assert store.deleted == [key("a")] * replaces
        assert store.kept == [entry()]


class TestCarrying:
    """F-tags: an answer is for those whose tags it carries, so that a purge by one reaches it."""

    def test_an_answer_that_carries_all_is_a_hit(self) -> None:
        hit = Hit(entry(labels=frozenset({"tag:a", "tag:b"})), 0, 60)
        assert carrying(hit, frozenset({"tag:a"})) == hit
        assert carrying(hit, frozenset()) == hit

    def test_one_that_lacks_a_tag_is_a_miss_that_says_what_it_carries(self) -> None:
        hit = Hit(entry(labels=frozenset({"tag:a"})), 0, 60)
        missed = carrying(hit, frozenset({"tag:b"}))
        assert missed == Miss("tags", key("a"), labels=frozenset({"tag:a"}))

    def test_a_stand_in_that_lacks_a_tag_is_none(self) -> None:
        stale = Hit(entry(labels=frozenset({"tag:a"})), 60, -1)
        missed = Miss("expired", key("a"), stale)
        assert carrying(missed, frozenset({"tag:a"})) == missed
        assert carrying(missed, frozenset({"tag:b"})) == Miss("expired", key("a"))

    def test_only_what_is_stored_and_passed_over_is_replaced(self) -> None:
        reasons = ("no-cache", "max-age", "min-fresh", "tags", "expired", "", "store-open")
        told = [Miss(reason, key("a")).replaces for reason in reasons]
        assert told == [True] * 4 + [False] * 3
