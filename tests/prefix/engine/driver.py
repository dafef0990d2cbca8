"""The least that drives a runner: no scheduler, no cache, tables made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trivet.prefix.engine.runner import Piece, Runner


def scattered(sequences: int, blocks: int) -> list[list[int]]:
    """Tables of `blocks` blocks each that lie between each other, last block first."""
    return [list(range(at, sequences * blocks, sequences))[::-1] for at in range(sequences)]


def prefill(
    runner: Runner, tokens: Sequence[int], blocks: Sequence[int], chunk: int, start: int = 0
) -> torch.Tensor:
    """The last token's logits; `start` tokens have their KV already."""
    logits = torch.empty(0)
    for at in range(start, len(tokens), chunk):
        some = tokens[at : at + chunk]
        logits = runner.run([Piece(some, at, blocks, wants_logits=True)])
    return logits


def greedy(
    runner: Runner, prompts: Sequence[Sequence[int]], count: int, *, chunk: int = 16
) -> list[list[int]]:
    """`count` tokens behind each prompt; all are decoded in one batch, each in its own blocks."""
    size = runner.memory.block_size
    tables = scattered(len(prompts), -(-(max(map(len, prompts)) + count) // size))
    rows = [
        prefill(runner, prompt, table, chunk) for prompt, table in zip(prompts, tables, strict=True)
    ]
    drawn = [torch.cat(rows).argmax(-1).tolist()]
    for at in range(count - 1):
        pieces = [
            Piece([token], len(prompt) + at, table, wants_logits=True)
            for token, prompt, table in zip(drawn[-1], prompts, tables, strict=True)
        ]
        drawn.append(runner.run(pieces).argmax(-1).tolist())
    return [list(tokens) for tokens in zip(*drawn, strict=True)]
