"""Attention over block tables, in the place of a model's own.

transformers' models hand queries, keys and values of the tokens at hand to a function of their
configuration's choice. Ours writes keys and values into the pool and attends to what the pool has
of each sequence, so one packed forward carries the decode tokens and prompt chunks of many. It is
one code for both: a decode token is a chunk of one.

Tokens lie behind each other in one row, pieces of equal kind in groups that attend together. What
depends on the step alone (slots, tables, masks) is made once and used by all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from trivet.prefix.engine.kv_memory import KvMemory

NAME = "trivet_paged"

MASK_ELEMENTS = 1 << 21
"""The largest mask that is repeated for each query head of a KV head (8 MiB in fp32)."""

GATHERED_BYTES = 2 << 20
"""What a group's keys and values of one layer may take on a CPU: its cache holds them until they
are read, which a larger copy would leave before."""

Ints = NDArray[np.int64]


class Attends(Protocol):
    """What one forward does at each attention layer."""

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        """All tensors (1, heads, tokens, dim); gives (1, tokens, query heads, value dim)."""
        ...


_current: ContextVar[Attends] = ContextVar("trivet_attends")


@contextmanager
def attending(one: Attends) -> Iterator[None]:
    """Let `one` answer the attention layers of a forward: not all models pass arguments down."""
    token = _current.set(one)
    try:
        yield
    finally:
        _current.reset(token)


def _forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    return _current.get().attend(module, query, key, value, options), None


# No mask function goes with it: transformers then makes no mask, which would be one over packed
# tokens of different sequences.
AttentionInterface.register(NAME, _forward)


@dataclass(frozen=True, slots=True)
class Span:
    """`tokens` new tokens behind `start` others, and the blocks that all of them lie in."""

    start: int
    tokens: int
    blocks: Ints

    @property
    def stop(self) -> int:
        """Tokens of the sequence after this step."""
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class Context:
    """The keys that a group sees, for one sliding window."""

    first: int
    """The first block where the blocks of the group are consecutive, so that nothing is copied."""
    rows: torch.Tensor | None
    """The blocks of all sequences, each padded to `width`, elsewhere."""
    width: int
    length: int
    """Keys of a sequence, at most `width` blocks of them."""
    mask: torch.Tensor | None
    """(sequences, 1, queries or 1, keys), 0 or -inf; None if all of a query's keys are seen."""


