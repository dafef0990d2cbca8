from __future__ import annotations

import pytest
from prefix_builders import SIZE, admitted, cached, chain, prompt, warmed

from trivet.errors import OutOfBlocks
from trivet.prefix.pool.blocks import BlockPool, PoolState
from trivet.prefix.pool.free_queue import FreeBlockQueue
from trivet.prefix.pool.hashing import pack
from trivet.prefix.pool.shares import MAX_TENANTS, OTHERS, PLATFORM, Share, Shares


def pool_of(capacity: int, **tenants: Share) -> BlockPool:
    return BlockPool(capacity, SIZE, shares=Shares(tenants))


def test_without_bounds_the_oldest_prefix_goes_whoever_has_it() -> None:
    pool = pool_of(6)
    warmed(pool, prompt(2), "acme")
    for first in (500, 600, 700):
        warmed(pool, prompt(2, first=first), "flood")
    assert cached(pool, prompt(2), "acme") == 0


def test_a_flood_of_another_tenant_leaves_the_floor() -> None:
    pool = pool_of(6, acme=Share(floor=2))
    warmed(pool, prompt(2), "acme")
    for first in range(500, 900, 100):
        warmed(pool, prompt(2, first=first), "flood")
    assert cached(pool, prompt(2), "acme") == 2 * SIZE


def test_what_is_above_the_floor_goes_oldest_first() -> None:
    pool = pool_of(6, acme=Share(floor=2))
    warmed(pool, prompt(3), "acme")
    warmed(pool, prompt(3, first=500), "flood")
    assert cached(pool, prompt(3), "acme") == 2 * SIZE


def test_blocks_in_use_count_to_the_floor() -> None:
    pool = pool_of(6, acme=Share(floor=2))
    warmed(pool, prompt(2), "acme")
    admitted(pool, prompt(1, first=500), "acme")
    warmed(pool, prompt(1, first=600), "flood")
    assert cached(pool, prompt(2), "acme") == 2 * SIZE
    warmed(pool, prompt(3, first=700), "flood")
    assert cached(pool, prompt(2), "acme") == 0


def test_a_tenant_evicts_its_own_prefixes_under_its_floor() -> None:
    pool = pool_of(4, acme=Share(floor=3))
    warmed(pool, prompt(2), "acme")
    warmed(pool, prompt(3, first=500), "acme")
    assert cached(pool, prompt(2), "acme") == 0
    pool.check_integrity()


def test_a_request_waits_where_only_floors_have_blocks() -> None:
    pool = pool_of(6, acme=Share(floor=2))
    warmed(pool, prompt(2), "acme")
    admitted(pool, prompt(2, first=500), "other")
    assert pool.admit(chain(prompt(1, first=600), "other-salt"), "other") is None
    pool.check_integrity()


def test_what_never_fits_beside_the_floors_is_told_at_once() -> None:
    pool = pool_of(6, acme=Share(floor=2))
    with pytest.raises(OutOfBlocks, match="can have 4"):
        pool.admit(chain(prompt(4), "other-salt"), "other")
    assert (pool.ceiling("other"), pool.ceiling("acme")) == (4, 6)


def test_a_tenant_at_its_quota_evicts_its_own_oldest_and_nobody_elses() -> None:
    pool = pool_of(12, flood=Share(quota=4))
    warmed(pool, prompt(2), "acme")
    warmed(pool, prompt(2, first=500), "flood")
    warmed(pool, prompt(2, first=600), "flood")
    assert cached(pool, prompt(2), "acme") == 2 * SIZE
    assert cached(pool, prompt(2, first=600), "flood") == 2 * SIZE
    assert cached(pool, prompt(2, first=500), "flood") == SIZE
    assert pool.counters()["flood"].evictions == 1
    assert pool.state().blank == 7


def test_a_tenant_whose_quota_is_in_use_waits() -> None:
    pool = pool_of(12, flood=Share(quota=4))
    running = admitted(pool, prompt(2), "flood")
    assert pool.admit(chain(prompt(1), "flood-salt"), "flood") is None
    assert not pool.append(running, [*range(8)])
    with pytest.raises(OutOfBlocks, match="can have 4"):
        pool.admit(chain(prompt(4), "flood-salt"), "flood")
    pool.check_integrity()


def test_what_a_tenant_reuses_makes_no_room_within_its_quota() -> None:
    pool = pool_of(12, acme=Share(quota=4))
    warmed(pool, prompt(3), "acme")
    admitted(pool, [1, 2], "acme")
    assert pool.admit(chain(prompt(3), "acme-salt"), "acme") is None
    pool.check_integrity()


def test_shared_blocks_count_once_to_a_quota() -> None:
    pool = pool_of(12, acme=Share(quota=5))
    first = admitted(pool, prompt(3), "acme")
    pool.commit(first, 13)
    assert admitted(pool, prompt(3), "acme").cached_tokens == 3 * SIZE
    assert pool.admit(chain(prompt(3), "acme-salt"), "acme") is None


def test_a_default_quota_is_for_all_who_have_no_entry() -> None:
    shares = Shares({"acme": Share()}, default_quota=2)
    pool = BlockPool(8, SIZE, shares=shares)
    assert (pool.ceiling("acme"), pool.ceiling("other")) == (8, 2)


