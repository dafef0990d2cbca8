"""What the engine tells of itself: for metrics and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trivet.prefix.engine.sequence import Finish
from trivet.prefix.pool.blocks import PoolState
from trivet.prefix.pool.counters import TenantCounters
from trivet.prefix.pool.events import Medium
from trivet.prefix.pool.offload import OffloadTier


@dataclass(frozen=True, slots=True)
class TierStats:
    """One medium of the second tier, in slots of a block each."""

    medium: Medium
    slots: int
    used: int
    failures: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A look at one moment; totals run since the start."""

    pool: PoolState
    tiers: tuple[TierStats, ...]
    tenants: Mapping[str, TenantCounters]
    """Of the block cache; preemptions are counted there."""
    waiting: int
    running: int
    steps: int
    failed_steps: int
    """Steps that raised; their sequences ended with `error`."""
    computed_tokens: int
    """Tokens that went through the model, of prompts and answers, recomputed ones too."""
    generated_tokens: int
    finished: Mapping[Finish, int]
    refused: Mapping[str, int]
    """Requests that `submit` turned away, by code."""
    block_size: int
    block_bytes: int
    kv_bytes: int
    """Of all blocks on the device, used or not; never grows."""


def tiers_of(offload: OffloadTier | None) -> Iterable[TierStats]:
    """The tiers from the device down."""
    if offload is None:
        return
    for tier in offload.tiers():
        slots = tier.queue.capacity
        yield TierStats(tier.medium, slots, slots - tier.queue.blank, tier.failures)
