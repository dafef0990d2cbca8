from __future__ import annotations

import pytest
from prefix_builders import SIZE, admitted, cached, chain, prompt, warmed

from trivet.errors import OutOfBlocks
from trivet.prefix.pool.blocks import BlockPool, PoolState


def pool_of(capacity: int) -> BlockPool:
    return BlockPool(capacity, SIZE)


# The four checks of the design.


def test_a_shared_prompt_of_eight_tokens_hits() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    table = admitted(pool, prompt(2, tail=3))
    assert (table.cached_tokens, table.blocks[:2]) == (8, [0, 1])


def test_a_change_at_the_first_token_hits_nothing() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    assert admitted(pool, [1, *prompt(2)[1:]]).cached_tokens == 0


def test_another_salt_hits_nothing() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2), "acme")
    assert admitted(pool, prompt(2), "globex").cached_tokens == 0
    assert admitted(pool, prompt(2), "acme", salt="globex-salt-2").cached_tokens == 0


def test_no_block_is_given_while_all_are_in_use() -> None:
    pool = pool_of(4)
    admitted(pool, prompt(3))
    assert pool.admit(chain([1]), "acme") is None
    pool.check_integrity()


# The five defects of the published sketch.


def test_a_refused_request_leaves_nothing_that_was_never_computed() -> None:
    pool = pool_of(4)
    running = admitted(pool, [1, 2])
    assert pool.admit(chain(prompt(3)), "acme") is None
    pool.check_integrity()
    pool.release(running)
    assert admitted(pool, prompt(3)).cached_tokens == 0


def test_blocks_are_not_shared_before_they_are_computed() -> None:
    pool = pool_of(8)
    first = admitted(pool, prompt(2))
    second = admitted(pool, prompt(2))
    assert second.cached_tokens == 0
    assert not set(first.blocks) & set(second.blocks)
    pool.commit(first, SIZE)
    assert cached(pool, prompt(2)) == SIZE


def test_a_prompt_of_cached_blocks_alone_still_computes_its_last_block() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2, tail=0))
    assert admitted(pool, prompt(2, tail=0)).cached_tokens == SIZE


def test_a_salt_that_equals_a_block_hash_reads_no_block_of_its_chain() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(3))
    stolen = chain(prompt(3), "acme-salt").hashes[0]
    for salt in (stolen.hex(), stolen.decode("latin-1")):
        forged = chain(prompt(3)[SIZE:], salt)
        assert pool.match(forged).cached_tokens == 0


def test_a_child_is_not_served_behind_another_parent_with_equal_hashes() -> None:
    pool = pool_of(8)
    right = chain(prompt(2))
    table = pool.admit(right, "acme")
    assert table is not None
    pool.commit(table, 2 * SIZE)
    warmed(pool, [1, 2, 3, 4, 0])
    forged = chain([1, 2, 3, 4, *prompt(2)[SIZE:]])
    forged.hashes[1] = right.hashes[1]
    assert pool.match(forged).cached_tokens == SIZE


def test_a_block_is_not_served_for_other_tokens_with_an_equal_hash() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    forged = chain(prompt(2, first=500))
    forged.hashes[:] = chain(prompt(2)).hashes
    assert pool.match(forged).cached_tokens == 0


def test_a_first_block_is_not_served_behind_another_root_with_an_equal_hash() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    forged = chain(prompt(2), "globex-salt")
    forged.hashes[:] = chain(prompt(2)).hashes
    assert pool.match(forged).cached_tokens == 0


# Admission.


def test_a_match_changes_nothing() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    before = (pool.queue.order(), list(pool.users), pool.counters()["acme"].queries)
    pool.match(chain(prompt(2)))
    assert (pool.queue.order(), list(pool.users), pool.counters()["acme"].queries) == before


def test_a_refusal_changes_nothing_but_its_count() -> None:
    pool = pool_of(6)
    warmed(pool, prompt(2))
    running = admitted(pool, prompt(2, first=500))
    before = (pool.queue.order(), list(pool.users), dict(pool.index.by_hash))
    assert pool.admit(chain(prompt(5)), "acme") is None
    assert (pool.queue.order(), list(pool.users), dict(pool.index.by_hash)) == before
    counters = pool.counters()["acme"]
    assert (counters.refusals, counters.requests, counters.queries) == (1, 2, 18)
    pool.release(running)
    pool.check_integrity()


