"""What one sequence holds of the pool."""

from __future__ import annotations

from trivet.prefix.pool.free_queue import TenantQueue
from trivet.prefix.pool.hashing import BlockChain


class BlockTable:
    """The blocks of one admitted sequence, in the order of its tokens.

    Token `t` lies in `blocks[t // block_size]`, at `t % block_size`. The first `cached_tokens` have
    their KV and are never written; the model computes the rest, then `BlockPool.commit` is told.
    """

    __slots__ = (
        "blocks", "cached_tokens", "chain", "committed", "epoch", "offloaded_tokens", "queue",
    )  # fmt: skip

    def __init__(self, queue: TenantQueue, chain: BlockChain, epoch: int) -> None:
        self.queue = queue
        self.chain = chain
        self.epoch = epoch
        self.blocks: list[int] = []
        self.cached_tokens = 0
        self.offloaded_tokens = 0
        """Those of `cached_tokens` that were copied back from the second tier."""
        self.committed = 0
        """Leading blocks that others may share."""

    @property
    def tenant(self) -> str:
        """Whose account the blocks are on."""
        return self.queue.name
