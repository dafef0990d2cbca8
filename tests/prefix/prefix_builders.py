"""Small pools, chains and prompts for the tests of the block cache."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockChain, BlockHasher, Namespace

SIZE = 4
"""Tokens in a block."""

MODEL = Namespace("tiny", revision="1", layout="fp32")


def chain(
    tokens: Sequence[int], salt: str = "acme-salt", platform: Sequence[bytes] = ()
) -> BlockChain:
    return BlockHasher(MODEL, salt, block_size=SIZE, platform=platform).chain(tokens)


def prompt(blocks: int, *, first: int = 100, tail: int = 1) -> list[int]:
    """Tokens of so many full blocks, and `tail` more."""
    return [*range(first, first + blocks * SIZE), *range(9000, 9000 + tail)]


def admitted(
    pool: BlockPool, tokens: Sequence[int], tenant: str = "acme", *, salt: str | None = None
) -> BlockTable:
    table = pool.admit(chain(tokens, salt or f"{tenant}-salt"), tenant)
    assert table is not None
    return table


def warmed(pool: BlockPool, tokens: Sequence[int], tenant: str = "acme") -> list[int]:
    """Admit, compute, commit and release a prompt; returns the blocks that it had."""
    table = admitted(pool, tokens, tenant)
    blocks = list(table.blocks)
    pool.commit(table, len(tokens))
    pool.release(table)
    pool.check_integrity()
    return blocks


def cached(pool: BlockPool, tokens: Sequence[int], tenant: str = "acme") -> int:
    """How many leading tokens a lookup finds."""
    return pool.match(chain(tokens, f"{tenant}-salt")).cached_tokens
