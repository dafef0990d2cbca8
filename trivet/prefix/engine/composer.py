"""One answer in the making: drawn tokens in, parts of its text out, and when it ends."""

from __future__ import annotations

from trivet.prefix.engine.generation import Output
from trivet.prefix.engine.grammar import GrammarState
from trivet.prefix.engine.sampler import Drawn, SamplerState
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.sequence import Finish
from trivet.prefix.engine.text import Decode, Detokenizer, StopStrings


class Composer:
    """Of the engine's thread alone. `params.max_tokens` fits the model's context."""

    def __init__(
        self,
        params: SamplingParams,
        end_tokens: frozenset[int],
        decode: Decode,
        grammar: GrammarState | None = None,
    ) -> None:
        self.sampler = SamplerState(params, grammar)
        self._params = params
        self._ends = frozenset() if params.ignore_eos else end_tokens
        self._grammar = grammar
        self._text = Detokenizer(decode)
        self._stops = StopStrings(params.stop)
        self._count = 0

    def take(self, drawn: Drawn) -> Output:
        """The next token was drawn; the part's `finish` says whether it is the last."""
        if self._grammar is not None and (drawn.failed or not self._grammar.accept(drawn.token)):
            # The logits were numbers, or no token would have been drawn from them.
            return self.end("grammar")
        if drawn.failed:
            return self.end("error")
        self._count += 1
        stopped = drawn.token in self._ends
        text = "" if stopped else self._stops.push(self._text.push(drawn.token))
        if self._grammar is not None and self._grammar.complete:
            stopped = True
        finish: Finish | None = "length" if self._count >= self._params.max_tokens else None
        if stopped or finish:
            text += self._stops.push(self._text.flush()) + self._stops.flush()
        if stopped or self._stops.met is not None:
            finish = "stop"
        told = None if self._params.logprobs is None else (drawn,)
        return Output(text, (drawn.token,), told, finish, self._count, self._stops.met)

    def end(self, finish: Finish) -> Output:
        """The last part of an answer that ends without a further token."""
        return Output(finish=finish, output_tokens=self._count)
