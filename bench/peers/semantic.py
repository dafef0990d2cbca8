"""Trivet's semantic chains beside vCache and GPTCache: `python -m bench.peers.semantic`.

The same questions in the same order with the same vectors go to all of them. Reads the labelled
sets in ../shared/data, which are not part of the project. README.md says how to install the peers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.peer import Peer, Setting, python_of
from bench.peers.stream import (
    Counts,
    Question,
    Replay,
    answers_by_intent,
    answers_by_pair,
    as_traffic,
    count,
    in_pairs,
    most_hits,
    together,
)
from bench.semantic_quality import DATA, KeptEmbedder
from trivet.eval.pair_files import load_pairs
from trivet.policies.calibration import Chain as ChainName
from trivet.semantic.embedders import open_embedder
from trivet.semantic.verifiers import open_chain

if TYPE_CHECKING:
    from trivet.semantic.types import Embedder, Vectors

SETS = ("fow", "mqp", "qqp", "clinc150", "banking77", "hwu64")
BY_INTENT = frozenset({"clinc150", "banking77", "hwu64"})
TRAFFIC = ("clinc150", "hwu64")
"""Sources in intents/gating.jsonl with 30 or more texts for each intent."""
LONGEST = 2000
"""Pairs of a set that are played, from its beginning; qqp has more, shuffled."""
CHAINS: tuple[ChainName, ...] = ("cosine", "rules", "verifier")
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "vcache": tuple({"delta": delta} for delta in (0.01, 0.02, 0.05, 0.1)),
    "gptcache": tuple({"similarity_threshold": at} for at in (0.8, 0.9, 0.95, 0.975, 0.99)),
}
SEEDS = {"vcache": (1, 2, 3)}
"""For those that draw random numbers: the runs are counted together."""
TITLES = {"gptcache": "GPTCache", "vcache": "vCache"}
VECTORS = Path(tempfile.gettempdir()) / "trivet-peers-vectors"


@dataclass(frozen=True, slots=True)
class Stream:
    """One data set as it is played."""

    name: str
    questions: list[Question]


@dataclass(frozen=True, slots=True)
class Point:
    """A peer at one setting, and the most hits of each chain at no more false among hits."""

    peer: str
    setting: Setting
    found: Counts
    """Of all its runs together."""
    chains: dict[ChainName, Counts]
    runs: int = 1

    @property
    def more(self) -> float:
        """Hits of the best chain beyond the peer's in a run."""
        return max(one.hits for one in self.chains.values()) - self.found.hits / self.runs


def streams() -> Iterator[Stream]:
    """Every set that is there: pair by pair, then the intents as traffic."""
    for name in SETS:
        path = DATA / "pairs" / f"{name}.jsonl"
        if path.exists():
            pairs = load_pairs(path).pairs[:LONGEST]
            answers = (answers_by_intent if name in BY_INTENT else answers_by_pair)(pairs)
            yield Stream(f"{name}, pair by pair", in_pairs(pairs, answers))
    path = DATA / "intents" / "gating.jsonl"
    if path.exists():
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for source in TRAFFIC:
            intents = {row["text"]: row["intent"] for row in rows if row["source"] == source}
            yield Stream(f"{source}, as traffic", as_traffic(shuffled(intents), intents))


