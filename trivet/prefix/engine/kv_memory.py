"""The tensors that the block pool is about: keys and values of every token in every block.

    keys of a layer     (blocks, block size, KV heads, key dim)
    values of a layer   (blocks, block size, KV heads, value dim)

A block is one contiguous row of each, so that a table of blocks is read by one `index_select` (the
layout of PagedAttention, Kwon et al. 2023, with tokens before heads).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

MOVED_AT_ONCE = 64
"""Blocks: bounds the memory that a copy needs beside its source and its target."""


@dataclass(frozen=True, slots=True)
class LayerKv:
    """What one layer keeps of a token."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def elements(self) -> int:
        """Numbers for each token."""
        return self.heads * (self.key_dim + self.value_dim)


def bytes_per_token(layers: Sequence[LayerKv], dtype: torch.dtype) -> int:
    """2 x layers x KV heads x head dim x bytes, where all layers are alike."""
    return int(dtype.itemsize * sum(layer.elements for layer in layers))


def blocks_for(
    budget_bytes: int, layers: Sequence[LayerKv], block_size: int, dtype: torch.dtype
) -> int:
    """How many whole blocks fit into the budget."""
    return budget_bytes // (block_size * bytes_per_token(layers, dtype))


class KvMemory:
    """KV of `blocks` blocks on one device, zero at first.

    Zero and not whatever memory holds: slots behind a sequence's end are read under a mask, and a
    weight of 0 times NaN is NaN.
    """

    def __init__(
        self,
        layers: Sequence[LayerKv],
        blocks: int,
        block_size: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.dtype = dtype
        self.device = torch.device(device)
        self.bytes_per_token = bytes_per_token(layers, dtype)
        self.bytes_per_block = block_size * self.bytes_per_token

        def made(heads: int, dim: int) -> torch.Tensor:
            return torch.zeros(blocks, block_size, heads, dim, dtype=dtype, device=device)

        self.keys = [made(layer.heads, layer.key_dim) for layer in layers]
        self.values = [made(layer.heads, layer.value_dim) for layer in layers]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; never grows."""
        return int(sum(tensor.nbytes for tensor in self._tensors()))

    @property
    def elements(self) -> int:
        """Numbers in one block, over all layers."""
        return int(self.bytes_per_block // self.dtype.itemsize)

    def scrub(self, blocks: Sequence[int]) -> None:
        """Zero these blocks: needed where a step left NaN in them."""
        rows = self._rows(blocks)
        for tensor in self._tensors():
            tensor.index_fill_(0, rows, 0)

    def read(self, blocks: Sequence[int]) -> torch.Tensor:
        """A copy of these blocks in host memory, (blocks, elements)."""
        rows = self._rows(blocks)
        parts = [tensor.index_select(0, rows).flatten(1) for tensor in self._tensors()]
        return torch.cat(parts, 1).cpu()

    def write(self, blocks: Sequence[int], saved: torch.Tensor) -> None:
        """Put back what `read` gave, (blocks, elements)."""
        rows = self._rows(blocks)
        saved = saved.to(self.device)
        at = 0
        for tensor in self._tensors():
            width = tensor[0].numel()
            part = saved.narrow(1, at, width).view(len(blocks), *tensor.shape[1:])
            tensor.index_copy_(0, rows, part)
            at += width

    def _rows(self, blocks: Sequence[int]) -> torch.Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self.device)

    def _tensors(self) -> Iterator[torch.Tensor]:
        yield from self.keys
        yield from self.values