class Group:
    """Pieces of a step that attend in one call: tokens `at..at + n * q` of the packed row."""

    def __init__(self, spans: Sequence[Span], at: int, memory: KvMemory, *, copied: bool) -> None:
        self.sequences = len(spans)
        self.queries = spans[0].tokens
        self.at = at
        self.stop = at + self.sequences * self.queries
        self._spans = spans
        self._memory = memory
        self._copied = copied
        self._longest = max(span.stop for span in spans)
        self._contexts: dict[tuple[int, int], Context] = {}

    def attend(
        self, query: torch.Tensor, layer: int, options: Mapping[str, Any], groups: int
    ) -> torch.Tensor:
        """Query (tokens, KV heads x groups, dim) to (tokens, query heads, value dim)."""
        n, q = self.sequences, self.queries
        folds = n > 1 or groups * q * self._longest <= MASK_ELEMENTS
        context = self._context(options.get("sliding_window"), groups if folds else 1)
        keys = self._seen(self._memory.keys[layer], context)
        values = self._seen(self._memory.values[layer], context)
        heads = keys.shape[1]
        split = query.view(n, q, heads, groups, query.shape[-1])
        # Query heads of one KV head read the same keys: they are more queries to it, or, where the
        # mask would grow too large, a batch whose keys are the same memory.
        if folds:
            packed = split.permute(0, 2, 3, 1, 4).reshape(n, heads, groups * q, -1)
        else:
            packed = split[0].permute(2, 1, 0, 3)
            keys, values = (one.expand(groups, -1, -1, -1) for one in (keys, values))
        made = _attention(packed, keys, values, context.mask, options)
        if folds:
            made = made.reshape(n, heads, groups, q, -1).permute(0, 3, 1, 2, 4)
        else:
            made = made.permute(2, 1, 0, 3)
        return made.reshape(n * q, heads * groups, -1)

    def _seen(self, pool: torch.Tensor, context: Context) -> torch.Tensor:
        if context.rows is None:
            found = pool.narrow(0, context.first, context.width)
        else:
            found = pool.index_select(0, context.rows)
        _, _, heads, dim = pool.shape
        return found.view(self.sequences, -1, heads, dim)[:, : context.length].transpose(1, 2)

    def _context(self, window: int | None, copies: int) -> Context:
        if not window or window >= self._longest:
            window = self._longest
        found = self._contexts.get((window, copies))
        if found is None:
            found = self._contexts[window, copies] = self._made(window, copies)
        return found

    def _made(self, window: int, copies: int) -> Context:
        size, n = self._memory.block_size, self.sequences
        # The block of the first key that the first query sees.
        begin = [max(0, span.start - window + 1) // size for span in self._spans]
        end = [-(-span.stop // size) for span in self._spans]
        width = max(stop - start for start, stop in zip(begin, end, strict=True))
        table = np.empty((n, width), np.int64)
        for row, span in enumerate(self._spans):
            blocks = span.blocks[begin[row] : end[row]]
            table[row, : len(blocks)] = blocks
            # Own blocks as padding: no sequence reads what is another's, not even under a mask.
            table[row, len(blocks) :] = blocks[0]
        starts = np.array(begin)[:, None] * size
        length = width * size if n > 1 else self._spans[0].stop - begin[0] * size
        mask = self._mask(starts + np.arange(length), window, copies)
        first = int(table[0, 0])
        is_run = n == 1 and not self._copied and bool((np.diff(table[0]) == 1).all())
        rows = None if is_run else self._on_device(torch.from_numpy(table.reshape(-1)))
        return Context(first, rows, width, length, mask)

    def _mask(self, keys: Ints, window: int, copies: int) -> torch.Tensor | None:
        """`keys`: positions (sequences, keys)."""
        starts = np.array([span.start for span in self._spans])
        queries = (starts[:, None] + np.arange(self.queries))[:, :, None]
        seen = (keys[:, None] <= queries) & (keys[:, None] > queries - window)
        if seen.all():
            return None
        mask = torch.zeros(seen.shape, dtype=self._memory.dtype)
        mask.masked_fill_(torch.from_numpy(~seen), float("-inf"))
        if self.queries > 1:
            mask = mask.repeat(1, copies, 1)
        return self._on_device(mask[:, None])

    def _on_device(self, made: torch.Tensor) -> torch.Tensor:
        return made.to(self._memory.device, non_blocking=True)


class Step:
    """The layout of one forward over `spans`: those of one token first, then the longer ones.

    `copied` reads keys through a copy always, as bitwise mode needs it.
    """

    def __init__(self, spans: Sequence[Span], memory: KvMemory, *, copied: bool = False) -> None:
        self.finite: torch.Tensor | None = None
        """(tokens): whether the KV that was written is a number in all layers. Known at the end."""
        self._memory = memory
        size = memory.block_size
        slots = []
        for span in spans:
            places = np.arange(span.start, span.stop)
            slots.append(span.blocks[places // size] * size + places % size)
        self._slots = torch.from_numpy(np.concatenate(slots)).to(memory.device)
        self._groups: list[Group] = []
        at = 0
        for some in _grouped(spans, _most_keys(memory)):
            group = Group(some, at, memory, copied=copied)
            self._groups.append(group)
            at = group.stop

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        """As `Attends` has it: writes the tokens' KV, then attends to all before and to them."""
        layer = module.layer_idx
        for pool, new in (
            (self._memory.keys[layer], key),
            (self._memory.values[layer], value),
        ):
            pool.flatten(0, 1).index_copy_(0, self._slots, new[0].transpose(0, 1))
        if layer == len(self._memory.keys) - 1:
            # What is no number in one layer of a token is none in all later layers of it.
            numbers = key.isfinite().all(-1) & value.isfinite().all(-1)
            self.finite = numbers.all(1)[0]
        rows = query[0].transpose(0, 1)
        per_key = query.shape[1] // key.shape[1]
        made = [
            group.attend(rows[group.at : group.stop], layer, options, per_key)
            for group in self._groups
        ]
        return (made[0] if len(made) == 1 else torch.cat(made))[None]


def _most_keys(memory: KvMemory) -> int:
    """How many keys a group of several sequences may have."""
    if memory.device.type != "cpu":
        return 1 << 62
    return GATHERED_BYTES * len(memory.keys) // memory.bytes_per_token


def _grouped(spans: Sequence[Span], most: int) -> Iterator[Sequence[Span]]:
    """Single tokens whose contexts are alike in length together, the others one by one.

    The shortest in a group has more than half of the longest one's keys, so padding costs less than
    the attention itself; `most` bounds the keys. Expects the single tokens first, longest contexts
    first.
    """
    start = 0
    for at, span in enumerate(spans):
        first = spans[start]
        alike = span.tokens == first.tokens == 1 and 2 * span.stop > first.stop
        fits = (at - start + 1) * first.stop <= most
        if at > start and not (alike and fits):
            yield spans[start:at]
            start = at
    yield spans[start:]


def _attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: Mapping[str, Any],
) -> torch.Tensor:
    scale, cap = options.get("scaling"), options.get("softcap")
    if not cap:
        return scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    # Gemma 2 (2024, section 2) caps the scores before the softmax, which SDPA cannot.
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.tanh(query @ keys.transpose(2, 3) * (scale / cap)) * cap
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1, dtype=torch.float32).to(values.dtype) @ values