def shuffled(texts: Sequence[str] | dict[str, str]) -> list[str]:
    """The texts in the order of their hashes: the same everywhere."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def measure(
    stream: Stream, embedder: Embedder, peers: Sequence[Peer], chains: Sequence[ChainName]
) -> Iterator[Point]:
    """Play the stream to every peer at every setting, and to the chains at all thresholds."""
    vectors: Vectors = embedder.embed([one.text for one in stream.questions])
    measured = [
        (peer.name, setting, played(peer, setting, stream, vectors))
        for peer in peers
        for setting in SETTINGS[peer.name]
    ]
    curves = {
        name: Replay(open_chain(name, embedder), stream.questions, vectors).curve()
        for name in chains
    }
    for name, setting, runs in measured:
        found = together(runs)
        best = {chain: most_hits(curve, found.among_hits) for chain, curve in curves.items()}
        yield Point(name, setting, found, best, len(runs))


def played(peer: Peer, setting: Setting, stream: Stream, vectors: Vectors) -> list[Counts]:
    """Counts of a peer at a setting, one for each seed that it has."""
    seeds = SEEDS.get(peer.name, ())
    settings: list[Setting] = [{**setting, "seed": seed} for seed in seeds] or [setting]
    return [count(stream.questions, peer.play(one, stream.questions, vectors)) for one in settings]


def title(stream: Stream) -> str:
    """The stream in words."""
    found = count(stream.questions, [None] * sum(one.asked for one in stream.questions))
    stored = sum(not one.asked for one in stream.questions)
    return (
        f"**{stream.name}**: {stored} stored, {found.asked} asked, of which {found.answerable} "
        "have the same answer as one before."
    )


def head(chains: Sequence[ChainName]) -> str:
    """The first two rows of a table."""
    names = ("cache", "hits", "false", "false among hits", "false over all", *chains)
    return "| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|"


def line(point: Point) -> str:
    """A row of the table."""
    found = point.found
    setting = ", ".join(f"{name} {value}" for name, value in point.setting.items())
    cells = [
        f"{TITLES[point.peer]}, {setting}",
        mean(found.hits, point.runs),
        mean(found.false_hits, point.runs),
        f"{100 * found.among_hits:.1f} %",
        f"{100 * found.over_all:.1f} %",
        *(f"{one.hits} ({one.false_hits})" for one in point.chains.values()),
    ]
    return "| " + " | ".join(cells) + " |"


def mean(total: int, runs: int) -> str:
    """A whole number where it is one."""
    return f"{total / runs:.1f}".removesuffix(".0")


def summary(points: Sequence[Point]) -> Iterator[str]:
    """For each peer: points, at how many of them the best chain has more hits, as many or fewer,
    and at how many the peer serves nothing right, where more is easily had."""
    for name in dict.fromkeys(point.peer for point in points):
        own = [point for point in points if point.peer == name]
        more = [point.more for point in own]
        yield (
            f"| {TITLES[name]} | {len(more)} | {sum(one > 0 for one in more)} | "
            f"{sum(one == 0 for one in more)} | {sum(one < 0 for one in more)} | "
            f"{sum(not point.found.hits for point in own)} |"
        )


def installed() -> list[Peer]:
    """The peers that are there; says which are not."""
    found = []
    for name in SETTINGS:
        python = python_of(name)
        if python is None:
            print(f"{TITLES[name]} is not installed beside this: see bench/peers/README.md")
        else:
            found.append(Peer(name, python))
    return found


def main() -> None:
    """Print a table for each stream, and the summary."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.semantic", description=__doc__)
    parser.add_argument("--only", metavar="WORD", default="", help="Streams whose name has it.")
    parser.add_argument("--vectors", type=Path, metavar="FOLDER", default=VECTORS)
    parser.add_argument("--chain", choices=CHAINS, action="append", help="Only these chains.")
    flags = parser.parse_args()
    chains: Sequence[ChainName] = flags.chain or CHAINS
    embedder = KeptEmbedder(open_embedder("default"), flags.vectors)
    points: list[Point] = []
    with ExitStack() as stack:
        peers = [stack.enter_context(peer) for peer in installed()]
        for stream in streams():
            if flags.only not in stream.name:
                continue
            print(f"{title(stream)}\n\n{head(chains)}", flush=True)
            for point in measure(stream, embedder, peers, chains):
                points.append(point)
                print(line(point), flush=True)
            embedder.keep()
            print()
    print("| best chain against | points | more hits | as many | fewer | it serves nothing right |")
    print("|---" * 6 + "|")
    print("\n".join(summary(points)))


if __name__ == "__main__":
    main()
