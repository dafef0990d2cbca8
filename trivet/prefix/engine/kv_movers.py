"""Where KV blocks go when the device has no room for them: host memory, then a file.

Both are the `KvMover` of an `OffloadTier` and one class: rows of a tensor, each a whole block.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch

from trivet.errors import ConfigError, Problem
from trivet.prefix.engine.kv_memory import MOVED_AT_ONCE, KvMemory


class Readable(Protocol):
    """A medium whose blocks can be copied to host memory."""

    def read(self, blocks: Sequence[int]) -> torch.Tensor:
        """(blocks, elements), in host memory."""
        ...


class SlotsMover:
    """Slots of one medium: `slots` is a tensor (slots, elements of a block) of the KV's dtype."""

    def __init__(self, memory: KvMemory, above: Readable, slots: torch.Tensor) -> None:
        self._memory = memory
        self._above = above
        self._slots = slots

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return int(self._slots.nbytes)

    def read(self, slots: Sequence[int]) -> torch.Tensor:
        """A copy of these slots in host memory."""
        return self._slots.index_select(0, torch.tensor(slots, dtype=torch.int64))

    def copy_out(self, sources: Sequence[int], slots: Sequence[int]) -> None:
        """From the medium above to slots."""
        for some, places in _batches(sources, slots):
            rows = torch.tensor(places, dtype=torch.int64)
            self._slots.index_copy_(0, rows, self._above.read(some))

    def copy_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """From slots to device blocks."""
        for some, places in _batches(slots, blocks):
            self._memory.write(places, self.read(some))


def host_mover(memory: KvMemory, slots: int) -> SlotsMover:
    """Slots in host memory; page-locked where the KV lies on a GPU, which copies faster then."""
    pinned = memory.device.type == "cuda"
    shape = (slots, memory.elements)
    try:
        tensor = torch.empty(shape, dtype=memory.dtype, pin_memory=pinned)
    except RuntimeError as error:
        raise _no_room("host memory", slots * memory.bytes_per_block, error) from None
    return SlotsMover(memory, memory, tensor)


def disk_mover(
    memory: KvMemory, above: Readable, slots: int, folder: Path | None = None
) -> SlotsMover:
    """Slots in a file that only this process can reach, on the disk of `folder` (or the default).

    The file has no name any more once it is mapped: it goes with the process, however that ends.
    Raises `ConfigError` if the disk has no room: all of it is reserved now, because a mapped page
    that cannot be written later kills the process (SIGBUS).
    """
    size = slots * memory.bytes_per_block
    try:
        handle, name = tempfile.mkstemp(prefix="trivet-kv-", dir=folder)
    except OSError as error:
        raise _no_room("the disk", size, error) from None
    try:
        if size:
            os.posix_fallocate(handle, 0, size)
        tensor = torch.from_file(name, True, slots * memory.elements, dtype=memory.dtype)
    except (OSError, RuntimeError) as error:
        raise _no_room("the disk", size, error) from None
    finally:
        os.close(handle)
        os.unlink(name)
    return SlotsMover(memory, above, tensor.view(slots, memory.elements))


def _batches(
    sources: Sequence[int], targets: Sequence[int]
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    for at in range(0, len(sources), MOVED_AT_ONCE):
        stop = at + MOVED_AT_ONCE
        yield sources[at:stop], targets[at:stop]


def _no_room(medium: str, size: int, error: Exception) -> ConfigError:
    problem = f"{size:,} bytes of KV do not fit on {medium}: {error}"
    return ConfigError(Problem("trivet engine", 0, 0, "offload", problem))
