"""One request inside the engine: its tokens, its blocks, and how far its KV is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.hashing import BlockChain, BlockHash

Finish = Literal["stop", "length", "cancelled", "deadline", "error", "grammar"]
"""`error`: the model or a step failed. `grammar`: nothing may follow what was said so far."""


class Sequence:
    """Prompt and answer of one request. Of the engine's thread alone."""

    __slots__ = (
        "arrived", "awaits", "cached_tokens", "chain", "computed", "deadline", "number", "params",
        "preempted", "prompt_tokens", "refused_at", "reuse", "table", "tenant", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        tenant: str,
        chain: BlockChain,
        tokens: list[int],
        params: SamplingParams,
        arrived: float,
    ) -> None:
        self.number = number
        """Grows with every request: the order of arrival."""
        self.tenant = tenant
        """Whose account its blocks are on; shown in metrics, so no secret."""
        self.chain = chain
        """Of `tokens`; grows with them through `BlockPool.append`."""
        self.tokens = tokens
        """Prompt, then what was generated."""
        self.prompt_tokens = len(tokens)
        self.params = params
        self.arrived = arrived
        """By the engine's clock, seconds, as `deadline`."""
        self.deadline: float | None = None
        self.table: BlockTable | None = None
        """None while it waits: then it holds no block."""
        self.computed = 0
        """Leading tokens whose KV is written."""
        self.cached_tokens = 0
        """Prompt tokens that were found in the cache when it was first admitted."""
        self.preempted = False
        """It was running before and has to compute its KV again."""
        self.reuse = True
        """Whether cached prefixes may be used; if not, all its KV is computed anew."""
        self.awaits: BlockHash | None = None
        """The block that another sequence is computing and that this one waits for."""
        self.refused_at = -1
        """The scheduler's count of releases when it last found too few blocks."""

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens `start..stop` of a sequence, to be computed in one step.

    All before `start` have their KV. `sampled` says that the chunk ends with the sequence's last
    token, so that its logits are wanted.
    """

    sequence: Sequence
    start: int
    stop: int

    @property
    def sampled(self) -> bool:
        """Whether the next token is drawn from the logits of its last one."""
        return self.stop == len(self.sequence.tokens)
