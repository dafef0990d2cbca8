from __future__ import annotations

import json

from prefix_builders import SIZE, admitted, chain, prompt, warmed

from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    EventLog,
    KvEvent,
    as_json,
)
from trivet.prefix.pool.offload import BytesMover, OffloadTier


def watched(blocks: int, host: int = 0) -> tuple[BlockPool, list[KvEvent]]:
    events: list[KvEvent] = []
    tier = OffloadTier(host, BytesMover([b""] * blocks, host)) if host else None
    return BlockPool(blocks, SIZE, offload=tier, emit=events.append), events


def test_blocks_are_told_when_they_are_committed_not_when_they_are_allocated() -> None:
    pool, events = watched(8)
    table = admitted(pool, prompt(3))
    assert events == []
    pool.commit(table, 2 * SIZE)
    pool.commit(table, 13)
    names = table.chain.hashes
    assert events == [
        BlocksStored(None, (names[0], names[1]), SIZE, "device"),
        BlocksStored(names[1], (names[2],), SIZE, "device"),
    ]


def test_a_hit_tells_nothing() -> None:
    pool, events = watched(8)
    warmed(pool, prompt(2))
    events.clear()
    warmed(pool, prompt(2))
    assert events == []


def test_evicted_blocks_are_told_in_the_order_in_which_they_went() -> None:
    pool, events = watched(3)
    warmed(pool, prompt(2))
    events.clear()
    admitted(pool, prompt(2, first=500))
    names = chain(prompt(2)).hashes
    assert events == [BlocksRemoved((names[1], names[0]), "device")]


def test_a_block_that_moves_to_the_host_is_stored_there_before_it_is_removed_here() -> None:
    pool, events = watched(3, host=4)
    warmed(pool, prompt(2))
    events.clear()
    table = admitted(pool, prompt(2, first=500))
    names = chain(prompt(2)).hashes
    assert events == [
        BlocksStored(None, (names[0], names[1]), SIZE, "host"),
        BlocksRemoved((names[1], names[0]), "device"),
    ]
    events.clear()
    pool.release(table)
    admitted(pool, prompt(2))
    assert events == [BlocksStored(None, (names[0], names[1]), SIZE, "device")]


def test_clearing_is_one_event() -> None:
    pool, events = watched(3, host=4)
    warmed(pool, prompt(2))
    events.clear()
    pool.clear()
    assert events == [BlocksCleared()]


def test_events_hold_no_tokens_and_no_salt() -> None:
    pool, events = watched(8)
    table = pool.admit(chain([77777] * 9, "secret-salt"), "acme")
    assert table is not None
    pool.commit(table, 9)
    told = json.dumps([as_json(event) for event in events])
    assert "77777" not in told
    assert "secret-salt" not in told
    assert table.chain.root.hex() not in told
    assert "acme" not in told


def test_events_are_written_with_hashes_in_hex() -> None:
    name = chain(prompt(1)).hashes[0]
    assert as_json(BlocksStored(None, (name,), 16, "host")) == {
        "type": "stored",
        "parent": None,
        "hashes": [name.hex()],
        "block_size": 16,
        "medium": "host",
    }
    assert as_json(BlocksRemoved((name,), "disk")) == {
        "type": "removed",
        "hashes": [name.hex()],
        "medium": "disk",
    }
    assert as_json(BlocksCleared()) == {"type": "cleared"}


def test_a_router_reads_on_from_the_number_that_it_knows() -> None:
    log = EventLog(capacity=3)
    events = [BlocksRemoved((name,), "device") for name in chain(prompt(4)).hashes]
    for event in events[:3]:
        log(event)
    assert log.since(1) == events[1:3]
    assert log.since(3) == []


def test_a_router_that_is_too_far_behind_or_ahead_starts_anew() -> None:
    log = EventLog(capacity=3)
    for name in chain(prompt(4)).hashes:
        log(BlocksRemoved((name,), "device"))
    assert (log.since(0), log.since(5), log.count) == (None, None, 4)
