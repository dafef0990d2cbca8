"""Answers that are JSON of a given schema: which tokens may come next, by llguidance.

llguidance (https://github.com/guidance-ai/llguidance, MIT) compiles JSON Schema to a grammar over
bytes and matches it with the tokenizer's vocabulary. What it does not support it refuses, so an
answer never satisfies less than its schema.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch

from trivet.errors import RequestError

_MOST_KEPT = 64
"""Compiled schemas; those used least recently go first."""

_MOST_CHARACTERS = 256 * 1024
"""Of a schema: one of 300,000 characters took 0.4 s to compile."""

_OPTIONS: Any = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,32}"}
"""Between two tokens of JSON: a small model that may write blanks without end does."""


class GrammarState:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allowed(self, vocabulary: int) -> torch.Tensor:
        """Which tokens may come next: (vocabulary,) of bool, on the CPU."""
        packed = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
        found = bits.flatten().bool()
        allowed = torch.zeros(vocabulary, dtype=torch.bool)
        width = min(vocabulary, len(found))
        allowed[:width] = found[:width]
        return allowed

    def accept(self, token: int) -> bool:
        """The token was drawn. False if the grammar does not allow it or gave up."""
        return bool(self._matcher.consume_token(token))

    @property
    def complete(self) -> bool:
        """Nothing may follow but the end of the answer."""
        return bool(self._matcher.is_stopped())


class Grammars:
    """Compiles schemas for one tokenizer. For several threads."""

    def __init__(self, tokenizer: Any, vocabulary: int, end_tokens: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_tokens = sorted(end_tokens)
        self._lock = threading.Lock()
        self._table: Any = None
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def start(self, schema: str) -> GrammarState:
        """The beginning of an answer of this JSON Schema (JSON text).

        Takes milliseconds for a new schema, and about a second for the first of all, which reads
        the vocabulary. Raises `RequestError` 400 for a schema that cannot be compiled.
        """
        with self._lock:
            matcher = self._compiled.get(schema)
            if matcher is None:
                matcher = self._compiled[schema] = self._compile(schema)
                if len(self._compiled) > _MOST_KEPT:
                    self._compiled.popitem(last=False)
            else:
                self._compiled.move_to_end(schema)
            return GrammarState(matcher.deep_copy())

    def _compile(self, schema: str) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        if len(schema) > _MOST_CHARACTERS:
            raise _refused(f"it has more than {_MOST_CHARACTERS} characters")
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS)
        except ValueError as error:
            raise _refused(str(error)[:300]) from None
        if self._table is None:
            self._table = self._read_vocabulary()
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._table, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(str(matcher.get_error()).strip()[:300])
        return matcher

    def _read_vocabulary(self) -> Any:
        from llguidance.hf import from_tokenizer

        try:
            return from_tokenizer(
                self._tokenizer, n_vocab=self._vocabulary, eos_token=self._end_tokens or None
            )
        except ValueError as error:
            message = f"This model's tokenizer has no JSON mode: {error}"
            raise RequestError(400, message, field="response_format") from None


def _refused(why: str) -> RequestError:
    message = f"The JSON schema of 'response_format' cannot be used: {why}"
    return RequestError(400, message, field="response_format", code="invalid_schema")