def test_what_is_reused_does_not_count_as_room() -> None:
    """The only free blocks are the two that the prompt reuses; it needs a third."""
    pool = pool_of(4)
    warmed(pool, prompt(2, tail=0))
    running = admitted(pool, [1, 2, 3, 4, 5])
    assert pool.queue.order() == [1, 0]
    assert pool.admit(chain(prompt(2)), "acme") is None
    assert pool.queue.order() == [1, 0]
    pool.release(running)
    assert admitted(pool, prompt(2)).cached_tokens == 2 * SIZE


def test_a_prompt_that_no_wait_fits_in_is_told_at_once() -> None:
    pool = pool_of(4)
    with pytest.raises(OutOfBlocks, match="17 tokens take 5 blocks of 4; this tenant can have 4"):
        pool.admit(chain(prompt(4)), "acme")
    pool.check_integrity()


def test_an_empty_prompt_and_a_foreign_block_size_are_refused() -> None:
    pool = pool_of(4)
    with pytest.raises(ValueError, match="has a token"):
        pool.admit(chain([]), "acme")
    with pytest.raises(ValueError, match="block size"):
        BlockPool(4, SIZE * 2).admit(chain([1]), "acme")


def test_without_reuse_nothing_is_read_and_nothing_counted() -> None:
    pool = pool_of(8)
    blocks = warmed(pool, prompt(2))
    table = pool.admit(chain(prompt(2)), "acme", reuse=False)
    assert table is not None
    assert (table.cached_tokens, pool.counters()["acme"].queries) == (0, 9)
    assert pool.commit(table, 9) == [0, 1]
    assert table.blocks[:2] == blocks[:2]
    pool.check_integrity()


# The order in which blocks go.


def test_blank_blocks_go_first_and_then_tails_before_their_parents() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(2))
    warmed(pool, prompt(2, first=500))
    assert pool.queue.order() == [4, 5, 6, 7, 1, 0, 3, 2]


def test_a_prefix_that_is_used_again_goes_last() -> None:
    pool = pool_of(8)
    first = warmed(pool, prompt(2))
    second = warmed(pool, prompt(2, first=500))
    warmed(pool, prompt(2))
    assert pool.queue.order()[-4:] == [second[1], second[0], first[1], first[0]]


def test_a_branch_goes_before_the_trunk_that_it_shares() -> None:
    pool = pool_of(8)
    trunk = warmed(pool, prompt(2, tail=0))
    branch = [*prompt(2, tail=0)[:SIZE], 1, 2, 3, 4, 5]
    leaf = warmed(pool, branch)
    assert pool.queue.order()[-3:] == [trunk[1], leaf[1], trunk[0]]


def test_a_cold_prompt_evicts_the_tail_and_leaves_the_head() -> None:
    pool = pool_of(4)
    warmed(pool, prompt(3))
    warmed(pool, prompt(1, first=500))
    assert cached(pool, prompt(3)) == 2 * SIZE
    assert pool.counters()["acme"].evictions == 1


def test_an_evicted_block_is_unmapped() -> None:
    pool = pool_of(3)
    warmed(pool, prompt(2))
    warmed(pool, prompt(2, first=500))
    assert cached(pool, prompt(2)) == 0
    assert set(pool.index.by_hash) == set(chain(prompt(2, first=500)).hashes)


def test_the_end_of_an_older_block_never_unmaps_a_newer_one_with_its_hash() -> None:
    pool = pool_of(8)
    older, newer = admitted(pool, prompt(2)), admitted(pool, prompt(2))
    pool.commit(newer, 9)
    pool.release(older)
    warmed(pool, prompt(3, first=500))
    assert cached(pool, prompt(2)) == 2 * SIZE
    pool.release(newer)
    pool.check_integrity()
    assert cached(pool, prompt(2)) == 2 * SIZE


# Commit.


