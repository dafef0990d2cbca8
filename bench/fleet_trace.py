"""Conversations of many tenants, from a seed: who asks what when, in tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from trivet.prefix.routing.affinity import Steps

STEP = 256
"""Tokens of a router's block: 1,024 bytes."""


class Span(NamedTuple):
    """`tokens` of one text: equal names have equal tokens."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: what it holds in order, and how long the answer gets."""

    at: float
    conversation: int
    number: int
    spans: tuple[Span, ...]
    answer: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(span.tokens for span in self.spans)

    def blocks(self, size: int) -> list[int]:
        """Names of its full blocks of `size` tokens; equal ones have equal beginnings."""
        found, chain, filled = [], 0, 0
        for span in self.spans:
            left, offset, name = span.tokens, 0, crc32(span.name.encode())
            while filled + left >= size:
                taken = size - filled
                offset += taken
                chain = hash((chain, name, offset))
                found.append(chain)
                left, filled = left - taken, 0
            if left:
                chain = hash((chain, name, offset, left))
                filled += left
        return found

    def steps(self) -> Steps:
        """As the router sees it; see `trivet.prefix.routing.affinity`."""
        digests = tuple(block & (2**64 - 1) for block in self.blocks(STEP))
        tokens = tuple(STEP * at for at in range(1, len(digests) + 1))
        key = hash((self.conversation, 1)) & (2**64 - 1)
        settled = self.tokens - sum(span.tokens for span in self.spans[-2:]) if self.number else 0
        return Steps(digests, tokens, self.tokens, key, settled)


@dataclass(frozen=True)
class Shape:
    """What a trace is drawn from. Tokens are means of skewed draws; seconds are means."""

    conversations: int
    tenants: int
    rate: float
    """Conversations that begin in a second."""
    system: int = 1_500
    asked: int = 180
    answered: int = 220
    turns: float = 5.0
    gap_s: float = 40.0
    seed: int = 7
    skew: float = field(default=1.1)
    """Zipf's exponent of the tenants' shares."""


def trace(shape: Shape) -> list[Turn]:
    """The turns of all conversations by time."""
    draw = random.Random(shape.seed)
    shares = [1 / (at + 1) ** shape.skew for at in range(shape.tenants)]
    systems = [_around(draw, shape.system) for _ in range(shape.tenants)]
    begins, found = 0.0, list[Turn]()
    for conversation in range(shape.conversations):
        begins += draw.expovariate(shape.rate)
        tenant = draw.choices(range(shape.tenants), shares)[0]
        found += _conversation(
            draw, shape, begins, conversation, Span(f"s{tenant}", systems[tenant])
        )
    return sorted(found, key=lambda turn: turn.at)


def _conversation(
    draw: random.Random, shape: Shape, begins: float, number: int, system: Span
) -> list[Turn]:
    spans: list[Span] = [system]
    found, at, turn = [], begins, 0
    while True:
        spans.append(Span(f"{number}.{turn}", _around(draw, shape.asked)))
        answer = _around(draw, shape.answered)
        found.append(Turn(at, number, turn, tuple(spans), answer))
        if draw.random() < 1 / shape.turns:
            return found
        spans.append(Span(f"{number}.{turn}a", answer))
        at += draw.expovariate(1 / shape.gap_s) + answer * 0.02
        turn += 1


def _around(draw: random.Random, mean: float) -> int:
    """Log-normal with sigma 0.6: some are several times the mean."""
    return max(8, int(mean * draw.lognormvariate(-0.18, 0.6)))


def best_share(turns: Sequence[Turn], block: int) -> float:
    """Share of the tokens that one cache without end would have."""
    seen: set[int] = set()
    cached = total = 0
    for turn in turns:
        blocks = turn.blocks(block)
        hits = next((at for at, one in enumerate(blocks) if one not in seen), len(blocks))
        cached += min(hits, (turn.tokens - 1) // block) * block
        total += turn.tokens
        seen.update(blocks)
    return cached / total
