"""What every store has to do; each store's own test module runs it."""

from __future__ import annotations

import asyncio

from entries import NOW, Clock, entry, key

from trivet.exact.purges import SharedStore, key_label
from trivet.exact.store import Bound, ExactStore

FREE = Bound()


async def held(store: ExactStore, *names: str, tenant: str = "t1") -> list[str]:
    """Those of the named entries that the tenant finds."""
    return [name for name in names if await store.get(tenant, key(name)) is not None]


class StoreContract:
    """The contract of `ExactStore`; `store` and `clock` are fixtures of the subclass."""

    async def test_what_was_put_is_returned_whole(self, store: ExactStore) -> None:
        made = entry("a", labels=frozenset({"tag:x", "version:p=1"}), stale_until=NOW + 7200)
        await store.put(made, FREE)
        found = await store.get("t1", made.key)
        assert found == made

    async def test_a_name_that_was_never_put_is_a_miss(self, store: ExactStore) -> None:
        assert await store.get("t1", key("a")) is None

    async def test_a_tenant_never_gets_what_another_put_under_the_same_key(
        self, store: ExactStore
    ) -> None:
        await store.put(entry("a", "t1", body=b"one"), FREE)
        assert await store.get("t2", key("a")) is None
        await store.put(entry("a", "t2", body=b"two"), FREE)
        one, two = await asyncio.gather(store.get("t1", key("a")), store.get("t2", key("a")))
        assert one is not None
        assert two is not None
        assert (one.body, two.body) == (b"one", b"two")

    async def test_a_later_entry_replaces_an_earlier_one(self, store: ExactStore) -> None:
        await store.put(entry("a", labels=frozenset({"tag:old"})), FREE)
        await store.put(entry("a", body=b"new", labels=frozenset({"tag:new"})), FREE)
        found = await store.get("t1", key("a"))
        assert found is not None
        assert found.body == b"new"
        assert await store.purge("t1", "tag:old", NOW) == 0
        usage = await store.usage("t1")
        assert (usage.entries, usage.bytes) == (1, found.size)

    async def test_an_expired_entry_is_returned_until_it_is_too_stale(
        self, store: ExactStore, clock: Clock
    ) -> None:
        await store.put(entry("a", expires=NOW + 10, stale_until=NOW + 100), FREE)
        clock.now = NOW + 99
        assert await held(store, "a") == ["a"]
        clock.now = NOW + 100
        assert await held(store, "a") == []

    async def test_an_entry_that_is_stale_already_is_not_kept(self, store: ExactStore) -> None:
        await store.put(entry("a", expires=NOW - 1, stale_until=NOW), FREE)
        assert await held(store, "a") == []

    async def test_a_deleted_entry_is_gone_and_may_come_again(self, store: ExactStore) -> None:
        await store.put(entry("a"), FREE)
        await store.put(entry("b"), FREE)
        await store.delete("t1", key("a"))
        await store.delete("t1", key("never"))
        await store.delete("t2", key("b"))
        assert await held(store, "a", "b") == ["b"]
        await store.put(entry("a"), FREE)
        assert await held(store, "a", "b") == ["a", "b"]

    async def test_a_purge_takes_the_tenants_entries_and_no_other(self, store: ExactStore) -> None:
        for name in ("a", "b"):
            await store.put(entry(name, "t1"), FREE)
            await store.put(entry(name, "t2"), FREE)
        assert await store.purge("t1", None, NOW) == 2
        assert await held(store, "a", "b") == []
        assert await held(store, "a", "b", tenant="t2") == ["a", "b"]
        assert (await store.usage("t1")).entries == 0

    async def test_a_purge_by_label_takes_the_entries_with_the_label(
        self, store: ExactStore
    ) -> None:
        await store.put(entry("a", labels=frozenset({"tag:x", "tag:y"})), FREE)
        await store.put(entry("b", labels=frozenset({"tag:y"})), FREE)
        await store.put(entry("c", labels=frozenset({"tag:x"}), tenant="t2"), FREE)
        assert await store.purge("t1", "tag:x", NOW) == 1
        assert await held(store, "a", "b") == ["b"]
        assert await held(store, "c", tenant="t2") == ["c"]

    async def test_a_purge_spares_what_was_created_after_it(self, store: ExactStore) -> None:
        await store.put(entry("old", created=NOW), FREE)
        await store.put(entry("new", created=NOW + 0.001), FREE)
        assert await store.purge("t1", None, NOW) == 1
        assert await held(store, "old", "new") == ["new"]

    async def test_an_entry_created_before_a_purge_is_not_kept_after_it(
        self, store: ExactStore
    ) -> None:
        await store.purge("t1", None, NOW)
        await store.put(entry("late", created=NOW), FREE)
        await store.put(entry("fresh", created=NOW + 0.5), FREE)
        await store.put(entry("late", "t2", created=NOW), FREE)
        assert await held(store, "late", "fresh") == ["fresh"]
        assert await held(store, "late", tenant="t2") == ["late"]

    async def test_a_put_says_whether_it_stored_and_why_not(self, store: ExactStore) -> None:
        assert await store.put(entry("a"), FREE) == ""
        assert await store.put(entry("big"), Bound(bytes=10)) == "too-large"
        assert await store.put(entry("old", expires=NOW - 1, stale_until=NOW), FREE) == "expired"
        await store.purge("t1", "tag:x", NOW)
        late = entry("late", labels=frozenset({"tag:x"}))
        assert await store.put(late, FREE) == "purged"
        assert await store.put(entry("b"), FREE) == ""
        assert await held(store, "a", "big", "old", "late", "b") == ["a", "b"]

    async def test_an_entry_created_before_a_purge_of_its_label_is_not_kept_after_it(
        self, store: ExactStore
    ) -> None:
        await store.purge("t1", "tag:x", NOW)
        await store.purge("t1", "tag:x", NOW - 50)
        await store.put(entry("late", labels=frozenset({"tag:w", "tag:x"})), FREE)
        await store.put(entry("other", labels=frozenset({"tag:w"})), FREE)
        assert await held(store, "late", "other") == ["other"]

    async def test_an_entry_created_before_a_purge_of_its_key_is_not_kept_after_it(
        self, store: ExactStore
    ) -> None:
        await store.put(entry("late"), FREE)
        await store.purge("t1", key_label(key("late")), NOW)
        await store.delete("t1", key("late"))
        await store.put(entry("late"), FREE)
        await store.put(entry("other"), FREE)
        assert await held(store, "late", "other") == ["other"]
        await store.put(entry("late", created=NOW + 1), FREE)
        assert await held(store, "late", "other") == ["late", "other"]

    async def test_a_tenant_keeps_at_most_its_entries_and_the_newest_is_kept(
        self, store: ExactStore, clock: Clock
    ) -> None:
        for step, name in enumerate("abcde"):
            clock.now = NOW + step
            await store.put(entry(name), Bound(entries=2))
        assert await held(store, *"abcde") == ["d", "e"]
        assert (await store.usage("t1")).entries == 2

    async def test_a_tenant_keeps_at_most_its_bytes(self, store: ExactStore, clock: Clock) -> None:
        size = entry().size
        for step, name in enumerate("abcd"):
            clock.now = NOW + step
            await store.put(entry(name), Bound(bytes=2 * size + 10))
        usage = await store.usage("t1")
        assert (usage.entries, usage.bytes) == (2, 2 * size)

    async def test_an_entry_too_large_for_its_tenant_is_not_kept(self, store: ExactStore) -> None:
        await store.put(entry("small"), Bound(bytes=2000))
        await store.put(entry("large", body=b"x" * 3000), Bound(bytes=2000))
        assert await held(store, "small", "large") == ["small"]

    async def test_a_tenant_that_may_keep_nothing_keeps_nothing(self, store: ExactStore) -> None:
        await store.put(entry("a"), Bound(entries=0))
        await store.put(entry("b"), Bound(bytes=0))
        assert await held(store, "a", "b") == []

    async def test_a_tenants_bound_evicts_nothing_of_another(
        self, store: ExactStore, clock: Clock
    ) -> None:
        await store.put(entry("a", "t2"), FREE)
        for step, name in enumerate("abc"):
            clock.now = NOW + step
            await store.put(entry(name, "t1"), Bound(entries=1))
        assert await held(store, "a", tenant="t2") == ["a"]

    async def test_usage_counts_in_all_only_what_is_held(self, store: ExactStore) -> None:
        await store.put(entry("a"), FREE)
        assert (await store.usage("t2")).entries == 0
        usage = await store.usage("t1")
        assert (usage.entries, usage.bytes) == (1, entry("a").size)

    async def test_a_large_entry_comes_back_whole(self, store: ExactStore) -> None:
        made = entry("a", canonical=b"q" * 300_000, body=bytes(range(256)) * 2000)
        await store.put(made, FREE)
        assert await store.get("t1", made.key) == made

    async def test_closing_twice_is_fine(self, store: ExactStore) -> None:
        await store.put(entry("a"), FREE)
        await store.close()
        await store.close()


class SharedContract(StoreContract):
    """The contract of `SharedStore` on top."""

    async def test_the_feed_tells_purges_and_deletes_since_a_cursor(
        self, store: SharedStore
    ) -> None:
        start = await store.changes(0)
        assert start.purges == ()
        await store.purge("t1", None, NOW)
        first = await store.changes(0)
        await store.purge("t1", "tag:x", NOW + 1)
        await store.delete("t2", key("a"))
        second = await store.changes(first.cursor)
        assert second.purges is not None
        assert [(p.tenant, p.label, p.key) for p in second.purges] == [
            ("t1", "tag:x", None),
            ("t2", None, key("a")),
        ]
        assert second.purges[0].at == NOW + 1
        assert (await store.changes(second.cursor)).purges == ()

    async def test_a_reader_that_is_further_on_than_the_feed_is_told_to_forget_everything(
        self, store: SharedStore
    ) -> None:
        await store.purge("t1", None, NOW)
        assert (await store.changes(10**15)).purges is None