def test_who_computed_the_same_goes_on_with_the_first_block() -> None:
    pool = pool_of(8)
    first, second = admitted(pool, prompt(2)), admitted(pool, prompt(2))
    own = list(second.blocks)
    assert pool.commit(first, 9) == []
    assert pool.commit(second, 9) == [0, 1]
    assert second.blocks == [*first.blocks[:2], own[2]]
    assert pool.queue.order()[:2] == [own[1], own[0]]
    pool.check_integrity()


def test_a_chain_goes_on_behind_a_replaced_block() -> None:
    pool = pool_of(12)
    first, second = admitted(pool, prompt(1)), admitted(pool, prompt(3))
    pool.commit(first, 5)
    assert pool.commit(second, 13) == [0]
    pool.release(first)
    pool.release(second)
    pool.check_integrity()
    assert cached(pool, prompt(3)) == 3 * SIZE


def test_a_block_is_not_offered_while_another_content_is_used_under_its_hash() -> None:
    pool = pool_of(8)
    held = admitted(pool, prompt(2))
    pool.commit(held, 9)
    forged = chain(prompt(2, first=500))
    forged.hashes[:] = held.chain.hashes
    table = pool.admit(forged, "acme")
    assert table is not None
    assert pool.commit(table, 9) == []
    assert (table.committed, cached(pool, prompt(2))) == (0, 2 * SIZE)
    pool.check_integrity()
    pool.release(held)
    pool.commit(table, 9)
    pool.check_integrity()
    assert (table.committed, cached(pool, prompt(2))) == (2, 0)


def test_a_block_with_a_colliding_hash_replaces_one_that_nobody_uses() -> None:
    pool = pool_of(8)
    warmed(pool, prompt(1))
    forged = chain(prompt(1, first=500))
    forged.hashes[:] = chain(prompt(1)).hashes
    table = pool.admit(forged, "acme")
    assert table is not None
    pool.commit(table, 5)
    pool.check_integrity()
    assert cached(pool, prompt(1)) == 0
    assert pool.match(forged).cached_tokens == SIZE


def test_a_partly_computed_block_is_not_offered() -> None:
    pool = pool_of(8)
    table = admitted(pool, prompt(2))
    pool.commit(table, 2 * SIZE - 1)
    assert cached(pool, prompt(2)) == SIZE


def test_to_commit_less_than_before_takes_nothing_back() -> None:
    pool = pool_of(8)
    table = admitted(pool, prompt(2))
    pool.commit(table, 9)
    pool.commit(table, 0)
    assert (table.committed, cached(pool, prompt(2))) == (2, 2 * SIZE)


# Decoding.


def test_a_decoded_block_is_shared_when_it_is_full_and_computed() -> None:
    pool = pool_of(8)
    table = admitted(pool, prompt(1, tail=2))
    assert pool.append(table, [1])
    assert pool.append(table, [2])
    answer = [*prompt(1, tail=2), 1, 2]
    assert (len(table.blocks), cached(pool, [*answer, 3])) == (2, 0)
    pool.commit(table, len(answer))
    assert cached(pool, [*answer, 3]) == 2 * SIZE
    assert pool.append(table, [3])
    assert len(table.blocks) == 3
    pool.check_integrity()


def test_an_append_without_room_adds_nothing() -> None:
    pool = pool_of(2)
    table = admitted(pool, prompt(1, tail=4))
    assert not pool.append(table, [1])
    assert (table.chain.length, len(table.blocks)) == (8, 2)
    assert pool.counters()["acme"].refusals == 1
    pool.check_integrity()


def test_an_append_evicts_what_nobody_uses() -> None:
    pool = pool_of(3)
    warmed(pool, prompt(1, first=500))
    table = admitted(pool, prompt(1, tail=4))
    assert pool.append(table, [1])
    assert cached(pool, prompt(1, first=500)) == 0
    pool.check_integrity()


def test_a_wrong_token_costs_no_block() -> None:
    pool = pool_of(4)
    table = admitted(pool, prompt(1, tail=4))
    with pytest.raises(ValueError, match="token ids"):
        pool.append(table, [-1])
    pool.check_integrity()
    assert len(table.blocks) == 2


# Release.


