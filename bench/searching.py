"""One process that fills a partitioned index and searches it; prints JSON.

The vectors stand for texts in topics: 384 numbers each, drawn around a few thousand directions; a
question is a stored text with noise, at a cosine of about 0.9, as paraphrases have. Nothing else
runs in this process, on one core and one thread.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from trivet.policies.intents import Intent
from trivet.semantic.partitions import PartitionedIndex
from trivet.semantic.types import Partition, Record

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_DIMENSION = 384
_TOPICS = 4_000
_TEXT = "How do I change the address of an order that was sent {} days ago?"
_ASKED = 400


def _normal(vectors: Vectors) -> Vectors:
    made: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made.astype(np.float32)


def _noise(random: np.random.Generator, count: int, size: float) -> Vectors:
    return random.standard_normal((count, _DIMENSION), np.float32) * np.float32(
        size / _DIMENSION**0.5
    )


def record(number: int, partition: Partition, vector: Vectors) -> Record:
    """A stored question of about seventy characters."""
    name = hashlib.sha256(str(number).encode()).digest()
    return Record(
        id=name[:16].hex(),
        tenant="bench",
        partition=partition,
        key=name,
        text=_TEXT.format(number),
        vector=vector.tobytes(),
        intent=Intent.INFORMATIONAL,
        created=time.time(),
        expires=time.time() + 86400.0,
    )


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def large(count: int) -> dict[str, float]:
    """One partition of `count` entries."""
    random = np.random.default_rng(1)
    topics = _normal(_noise(random, _TOPICS, 1.0))
    partition = Partition(bytes(32))
    index = PartitionedIndex(lambda tenant: count, most_bytes=1 << 40)
    asked: list[tuple[int, Vectors]] = []
    every = max(1, count // _ASKED)
    before, began = _resident(), time.perf_counter()
    for start in range(0, count, 1000):
        size = min(1000, count - start)
        vectors = _normal(topics[random.integers(0, _TOPICS, size)] + _noise(random, size, 0.8))
        for at, vector in enumerate(vectors):
            index.add(record(start + at, partition, vector))
            if (start + at) % every == 0:
                asked.append((start + at, vector))
    added = time.perf_counter()
    longest = 0.0
    while (job := index.due()) is not None:
        finish = job()
        here = time.perf_counter()
        finish()
        longest = max(longest, time.perf_counter() - here)
    built = time.perf_counter()
    held = _resident() - before
    noise = _noise(random, len(asked), 0.5)
    questions = _normal(np.array([vector for _, vector in asked]) + noise)
    names = [hashlib.sha256(str(number).encode()).digest()[:16].hex() for number, _ in asked]
    took, right = [], 0
    for question, name in zip(questions, names, strict=True):
        here = time.perf_counter()
        found = index.nearest(partition, question, 1, time.time())
        took.append(time.perf_counter() - here)
        right += found[0].record.id == name
    took.sort()
    return {
        "p50_ms": median(took) * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3,
        "recall": right / len(asked),
        "add_us": (added - began) / count * 1e6,
        "build_s": built - added,
        "pause_ms": longest * 1e3,
        "entry_bytes": held / count,
        "counted_bytes": index.stats().bytes / count,
    }


def small(partitions: int, each: int) -> dict[str, float]:
    """Many partitions of a few entries."""
    random = np.random.default_rng(1)
    index = PartitionedIndex(lambda tenant: partitions * each, most_bytes=1 << 40)
    before, began = _resident(), time.perf_counter()
    names = [
        Partition(hashlib.sha256(str(number).encode()).digest()) for number in range(partitions)
    ]
    for number, name in enumerate(names):
        for at, vector in enumerate(_normal(_noise(random, each, 1.0))):
            index.add(record(number * each + at, name, vector))
    added = time.perf_counter()
    held = _resident() - before
    took = []
    question = _normal(_noise(random, 1, 1.0))[0]
    for name in names[:: max(1, partitions // 2000)]:
        here = time.perf_counter()
        index.nearest(name, question, 1, time.time())
        took.append(time.perf_counter() - here)
    count = partitions * each
    return {
        "p50_ms": median(took) * 1e3,
        "add_us": (added - began) / count * 1e6,
        "entry_bytes": held / count,
        "counted_bytes": index.stats().bytes / count,
    }


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    print(json.dumps(large(*numbers) if len(numbers) == 1 else small(*numbers)))
