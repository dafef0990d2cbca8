"""Where the longest known prefix of a chain lies: on the device, then in the second tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trivet.prefix.pool.hashing import BlockChain
from trivet.prefix.pool.index import BlockIndex, Parent
from trivet.prefix.pool.offload import OffloadTier

Why = Literal["", "short", "unknown", "pending", "diverged"]
"""Why a prompt's full blocks are not all there: `short`: it has none before its last token;
`unknown`: not even the first is known; `pending`: the next one is being computed; `diverged`: it
parts from what is known."""


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """How many leading tokens of a prompt the cache could provide now."""

    cached_tokens: int
    """On the device or in the second tier."""
    offloaded_tokens: int
    """Those of them in the second tier."""
    pending_tokens: int
    """Behind the cached ones, what a running sequence is computing: worth waiting for."""
    why: Why


@dataclass(frozen=True, slots=True)
class Found:
    """Device blocks, then slots by tier: consecutive blocks of one chain from its start."""

    blocks: list[int]
    saved: list[tuple[OffloadTier, list[int]]]

    @property
    def slots(self) -> int:
        """Blocks that the second tier has."""
        return sum(len(slots) for _, slots in self.saved)


def find(index: BlockIndex, offload: OffloadTier | None, chain: BlockChain) -> Found:
    """The longest prefix of the chain that may be reused. Changes nothing."""
    stop = chain.matchable
    blocks = index.find(chain, 0, stop, chain.root)
    saved: list[tuple[OffloadTier, list[int]]] = []
    if offload is None:
        return Found(blocks, saved)
    at = len(blocks)
    parent: Parent = index.identities[blocks[-1]] if blocks else chain.root
    for tier in offload.tiers():
        slots = tier.index.find(chain, at, stop, parent)
        if slots:
            saved.append((tier, slots))
            at += len(slots)
            parent = tier.index.identities[slots[-1]]
    return Found(blocks, saved)


def why(chain: BlockChain, cached: int, known: int) -> Why:
    """The reason for `cached` blocks, when `known` ones are cached or being computed."""
    if not chain.matchable:
        return "short"
    if cached == chain.matchable:
        return ""
    if known > cached:
        return "pending"
    return "diverged" if cached else "unknown"
