"""The layout doctor: right places and causes on pairs with a known break, and what it costs.

    PYTHONPATH=tests/prefix:tests/middleware python -m bench.prefix_doctor [--seeds 20]

The pairs are those of `tests/prefix/break_pairs.py`; a cause counts as right if it is the one that
the pair was made with. Times are of this machine, medians in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterable

from break_pairs import SEED, TEXT, pairs
from traffic_parts import call_of

from trivet.messages import Api, Usage
from trivet.middleware.call import Call
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.prefix_tier.doctoring import Doctoring
from trivet.prefix.doctor.lint import parted
from trivet.prefix.doctor.live import Doctor, Prompted
from trivet.prefix.prompts.outline import Outline, outline_of

TOKENS = 40_000
_WORDS = TEXT.split()


def quality(seeds: Iterable[int]) -> list[tuple[int, int, int, int, int]]:
    """For each seed: pairs, right places and causes with both texts, and with the newer one."""
    rows = []
    for seed in seeds:
        made = pairs(seed)
        place = cause = live_place = live_cause = 0
        for pair in made:
            found = parted(pair.old, pair.new)
            if found is not None:
                where = found.where
                exact = pair.char in (-1, where.char)
                at = where.place[: len(pair.place)] == pair.place and where.level is pair.level
                place += exact and at
                cause += found.cause.name in pair.causes
            doctor = Doctor(b"k" * 16, least=32)
            doctor.see(Prompted("t", "r", pair.old, None, 0.0))
            live = doctor.see(Prompted("t", "r", pair.new, None, 1.0))
            if live is not None:
                at = live.place[: len(pair.place)] == pair.place and live.level is pair.level
                live_place += at and (pair.char < 0 or abs(live.char - pair.char) <= 32)
                live_cause += live.cause in pair.causes
        rows.append((len(made), place, cause, live_place, live_cause))
    return rows


def system_of(clock: str, seed: int = 1) -> str:
    """A system prompt of `TOKENS` estimated tokens with a clock near its start."""
    rng = random.Random(seed)
    words = " ".join(rng.choice(_WORDS) for _ in range(TOKENS))
    return f"You help people. It is {clock}. {words}"[: TOKENS * 4]


def call(clock: str, seed: int = 1) -> Call:
    """A call whose prompt has 40,000 tokens."""
    system = {"role": "system", "content": system_of(clock, seed)}
    made = call_of(messages=[system, {"role": "user", "content": "hi"}])
    made.note.usage = Usage(TOKENS, 10)
    return made


async def hand_over(times: int = 200) -> float:
    """Seconds on the event loop for one call: what a request pays."""
    doctor = Doctoring(PrometheusObserver(), rest=1e9)
    one = call("15:09:20")
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        doctor.hand(one)
        took.append(time.perf_counter() - begun)
    doctor.close()
    return statistics.median(took)


def off_path(prompts: list[Outline]) -> float:
    """Seconds of the thread for one prompt, the first left out."""
    doctor = Doctor(b"k" * 16)
    took = []
    for at, outline in enumerate(prompts):
        begun = time.thread_time()
        doctor.see(Prompted("t", "r", outline, None, float(at)))
        took.append(time.thread_time() - begun)
    return statistics.median(took[1:])


def outlines(make: Callable[[int], list[dict[str, str]]], times: int = 9) -> list[Outline]:
    """Outlines of chat bodies."""
    return [outline_of(Api.CHAT, {"model": "gpt-5.6", "messages": make(at)}) for at in range(times)]


def grown(at: int) -> list[dict[str, str]]:
    """A conversation of 40,000 tokens and `at` turns more."""
    said = [system_of("15:09:20", seed)[: TOKENS // 10] for seed in range(40 + 2 * at)]
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=5)
    seeds = options.parse_args().seeds
    print("| seed | pairs | place | cause | place, newer text only | cause, newer text only |")
    print("|---|---|---|---|---|---|")
    for seed, row in zip(
        range(SEED, SEED + seeds), quality(range(SEED, SEED + seeds)), strict=True
    ):
        print(f"| {seed} | {' | '.join(map(str, row))} |")
    changing = outlines(lambda at: [{"role": "system", "content": system_of(f"15:09:{at + 10}")}])
    print("| 40,000 tokens | ms, p50 |")
    print("|---|---|")
    print(f"| on the request path: the hand-over | {asyncio.run(hand_over()) * 1e3:.3f} |")
    print(f"| in the thread: all of it is new | {off_path(changing) * 1e3:.1f} |")
    print(f"| in the thread: a conversation that goes on | {off_path(outlines(grown)) * 1e3:.1f} |")


if __name__ == "__main__":
    main()
