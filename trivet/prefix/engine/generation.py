"""The asyncio side of one request: what the engine's thread has for it, read at the reader's pace.

The engine never waits for a reader. What is not read yet is kept, which is an answer at most, and
is read in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trivet.prefix.engine.sampler import Drawn
from trivet.prefix.engine.sequence import Finish


@dataclass(frozen=True, slots=True)
class Output:
    """A part of an answer."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    """Those drawn since the part before; `text` may still hold back what they read as."""
    logprobs: tuple[Drawn, ...] | None = None
    """One for each of `tokens`; None if they were not asked for."""
    finish: Finish | None = None
    """Set in the last part."""
    output_tokens: int = 0
    """Tokens of the whole answer so far, a token that ends it included."""
    stopped_by: str | None = None
    """The stop string that ended it; it is in no part's text."""


class Generation:
    """One request's parts of an answer, for one reader on the event loop that submitted it."""

    def __init__(self, number: int, prompt_tokens: int, cancel: Callable[[int], None]) -> None:
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        """Prompt tokens that were found in the cache; known with the first part."""
        self.loop = asyncio.get_running_loop()
        self._number = number
        self._cancel = cancel
        self._parts: list[Output] = []
        self._ready = asyncio.Event()
        self._ended = False

    def cancel(self) -> None:
        """Nobody reads on: the engine ends it before its next step. Idempotent."""
        if not self._ended:
            self._cancel(self._number)

    def deliver(self, part: Output, cached_tokens: int) -> None:
        """On the event loop: one more part."""
        self.cached_tokens = cached_tokens
        self._parts.append(part)
        self._ready.set()

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Output:
        """All that came since the part before, as one; waits until there is something."""
        if self._ended:
            raise StopAsyncIteration
        await self._ready.wait()
        self._ready.clear()
        part = _joined(self._parts)
        self._parts = []
        self._ended = part.finish is not None
        return part


def _joined(parts: Sequence[Output]) -> Output:
    last = parts[-1]
    if len(parts) == 1:
        return last
    told = [part.logprobs for part in parts if part.logprobs is not None]
    return Output(
        "".join(part.text for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(drawn for some in told for drawn in some) if told else None,
        last.finish,
        last.output_tokens,
        last.stopped_by,
    )


class Mailbox:
    """Parts on their way from the engine's thread to event loops, sent once a step."""

    def __init__(self) -> None:
        self._parts: dict[asyncio.AbstractEventLoop, list[tuple[Generation, Output, int]]] = {}

    def put(self, generation: Generation, part: Output, cached_tokens: int) -> None:
        """To be sent with the others of this step."""
        parts = self._parts.setdefault(generation.loop, [])
        parts.append((generation, part, cached_tokens))

    def send(self) -> list[Generation]:
        """Wake each loop once. Returns the generations whose loop is closed."""
        gone: list[Generation] = []
        for loop, parts in self._parts.items():
            try:
                loop.call_soon_threadsafe(_deliver, parts)
            except RuntimeError:  # The loop is closed: there is no reader any more.
                gone += [generation for generation, _, _ in parts]
        self._parts = {}
        return gone


def _deliver(parts: Sequence[tuple[Generation, Output, int]]) -> None:
    for generation, part, cached_tokens in parts:
        generation.deliver(part, cached_tokens)