@pytest.mark.parametrize("bounds", [{"floor": -1}, {"quota": 0}, {"quota": 2, "floor": 3}])
def test_bounds_that_contradict_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="floor"):
        Share(**bounds)


def test_floors_beyond_the_pool_are_refused() -> None:
    with pytest.raises(ValueError, match="floors"):
        pool_of(4, a=Share(floor=3), b=Share(floor=2))


def test_tenants_beyond_the_bound_share_one_account() -> None:
    queue = FreeBlockQueue(4, Shares({"named": Share(floor=1)}))
    for number in range(MAX_TENANTS):
        queue.tenant(f"t{number}")
    assert queue.tenant("late").name == queue.tenant("later").name == OTHERS
    assert queue.tenant("named").name == "named"
    assert queue.tenant(PLATFORM).name == PLATFORM


def test_blocks_of_many_tenants_go_in_the_order_of_their_last_use() -> None:
    pool = pool_of(6)
    for number in range(3):
        warmed(pool, prompt(1), f"t{number}")
    warmed(pool, prompt(1), "t0")
    warmed(pool, prompt(3), "flood")
    found = [cached(pool, prompt(1), f"t{number}") for number in range(3)]
    assert found == [SIZE, 0, SIZE]


def test_an_eviction_takes_turns_between_tenants_by_last_use() -> None:
    pool = pool_of(4)
    for tenant, first in (("a", 100), ("b", 100), ("a", 500)):
        table = admitted(pool, prompt(1, first=first, tail=0), tenant)
        pool.commit(table, SIZE)
        pool.release(table)
    admitted(pool, prompt(2, first=900), "flood")
    left = [("a", 100), ("b", 100), ("a", 500)]
    assert [cached(pool, prompt(1, first=first), name) for name, first in left] == [0, 0, SIZE]


# Platform prefixes.

PLATFORM_PROMPT = prompt(2, tail=0)
PACKED = [pack(PLATFORM_PROMPT)]


def test_a_platform_prefix_is_computed_once_for_all_tenants() -> None:
    pool = pool_of(8)
    first = pool.admit(chain([*PLATFORM_PROMPT, 1], "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 9)
    second = pool.admit(chain([*PLATFORM_PROMPT, 2], "b-salt", PACKED), "b")
    assert second is not None
    assert second.cached_tokens == 2 * SIZE
    pool.check_integrity()


def test_what_follows_a_platform_prefix_is_each_tenants_own() -> None:
    pool = pool_of(8)
    tokens = [*PLATFORM_PROMPT, 1, 2, 3, 4, 5]
    first = pool.admit(chain(tokens, "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 13)
    assert pool.match(chain(tokens, "a-salt", PACKED)).cached_tokens == 3 * SIZE
    assert pool.match(chain(tokens, "b-salt", PACKED)).cached_tokens == 2 * SIZE


def test_a_platform_prefix_is_never_evicted_and_on_no_tenants_account() -> None:
    pool = pool_of(6, a=Share(quota=3))
    first = pool.admit(chain([*PLATFORM_PROMPT, 1], "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 9)
    pool.release(first)
    assert pool.state() == PoolState(used=0, pinned=2, cached=0, blank=4)
    for number in range(4):
        warmed(pool, prompt(3, first=500 + 100 * number), "flood")
    assert pool.match(chain([*PLATFORM_PROMPT, 1], "b-salt", PACKED)).cached_tokens == 2 * SIZE
    assert (pool.queue.tenant("a").held, pool.queue.tenant(PLATFORM).held) == (0, 2)


def test_only_the_platforms_own_blocks_are_pinned() -> None:
    pool = pool_of(8)
    first = pool.admit(chain([*PLATFORM_PROMPT, *range(9)], "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 17)
    pool.release(first)
    pool.check_integrity()
    assert pool.state() == PoolState(used=0, pinned=2, cached=2, blank=4)


def test_pinned_blocks_that_a_prompt_shares_take_no_room_of_its_own() -> None:
    pool = pool_of(6)
    first = pool.admit(chain([*PLATFORM_PROMPT, 1], "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 9)
    pool.release(first)
    tokens = [*PLATFORM_PROMPT, *range(4 * SIZE)]
    assert pool.admit(chain(tokens, "b-salt", PACKED), "b") is not None
    with pytest.raises(OutOfBlocks, match="5 blocks of 4; this tenant can have 4"):
        pool.admit(chain([*tokens, 1], "b-salt", PACKED), "b")


def test_clearing_unpins() -> None:
    pool = pool_of(6)
    first = pool.admit(chain([*PLATFORM_PROMPT, 1], "a-salt", PACKED), "a")
    assert first is not None
    pool.commit(first, 9)
    pool.clear()
    pool.check_integrity()
    pool.release(first)
    pool.check_integrity()
    assert pool.state() == PoolState(used=0, pinned=0, cached=0, blank=6)


def test_without_platform_prefixes_nothing_is_shared_or_pinned() -> None:
    pool = pool_of(8)
    warmed(pool, [*PLATFORM_PROMPT, 1], "a")
    assert cached(pool, [*PLATFORM_PROMPT, 1], "b") == 0
    assert pool.state().pinned == 0
