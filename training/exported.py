"""Boosted trees of scikit-learn as the arrays of `trivet.semantic.trees`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trivet.semantic.trees import MAX_LEAVES, Trees

_FULL = (1 << MAX_LEAVES) - 1


def exported(models: Sequence[Any]) -> Trees:
    """One row of trees whose log odds are the mean of those of the models."""
    nodes = [tree.nodes for model in models for (tree,) in model._predictors]
    found = [_tree(each) for each in nodes]
    most = max(len(tests) for tests, _ in found)
    shape = (most, len(found))
    feature = np.zeros(shape, np.intp)
    threshold = np.full(shape, np.inf, np.float32)
    mask = np.full(shape, _FULL, np.uint16)
    value = np.zeros((len(found), most + 1), np.float32)
    for at, (tests, leaves) in enumerate(found):
        for row, (of, limit, kept) in enumerate(tests):
            feature[row, at], threshold[row, at], mask[row, at] = of, limit, kept
        value[at, : len(leaves)] = np.array(leaves) / len(models)
    baseline = sum(float(model._baseline_prediction.ravel()[0]) for model in models) / len(models)
    return Trees.from_arrays(
        Trees(feature, threshold, mask, value, baseline).arrays() | {"baseline": np.array(baseline)}
    )


def _tree(nodes: Any) -> tuple[list[tuple[int, float, int]], list[float]]:
    """(feature, threshold, mask of leaves kept when the test fails) a node; values of the leaves,
    from left to right."""
    tests: list[tuple[int, float, int]] = []
    leaves: list[float] = []

    def walk(at: int) -> None:
        node = nodes[at]
        if node["is_leaf"]:
            leaves.append(float(node["value"]))
            return
        first = len(leaves)
        walk(int(node["left"]))
        gone = ((1 << len(leaves)) - 1) & ~((1 << first) - 1)
        tests.append((int(node["feature_idx"]), float(node["num_threshold"]), _FULL & ~gone))
        walk(int(node["right"]))

    walk(0)
    return tests, leaves
