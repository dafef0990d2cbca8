"""From generations to a reply: the choices of one request, gathered or streamed as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from trivet.errors import RequestError
from trivet.prefix.engine.sequence import Finish
from trivet.prefix.engine.timings import Stopwatch

_AHEAD = 8
"""Outputs of one choice that may wait for the caller to read; the rest waits in the engine."""

_ENDED = {
    "error": (
        500,
        "The model failed on this request: its logits were not numbers, or its step failed;"
        " the engine's log says which.",
        "engine_error",
    ),
    "grammar": (
        500,
        "The answer cannot go on within its JSON schema: the model has no token that is allowed"
        " next, or the schema grew too large to follow.",
        "schema_not_followed",
    ),
    "deadline": (504, "The answer was not ready in time.", "deadline_exceeded"),
    "cancelled": (503, "The engine stopped this request.", "cancelled"),
}
"""How a generation ends that has no answer: status, sentence, code."""

FAILURES = frozenset(code for _, _, code in _ENDED.values())
"""Codes of requests that were taken, and ended without an answer."""


class Output(Protocol):
    """What the engine hands over at a time; see `engine.Output`."""

    @property
    def text(self) -> str: ...

    @property
    def logprobs(self) -> Sequence[Any] | None: ...

    @property
    def finish(self) -> Finish | None: ...

    @property
    def output_tokens(self) -> int: ...


class Generation(Protocol):
    """One sequence in the engine; see `engine.Generation`."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    def __aiter__(self) -> AsyncIterator[Any]: ...

    def cancel(self) -> None: ...


class Choice:
    """One answer to one of the request's prompts, as far as it has come."""

    def __init__(self, index: int, prompt: int, generation: Generation, watch: Stopwatch) -> None:
        self.index = index
        self.prompt = prompt
        """Which of the request's prompts it answers."""
        self.generation = generation
        self.text = ""
        self.logprobs: list[Any] = []
        self.finish: Finish | None = None
        self.stopped_by: str | None = None
        """The stop string that ended it."""
        self.tokens = 0
        self._watch = watch

    def take(self, output: Any) -> None:
        """Add what came. Raises `RequestError` where the engine gave the answer up."""
        self.text += output.text
        self.logprobs += output.logprobs or ()
        self.tokens = output.output_tokens
        self._watch.tokens(self.tokens)
        if output.finish is not None:
            self.finish = output.finish
            self.stopped_by = output.stopped_by
            self.check()

    def check(self) -> None:
        """Raise `RequestError` where there is no answer, or not all of it."""
        if self.finish not in ("stop", "length"):
            status, message, code = _ENDED[self.finish or "cancelled"]
            raise RequestError(status, message, code=code)


class Writer(Protocol):
    """Writes the answer of one API: the events of a stream, or one body."""

    id_header: str

    def start(self, choices: Sequence[Choice]) -> bytes:
        """The events before the first text; the prompts' cached tokens are known."""
        ...

    def piece(self, choice: Choice, output: Any) -> bytes:
        """The events of what came for one choice."""
        ...

    def end(self, choices: Sequence[Choice]) -> bytes:
        """The events behind the last text."""
        ...

    def broken(self, failed: RequestError) -> bytes:
        """The event that says why the stream ends here."""
        ...

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """The answer as JSON."""
        ...


async def outputs(choices: Sequence[Choice]) -> AsyncGenerator[tuple[Choice, Any], None]:
    """What comes for all of the choices, in the order of its coming, until all have ended.

    Raises `RequestError` as soon as one of them fails: an answer of fewer choices is none.
    """
    if len(choices) == 1:
        choice = choices[0]
        async for output in choice.generation:
            choice.take(output)
            yield choice, output
        return
    queue: asyncio.Queue[tuple[Choice, Any] | Exception | None] = asyncio.Queue(_AHEAD)
    pumps = [asyncio.create_task(_pump(choice, queue)) for choice in choices]
    try:
        open_choices = len(choices)
        while open_choices:
            item = await queue.get()
            if item is None:
                open_choices -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                item[0].take(item[1])
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    choice: Choice, queue: asyncio.Queue[tuple[Choice, Any] | Exception | None]
) -> None:
    try:
        async for output in choice.generation:
            await queue.put((choice, output))
        await queue.put(None)
    except Exception as error:  # whatever it is, it is raised to the reader of the queue
        await queue.put(error)


async def gathered(choices: Sequence[Choice]) -> None:
    """Wait until every choice is complete. Raises `RequestError` where one fails."""
    async with aclosing(outputs(choices)) as coming:
        async for _ in coming:
            pass
    for choice in choices:
        choice.check()


async def streamed(choices: Sequence[Choice], writer: Writer) -> AsyncGenerator[bytes, None]:
    """The events of the whole answer. Raises `RequestError` where a choice fails.

    The first event waits for the first token: until then a failure can be told by a status.
    """
    started = False
    async with aclosing(outputs(choices)) as coming:
        async for choice, output in coming:
            head = b"" if started else writer.start(choices)
            started = True
            if events := head + writer.piece(choice, output):
                yield events
    for choice in choices:
        choice.check()
    yield writer.end(choices)
