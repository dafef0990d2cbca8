"""What a text's vector costs beside the bare model: `python -m bench.embed_speed TEXTS STATE_DIR`.

On one core, in one process and one session, in turns: the bare onnxruntime call on ready tokens;
the embedder; the embedder behind its queue and thread, with texts that were never seen, and with
one that was. Prints JSON: medians of rounds, in seconds and as ratios within a round.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import uvloop

from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.embedders import default_folder
from trivet.semantic.onnx_embedder import OnnxEmbedder

_TOKENS = 13
_ROUNDS = 9
_HOW = "long far soon fast late early"
_VERBS = "ship send move pack carry return track change order store bring hold"
_THINGS = "table chair lamp book phone shirt coat ring door clock box radio piano"
_PLACES = "france spain italy china japan norway canada kenya india poland egypt cuba"
_LISTS = (_HOW, _VERBS, _THINGS, _PLACES)


def _questions() -> Iterator[str]:
    """Texts of 13 tokens with the two that frame them, each of them once."""
    for how, verb, thing, place in itertools.product(*map(str.split, _LISTS)):
        yield f"how {how} does it take to {verb} a {thing} to {place}"


async def _seconds(call: Callable[[], Awaitable[object]], count: int) -> float:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began)
    return median(took)


async def _measure(embedder: OnnxEmbedder, count: int) -> dict[str, list[float]]:
    texts = _questions()
    ids = np.asarray([embedder._tokens(next(texts))], dtype=np.int64)
    if ids.shape != (1, _TOKENS):
        raise SystemExit(f"the question has {ids.shape[1]} tokens, not {_TOKENS}")
    feed = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    batched = BatchedEmbedder(embedder, deadline_s=60.0)

    async def bare() -> object:
        return embedder._session.run(None, feed)

    async def direct() -> object:
        return embedder.embed([next(texts)])

    async def new() -> object:
        return await batched.embed(next(texts))

    async def seen() -> object:
        return await batched.embed("seen before")

    calls = {"bare": bare, "direct": direct, "batched": new, "seen": seen}
    for call in calls.values():
        await _seconds(call, 5)
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(_ROUNDS):
        order = list(calls.items())
        for name, call in order if turn % 2 == 0 else reversed(order):
            rounds[name].append(await _seconds(call, count))
    await batched.close()
    return rounds


def main() -> None:
    """Measure, and print."""
    count, state_dir = int(sys.argv[1]), Path(sys.argv[2])
    embedder = OnnxEmbedder(default_folder(), state_dir / "embedders")
    # After the export, which may use what it finds.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rounds = uvloop.run(_measure(embedder, count))
    found = {f"{name}_s": median(seconds) for name, seconds in rounds.items()}
    for name in ("direct", "batched", "seen"):
        pairs = zip(rounds[name], rounds["bare"], strict=True)
        found[f"{name}_ratio"] = median(one / bare for one, bare in pairs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
