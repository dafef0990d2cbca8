"""SGLang's router policy `cache_aware`, by its published rule.

Rule (SGLang docs, "SGLang Model Gateway", cache-aware routing, with its defaults): where the most
loaded worker has more than `balance_abs` requests more than the least loaded one, and more than
`balance_rel` times as many, the least loaded one is asked. Otherwise the worker whose tree of sent
texts matches longest, if it matches more than `cache_threshold` of the text; else the one whose
tree is smallest. Trees are cut to `max_tree` every `evict_s` seconds, least recently used first.

Written from that description; no code of theirs is in it. Texts are counted in blocks here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from bench.fleet_trace import STEP, Turn

CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5
EVICT_S = 60.0
MAX_TREE = 2**24
"""Characters of each worker's tree."""


class CacheAware:
    """One router over `workers`."""

    def __init__(self, workers: int, clock: Callable[[], float]) -> None:
        self._trees: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(workers)]
        self._load = [0] * workers
        self._clock = clock
        self._evicted = 0.0

    def choose(self, turn: Turn) -> int:
        """The worker."""
        self._evict()
        blocks = turn.blocks(STEP)
        worker = self._worker(blocks, turn.tokens)
        tree = self._trees[worker]
        for block in reversed(blocks):
            tree[block] = None
            tree.move_to_end(block)
        self._load[worker] += 1
        return worker

    def _worker(self, blocks: list[int], tokens: int) -> int:
        least, most = min(self._load), max(self._load)
        if most - least > BALANCE_ABS and most > BALANCE_REL * least:
            return self._load.index(least)
        matched = [
            next((at for at, block in enumerate(blocks) if block not in tree), len(blocks))
            for tree in self._trees
        ]
        best = max(matched)
        if best * STEP > CACHE_THRESHOLD * tokens:
            return matched.index(best)
        sizes = [len(tree) for tree in self._trees]
        return sizes.index(min(sizes))

    def _evict(self) -> None:
        if self._clock() - self._evicted < EVICT_S:
            return
        self._evicted = self._clock()
        for tree in self._trees:
            while len(tree) * STEP * 4 > MAX_TREE:
                tree.popitem(last=False)

    def read(self, turn: Turn, replica: int, cached: int) -> None:
        """It does not look at this."""

    def ended(self, turn: Turn, replica: int) -> None:
        """A request is over."""
        self._load[replica] -= 1
