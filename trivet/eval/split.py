"""Splits labelled pairs in two so that no question, and no group, lies on both sides.

Pairs that share a question (but for case and white space) or a given group, directly or through
other pairs, stay together. Which parts go where is decided by a hash: the same pairs are split
alike wherever and in whatever order they are read.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from trivet.eval.pairs import LabelledPair, question

_Node = tuple[str, str]


def components(pairs: Sequence[LabelledPair]) -> list[str]:
    """For each pair, the name of its part: equal for pairs that must stay together.

    The name is a hash of the part's first question in code point order.
    """
    parents: dict[_Node, _Node] = {}
    for pair in pairs:
        node = ("question", question(pair.a))
        _unite(parents, node, ("question", question(pair.b)))
        if pair.group:
            _unite(parents, node, ("group", pair.group))
    firsts: dict[_Node, str] = {}
    for pair in pairs:
        for text in (question(pair.a), question(pair.b)):
            root = _root(parents, ("question", text))
            firsts[root] = min(text, firsts.get(root, text))
    return [_hashed(firsts[_root(parents, ("question", question(pair.a)))]) for pair in pairs]


def set_aside(pairs: Sequence[LabelledPair], share: float, salt: str) -> list[bool]:
    """True for the pairs of the smaller side: as near to `share` of all as whole parts allow.

    The parts are taken in the order of their hashes; one that would make the side larger than
    `share` is left. Raises `ValueError` for a share outside [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"a share is from 0 to below 1, not {share}")
    names = components(pairs)
    wanted = int(share * len(pairs))
    taken: set[str] = set()
    count = 0
    sizes = Counter(names)
    for name in sorted(sizes, key=lambda one: _hashed(f"{salt} {one}")):
        if count + sizes[name] <= wanted:
            taken.add(name)
            count += sizes[name]
    return [name in taken for name in names]


def _root(parents: dict[_Node, _Node], node: _Node) -> _Node:
    parents.setdefault(node, node)
    root = node
    while parents[root] != root:
        root = parents[root]
    while parents[node] != root:
        parents[node], node = root, parents[node]
    return root


def _unite(parents: dict[_Node, _Node], one: _Node, other: _Node) -> None:
    parents[_root(parents, one)] = _root(parents, other)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
