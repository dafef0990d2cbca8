"""What replicas hold, exactly: from the KV events that they publish.

A block is found by what it holds, its tokens and everything before them, not by the engine's name
for it: names may be 64 bits wide, differ between replicas, or begin from a random seed. So two
replicas that hold one prefix are found together.

Events carry prompt tokens and salts in clear. Only digests of them are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from trivet.prefix.pool.hashing import pack
from trivet.prefix.routing.affinity import Steps
from trivet.prefix.routing.kv_events_wire import BlockId, Cleared, Event, Removed, Stored

_ROOT: Final = sha256(b"trivet-kv-index").digest()
_MOST: Final = 1_000_000
_MOST_LOST: Final = 100_000

Node = bytes
"""16 bytes: the tokens of a block and of all before it, and what else is in their hashes."""


def nodes_of(tokens: Sequence[int], size: int, salt: str = "", lora: str = "") -> list[Node]:
    """The nodes of a prompt's full blocks. vLLM puts the salt into the first block only, an
    adapter's name into all. Raises `ValueError` for what are no tokens."""
    found: list[Node] = []
    packed, width = pack(tokens), 4 * size
    parent = _ROOT
    for at in range(0, len(packed) - width + 1, width):
        extras = [repr(lora)] if lora else []
        if salt and at == 0:
            extras.append(repr(salt))
        parent = _node(parent, packed[at : at + width], extras)
        found.append(parent)
    return found


def _node(parent: Node, packed: bytes, extras: Sequence[str]) -> Node:
    named = "\x1f".join(extras).encode("utf-8", "surrogatepass")
    return sha256(parent + len(packed).to_bytes(4, "big") + packed + named).digest()[:16]


class _Held:
    """What one replica holds."""

    def __init__(self) -> None:
        self.nodes: dict[BlockId, Node] = {}
        self.copies: dict[BlockId, dict[str, int]] = {}
        self.names: dict[Node, int] = {}
        """How many names a node has."""


class KvIndex:
    """The blocks of all replicas of one upstream that publish events.

    A block counts as held while it was stored more often than it was removed, by medium: an engine
    keeps copies of a block under one name, and tells the end of each (llm-d-kv-cache#680).
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._held: dict[int, _Held] = {}
        self._holders: dict[Node, int] = {}
        """Of each node, a bit for each replica."""
        self._lost: OrderedDict[Node, int] = OrderedDict()
        """Of each node that was held, a bit for each replica that holds it no more."""
        self.size = 0
        """Tokens of a block, as the last event told."""
        self.unplaced = 0
        """Blocks whose parent was not told before: they are not found."""

    def __len__(self) -> int:
        return len(self._holders)

    @property
    def replicas(self) -> frozenset[int]:
        """Those that have told anything."""
        return frozenset(self._held)

    def apply(self, replica: int, event: Event) -> None:
        """An event of `replica`, in the order in which it came."""
        if isinstance(event, Cleared):
            self.forget(replica)
            self._held[replica] = _Held()
            return
        held = self._held.setdefault(replica, _Held())
        if isinstance(event, Stored):
            self._store(replica, held, event)
        else:
            self._remove(replica, held, event)

    def forget(self, replica: int) -> None:
        """Nothing is known of this replica any more."""
        held = self._held.pop(replica, None)
        for node in held.names if held else ():
            self._drop(replica, node)

    def holds(self, replica: int, node: Node) -> bool:
        """Whether the replica holds this block."""
        return bool(self._holders.get(node, 0) >> replica & 1)

    def lost(self, replica: int, node: Node) -> bool:
        """Whether the replica held this block, and holds it no more."""
        return bool(self._lost.get(node, 0) >> replica & 1)

    def blocks(self, replica: int) -> int:
        """How many blocks the replica holds, as far as it told."""
        held = self._held.get(replica)
        return 0 if held is None else len(held.names)

    def held(self, replica: int, nodes: Sequence[Node]) -> int:
        """How many leading blocks of a prompt the replica holds."""
        for at, node in enumerate(nodes):
            if not self.holds(replica, node):
                return at
        return len(nodes)

    def _store(self, replica: int, held: _Held, event: Stored) -> None:
        parent = _ROOT if event.parent is None else held.nodes.get(event.parent)
        if parent is None:
            self.unplaced += len(event.blocks)
            return
        packed, width = pack(event.tokens), 4 * event.size
        self.size = event.size
        for at, block in enumerate(event.blocks):
            parent = _node(parent, packed[at * width : (at + 1) * width], event.extras[at])
            if held.nodes.get(block, parent) != parent:
                self._lose(replica, held, block)
            if block not in held.nodes:
                held.nodes[block] = parent
                held.names[parent] = held.names.get(parent, 0) + 1
            copies = held.copies.setdefault(block, {})
            copies[event.where] = copies.get(event.where, 0) + 1
            self._holders[parent] = self._holders.get(parent, 0) | 1 << replica
            if parent in self._lost:
                self._lost[parent] &= ~(1 << replica)
        if len(held.nodes) > self._most:
            # No engine has so many: removals were missed.
            self.forget(replica)
            self._held[replica] = _Held()

    def _remove(self, replica: int, held: _Held, event: Removed) -> None:
        for block in event.blocks:
            copies = held.copies.get(block)
            if copies is None or event.where not in copies:
                continue
            copies[event.where] -= 1
            if not copies[event.where]:
                del copies[event.where]
            if not copies:
                self._lose(replica, held, block)

    def _lose(self, replica: int, held: _Held, block: BlockId) -> None:
        del held.copies[block]
        node = held.nodes.pop(block)
        held.names[node] -= 1
        if not held.names[node]:
            del held.names[node]
            self._drop(replica, node)
            self._lost[node] = self._lost.pop(node, 0) | 1 << replica
            if len(self._lost) > _MOST_LOST:
                self._lost.popitem(last=False)

    def _drop(self, replica: int, node: Node) -> None:
        left = self._holders.get(node, 0) & ~(1 << replica)
        if left:
            self._holders[node] = left
        else:
            self._holders.pop(node, None)


class Links:
    """Which node the tokens of a prompt's step end in, learned from a server's tokenizer.

    Estimated where a step ends within a prompt, exact at its end. Bounded, least recently used.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._nodes: OrderedDict[int, Node] = OrderedDict()

    def __contains__(self, steps: Steps) -> bool:
        """Whether the whole prompt is known, as far as it has steps."""
        return not steps.digests or steps.digests[-1] in self._nodes

    def learn(self, steps: Steps, nodes: Sequence[Node], blocks: float) -> None:
        """The prompt's tokens fill `nodes`; `blocks` is how many it has, the last one in part."""
        for step, tokens in zip(steps.digests, steps.tokens, strict=True):
            at = min(int(blocks * tokens / steps.total), len(nodes))
            if at:
                self._nodes[step] = nodes[at - 1]
                self._nodes.move_to_end(step)
        while len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def corrected(self, index: KvIndex, replica: int, steps: Steps, guess: int) -> int:
        """Tokens of the prompt that the replica holds, where `guess` of them were sent there.

        What came or went before its events were listened to is not known: there the guess holds.
        """
        found = 0
        for step, tokens in zip(steps.digests, steps.tokens, strict=True):
            node = self._nodes.get(step)
            held = node is not None and index.holds(replica, node)
            if not held and node is not None and index.lost(replica, node):
                break
            if held or tokens <= guess:
                found = tokens
        return found