def test_a_second_release_does_nothing() -> None:
    pool = pool_of(4)
    table = admitted(pool, prompt(2))
    pool.release(table)
    pool.release(table)
    pool.check_integrity()
    assert pool.state() == PoolState(used=0, pinned=0, cached=0, blank=4)
    assert pool.commit(table, 9) == []
    with pytest.raises(ValueError, match="released"):
        pool.append(table, [1])


def test_a_shared_block_stays_while_one_sequence_uses_it() -> None:
    pool = pool_of(6)
    first = admitted(pool, prompt(2))
    pool.commit(first, 9)
    second = admitted(pool, prompt(2))
    pool.release(first)
    assert pool.state() == PoolState(used=3, pinned=0, cached=0, blank=3)
    pool.release(second)
    assert pool.state() == PoolState(used=0, pinned=0, cached=2, blank=4)
    pool.check_integrity()


# What is counted, and what a lookup tells.


def test_a_preempted_request_is_kept_out_of_the_hit_rate() -> None:
    pool = pool_of(8)
    table = admitted(pool, prompt(2))
    pool.commit(table, 9)
    pool.release(table, preempted=True)
    again = pool.admit(table.chain, "acme", resumed=True)
    assert again is not None
    counters = pool.counters()["acme"]
    assert (counters.requests, counters.queries, counters.hits) == (1, 9, 0)
    assert (counters.preemptions, counters.preempted_requests) == (1, 1)
    assert (counters.preempted_queries, counters.preempted_hits) == (9, 8)


def test_hits_and_queries_are_counted_in_tokens_by_tenant() -> None:
    pool = pool_of(16)
    warmed(pool, prompt(2))
    warmed(pool, prompt(2))
    warmed(pool, prompt(1), "globex")
    acme, globex = pool.counters()["acme"], pool.counters()["globex"]
    assert (acme.requests, acme.queries, acme.hits) == (2, 18, 8)
    assert (globex.requests, globex.queries, globex.hits) == (1, 5, 0)


def test_a_lookup_says_why_it_found_no_more() -> None:
    pool = pool_of(16)
    warmed(pool, prompt(3))
    running = admitted(pool, prompt(2, first=500))
    found = {
        name: pool.match(chain(tokens))
        for name, tokens in {
            "short": [1, 2, 3, 4],
            "unknown": prompt(2, first=900),
            "diverged": [*prompt(3)[: 2 * SIZE], *range(50)],
            "pending": prompt(2, first=500),
            "": prompt(3),
        }.items()
    }
    assert {name: match.why for name, match in found.items()} == {name: name for name in found}
    assert (found["diverged"].cached_tokens, found["pending"].pending_tokens) == (8, 8)
    pool.release(running)
    assert pool.match(chain(prompt(2, first=500))).why == "unknown"


def test_what_is_committed_is_pending_no_more() -> None:
    pool = pool_of(8)
    table = admitted(pool, prompt(3))
    pool.commit(table, SIZE)
    match = pool.match(chain(prompt(3)))
    assert (match.cached_tokens, match.pending_tokens) == (SIZE, 2 * SIZE)


def test_what_was_committed_and_evicted_is_not_pending() -> None:
    pool = pool_of(4)
    warmed(pool, prompt(3))
    warmed(pool, prompt(3, first=500))
    assert pool.match(chain(prompt(3))).pending_tokens == 0


def test_nobody_waits_for_what_a_clearing_made_unshareable() -> None:
    pool = pool_of(8)
    running = admitted(pool, prompt(2))
    assert pool.match(chain(prompt(2))).pending_tokens == 2 * SIZE
    pool.clear()
    assert pool.match(chain(prompt(2))).pending_tokens == 0
    pool.release(running)


# Clearing.


def test_after_clearing_nothing_hits_and_running_sequences_share_no_more() -> None:
    pool = pool_of(12)
    warmed(pool, prompt(2, first=500))
    table = admitted(pool, prompt(2))
    pool.commit(table, SIZE)
    pool.clear()
    pool.check_integrity()
    pool.commit(table, 9)
    assert cached(pool, prompt(2)) == cached(pool, prompt(2, first=500)) == 0
    pool.release(table)
    pool.check_integrity()
    assert pool.state() == PoolState(used=0, pinned=0, cached=0, blank=12)
    warmed(pool, prompt(2))
    assert cached(pool, prompt(2)) == 2 * SIZE
