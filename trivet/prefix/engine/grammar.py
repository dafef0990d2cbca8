"""Answers that are JSON of a given schema: which tokens may come next, by llguidance.

llguidance (https://github.com/guidance-ai/llguidance, MIT) compiles JSON Schema to a grammar over
bytes and matches it with the tokenizer's vocabulary. What it does not support it refuses, so an
answer never satisfies less than its schema.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson
import torch

from trivet.errors import RequestError
from trivet.prefix.engine.schema_bounds import MOST_CHARACTERS, excess

_MOST_KEPT = 32
"""Compiled schemas; those used least recently go first."""

_MOST_KEPT_BY_SALT = 8
"""Of them, those of one salt: its own go before those of others do."""

_MOST_GRAMMAR, _MOST_LEXED = 100_000, 300_000
"""Of llguidance's own limits: a fifth and a third of what it takes by default."""

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
        self._compiled: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def warm(self) -> None:
        """Read the vocabulary, which takes up to a second, before the first schema needs it.

        A tokenizer that cannot be used says so then, to whoever asks.
        """
        with self._lock, suppress(RequestError):
            self._vocabulary_table()

    def start(self, schema: str, salt: str) -> GrammarState:
        """The beginning of an answer of this JSON Schema (JSON text).

        What was compiled for a salt is used for it alone: how long it takes would tell others
        which schemas it has. Raises `RequestError` 400 for a schema that cannot be compiled.
        """
        name = salt, schema
        with self._lock:
            matcher = self._compiled.get(name)
            if matcher is None:
                matcher = self._compiled[name] = self._compile(schema)
                self._drop(salt)
            else:
                self._compiled.move_to_end(name)
            return GrammarState(matcher.deep_copy())

    def _drop(self, salt: str) -> None:
        own = [name for name in self._compiled if name[0] == salt]
        if len(own) > _MOST_KEPT_BY_SALT:
            del self._compiled[own[0]]
        if len(self._compiled) > _MOST_KEPT:
            self._compiled.popitem(last=False)

    def _compile(self, schema: str) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        if reason := _excess(schema):
            raise _refused(reason)
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_OPTIONS)
        except ValueError as error:
            raise _refused(str(error)[:300]) from None
        limits = LLParserLimits(
            max_grammar_size=_MOST_GRAMMAR, initial_lexer_fuel=_MOST_LEXED, verbose_errors=False
        )
        table = self._vocabulary_table()
        matcher = LLMatcher(table, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(str(matcher.get_error()).strip()[:300])
        if not any(matcher.deep_copy().compute_bitmask()):
            raise _refused("no token of this model begins an answer of it")
        return matcher

    def _vocabulary_table(self) -> Any:
        if self._table is None:
            self._table = self._read_vocabulary()
        return self._table

    def _read_vocabulary(self) -> Any:
        from llguidance.hf import from_tokenizer

        try:
            return from_tokenizer(
                self._tokenizer, n_vocab=self._vocabulary, eos_token=self._end_tokens or None
            )
        except ValueError as error:
            message = f"This model's tokenizer has no JSON mode: {error}"
            raise RequestError(400, message, field="response_format") from None


def _excess(schema: str) -> str:
    if len(schema) > MOST_CHARACTERS:
        return f"it has more than {MOST_CHARACTERS} characters"
    try:
        return excess(orjson.loads(schema))
    except orjson.JSONDecodeError as error:
        return f"it is no JSON: {error}"


def _refused(why: str) -> RequestError:
    message = f"The JSON schema of this request cannot be used: {why}"
    return RequestError(400, message, field="response_format", code="invalid_schema")
