from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch

from trivet.errors import ConfigError
from trivet.prefix.engine.kv_memory import MOVED_AT_ONCE, KvMemory, LayerKv, blocks_for
from trivet.prefix.engine.kv_movers import disk_mover, host_mover
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.hashing import BlockHasher, Namespace
from trivet.prefix.pool.offload import OffloadTier

ALIKE = (LayerKv(3, 64, 64),) * 30
MIXED = (LayerKv(2, 4, 4), LayerKv(1, 6, 3))


def filled(blocks: int, dtype: torch.dtype = torch.float32) -> KvMemory:
    """Every number is another one."""
    memory = KvMemory(MIXED, blocks, 4, dtype=dtype)
    for at, tensor in enumerate((*memory.keys, *memory.values)):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 1000 * at)
    return memory


def blocks_of(memory: KvMemory, blocks: list[int]) -> list[torch.Tensor]:
    return [tensor[blocks].clone() for tensor in (*memory.keys, *memory.values)]


def are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_are_two_times_layers_heads_and_head_dim(dtype: torch.dtype, size: int) -> None:
    memory = KvMemory(ALIKE, 5, 16, dtype=dtype)
    assert memory.bytes_per_token == 2 * 30 * 3 * 64 * size
    assert memory.bytes_per_block == 16 * memory.bytes_per_token
    assert memory.nbytes == 5 * memory.bytes_per_block


def test_layers_that_differ_are_summed() -> None:
    memory = KvMemory(MIXED, 7, 4, dtype=torch.float32)
    assert memory.bytes_per_token == 4 * (2 * 8 + 9)
    assert memory.nbytes == 7 * memory.bytes_per_block


def test_a_budget_buys_whole_blocks_and_never_one_more() -> None:
    block = KvMemory(MIXED, 1, 4, dtype=torch.float32).bytes_per_block
    assert blocks_for(10 * block, MIXED, 4, torch.float32) == 10
    assert blocks_for(11 * block - 1, MIXED, 4, torch.float32) == 10
    assert blocks_for(block - 1, MIXED, 4, torch.float32) == 0


def test_memory_is_zero_at_first_and_where_it_was_scrubbed() -> None:
    assert not any(
        bool(part.any())
        for part in blocks_of(KvMemory(MIXED, 3, 4, dtype=torch.float32), [0, 1, 2])
    )
    memory = filled(4)
    others = blocks_of(memory, [0, 2])
    memory.scrub([3, 1])
    assert not any(bool(part.any()) for part in blocks_of(memory, [1, 3]))
    assert are_equal(blocks_of(memory, [0, 2]), others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_blocks_come_back_from_host_and_disk_as_they_were(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    count = MOVED_AT_ONCE + 6
    memory = filled(count, dtype)
    host = host_mover(memory, count)
    disk = disk_mover(memory, host, count, tmp_path)
    blocks = list(range(count))
    before = blocks_of(memory, blocks)
    host.copy_out(blocks, blocks[::-1])
    disk.copy_out(blocks[::-1], blocks[3:] + blocks[:3])
    memory.scrub(blocks)
    host.copy_in(blocks[::-1][:9], blocks[:9])
    disk.copy_in((blocks[3:] + blocks[:3])[9:], blocks[9:])
    assert are_equal(blocks_of(memory, blocks), before)


def test_moving_touches_no_other_block() -> None:
    memory = filled(6)
    host = host_mover(memory, 2)
    before = blocks_of(memory, [0, 1, 2, 4, 5])
    host.copy_out([3, 5], [1, 0])
    host.copy_in([0], [3])
    assert are_equal(blocks_of(memory, [0, 1, 2, 4, 5]), before)
    assert are_equal(blocks_of(memory, [3]), blocks_of(memory, [5]))


def test_slots_take_as_many_bytes_as_blocks(tmp_path: Path) -> None:
    memory = filled(2)
    assert host_mover(memory, 5).nbytes == 5 * memory.bytes_per_block
    assert (
        disk_mover(memory, host_mover(memory, 1), 5, tmp_path).nbytes == 5 * memory.bytes_per_block
    )


def test_the_file_of_the_disk_tier_is_for_its_owner_alone_and_gone_once_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    remove = os.unlink

    def unlink(name: str) -> None:
        state = os.stat(name)
        seen.append((stat.S_IMODE(state.st_mode), state.st_size))
        remove(name)

    monkeypatch.setattr(os, "unlink", unlink)
    memory = filled(2)
    disk = disk_mover(memory, host_mover(memory, 1), 3, tmp_path)
    assert seen == [(0o600, disk.nbytes)]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_or_folder_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = filled(2)
    host = host_mover(memory, 1)
    with pytest.raises(ConfigError, match="do not fit on the disk"):
        disk_mover(memory, host, 3, tmp_path / "none")

    def full(handle: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match="No space left"):
        disk_mover(memory, host, 3, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_pool_gets_evicted_blocks_back_from_both_tiers(tmp_path: Path) -> None:
    memory = filled(4)
    host = host_mover(memory, 3)
    below = OffloadTier(8, disk_mover(memory, host, 8, tmp_path), medium="disk")
    pool = BlockPool(4, 4, offload=OffloadTier(3, host, below=below))
    hasher = BlockHasher(Namespace("m"), "salt", block_size=4)

    def run(tokens: list[int]) -> tuple[int, list[torch.Tensor]]:
        table = pool.admit(hasher.chain(tokens), "a")
        assert table is not None
        for at in range(table.committed, len(table.blocks)):
            for tensor in (*memory.keys, *memory.values):
                tensor[table.blocks[at]] = float(tokens[4 * at])
        pool.commit(table, len(tokens))
        found = blocks_of(memory, table.blocks[:3])
        pool.release(table)
        pool.check_integrity()
        return table.cached_tokens, found

    prompts = [list(range(first, first + 13)) for first in (1, 101, 201)]
    cold = [run(tokens) for tokens in prompts]
    warm = [run(tokens) for tokens in prompts]
    assert [cached for cached, _ in cold] == [0, 0, 0]
    assert [cached for cached, _ in warm] == [12, 12, 12]
    assert all(are_equal(a, b) for (_, a), (_, b) in zip(cold, warm, strict=True))
