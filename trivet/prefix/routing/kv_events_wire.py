"""vLLM's KV events as values, out of what msgpack decoded.

A batch is `[time, [event, ...], rank?]`. An event is a map with its name under `type` (vLLM 0.32,
`vllm/distributed/kv_events.py`), or an array that begins with its name (earlier vLLM, SGLang
0.5.23): both are read. Hashes are bytes or 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

BlockId = int | bytes
"""What the engine calls a block."""

_STORED: Final = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
)
_REMOVED: Final = ("block_hashes", "medium", "group_idx")
_FIELDS: Final = {"BlockStored": _STORED, "BlockRemoved": _REMOVED, "AllBlocksCleared": ()}
_MOST_TOKENS: Final = 1 << 20


class Stored(NamedTuple):
    """Consecutive blocks of one chain are in `where`. `extras` has what else went into each
    block's hash: adapter, images, salt."""

    blocks: tuple[BlockId, ...]
    parent: BlockId | None
    tokens: tuple[int, ...]
    size: int
    extras: tuple[tuple[str, ...], ...]
    where: str


class Removed(NamedTuple):
    """One copy of each of these is gone from `where`."""

    blocks: tuple[BlockId, ...]
    where: str


class Cleared(NamedTuple):
    """Nothing is left."""


Event = Stored | Removed | Cleared


class Batch(NamedTuple):
    """`unread` events had another shape than documented; the others count."""

    events: tuple[Event, ...]
    unread: int = 0


def read_batch(payload: Any) -> Batch:
    """Never raises: one bad event must not cost what the others tell (ai-dynamo/dynamo#6569)."""
    if not (isinstance(payload, Sequence) and len(payload) >= 2 and isinstance(payload[1], list)):
        return Batch((), 1)
    read = [_read(event) for event in payload[1]]
    return Batch(
        tuple(event for event in read if event is not None), sum(event is None for event in read)
    )


def _read(event: Any) -> Event | None:
    name, fields = _named(event)
    if name == "AllBlocksCleared":
        return Cleared()
    blocks = fields.get("block_hashes")
    if not (isinstance(blocks, list) and blocks and all(map(_is_id, blocks))):
        return None
    where = f"{fields.get('medium') or 'GPU'}/{fields.get('group_idx') or 0}"
    if name == "BlockRemoved":
        return Removed(tuple(blocks), where)
    return _stored(tuple(blocks), where, fields) if name == "BlockStored" else None


def _named(event: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(event, Mapping):
        return str(event.get("type")), event
    if isinstance(event, list) and event and isinstance(event[0], str):
        return event[0], dict(zip(_FIELDS.get(event[0], ()), event[1:], strict=False))
    return "", {}


def _stored(blocks: tuple[BlockId, ...], where: str, fields: Mapping[str, Any]) -> Stored | None:
    parent, tokens, size = (fields.get(name) for name in _STORED[1:4])
    if not (parent is None or _is_id(parent)) or not isinstance(tokens, list):
        return None
    if not isinstance(size, int) or size < 1 or len(tokens) != size * len(blocks):
        return None
    if len(tokens) > _MOST_TOKENS or not all(_is_token(token) for token in tokens):
        return None
    extras = fields.get("extra_keys") or ()
    named = [_extras(one) for one in extras][: len(blocks)]
    named += [()] * (len(blocks) - len(named))
    return Stored(blocks, parent, tuple(tokens), size, tuple(named), where)


def _extras(one: Any) -> tuple[str, ...]:
    return tuple(repr(each) for each in one) if isinstance(one, list | tuple) else ()


def _is_id(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, int) and not isinstance(value, bool))


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 32
