"""What a lookup costs among N entries: `python -m bench.entries N` prints it as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from statistics import median

from trivet.canonical import sha256
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Hit, Question
from trivet.messages import Api, ExactKey
from trivet.telemetry import ignore

_LOOKUPS = 20_000
_ROUNDS = 9
_BODY = b"x" * 1020


def _canonical(number: int) -> bytes:
    return b"%012d" % number + b"y" * 500


def _entry(number: int, now: float) -> Entry:
    canonical = _canonical(number)
    return Entry(
        key=ExactKey(sha256(canonical)),
        tenant="bench",
        api=Api.CHAT,
        canonical=canonical,
        body=_BODY,
        model="gpt-4o-mini",
        usage=None,
        ids=(),
        created=now,
        expires=now + 86400,
        stale_until=now + 86400,
    )


async def _measure(count: int) -> float:
    store = MemoryStore(max_bytes=1 << 40, max_entries=count)
    tier = ExactTier(store, ignore)
    now = time.time()
    for number in range(count):
        await store.put(_entry(number, now), Bound())
    gc.collect()
    gc.disable()
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        texts = [_canonical(random.randrange(count)) for _ in range(_LOOKUPS)]
        questions = [Question("bench", ExactKey(sha256(text)), text) for text in texts]
        began = time.perf_counter()
        for question in questions:
            assert isinstance(await tier.find(question), Hit)
        seconds.append((time.perf_counter() - began) / _LOOKUPS)
    return median(seconds) * 1e6


def main() -> None:
    """Fill, measure, print."""
    count = int(sys.argv[1])
    print(json.dumps({"entries": count, "find_us": asyncio.run(_measure(count))}))


if __name__ == "__main__":
    main()
