"""The nouns every layer shares: who asks, what is asked, what came back, what it cost.

All of them are tuples: they cannot be altered, and a frozen dataclass takes three times as long to
make. Nothing here does I/O, and nothing here knows a web framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, NewType

ExactKey = NewType("ExactKey", bytes)
"""A full SHA-256 digest, 32 bytes."""


class Api(StrEnum):
    """The five API kinds with a dialect of their own; the value is the name in keys and metrics."""

    CHAT = "chat"
    RESPONSES = "responses"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"

    # An enum's own hash is a Python function, and not that of the text which it equals.
    __hash__ = str.__hash__


class Scope(NamedTuple):
    """Whose answer this is. `tenant` comes from the credential, `user` only where policy says."""

    tenant: str
    user: str | None = None


class Usage(NamedTuple):
    """Tokens of one answer, normalised.

    `input_tokens` is the whole prompt, cache reads and writes included (Anthropic reports the
    three apart, OpenAI reports the sum: https://platform.claude.com/docs/en/build-with-claude/
    prompt-caching, https://platform.openai.com/docs/guides/prompt-caching). Unknown usage is
    `None` in place of a `Usage`, never zeros.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_long_tokens: int = 0
    """Of `cache_write_tokens`, those of the longer lifetime (Anthropic's 1h, OpenAI's 12h)."""


class Request(NamedTuple):
    """One decoded request: the small facts the tiers decide on, and the bytes to forward.

    The parsed body is not kept: everything that the tiers need was derived from it once, so that
    a large body can be decoded in another process and only this comes back.
    """

    api: Api
    model: str
    stream: bool
    forward: bytes
    """What goes upstream: the body as it came, unless a gateway-only field was stripped."""
    canonical: bytes
    """The body without transport fields, in canonical form (see `trivet.canonical`). Keyed and
    compared: two requests share an answer only if these bytes are equal."""
    include_usage: bool = False
    """The caller asked for the usage chunk of a chat or completions stream."""
    sampled: bool = False
    """The answer is drawn at random: temperature is not 0 and no seed is given."""
    tools: bool = False
    choices: int = 1
    """How many choices a complete answer has."""
    uncacheable: str | None = None
    """Why no cache may answer this request (`hosted-tool`, `stored-conversation`, ...)."""
    user: str | None = None
    """The end user that the body names, for policies whose user scope reads it from there."""
    json_answer: bool = False
    """The caller asked for JSON: an answer that does not parse is not stored."""
    schema: bytes | None = None
    """JSON Schema (as JSON) that the answer has to satisfy to be stored."""
    echo: Mapping[str, Any] = {}
    """Fields of this request that the API repeats in its answer (Responses: metadata, user, ...);
    a replay writes the current ones over the recorded ones."""
    keep_ids: bool = False
    """Ids of the answer name state that the provider keeps (stored Responses): never re-mint."""
    directives: Mapping[str, Any] = {}
    """LiteLLM's `cache: {...}` body field, as found; it was stripped from `forward`."""


class Answer(NamedTuple):
    """A complete, successful answer in its non-stream form."""

    body: bytes
    """JSON, compact, as the API answers when `stream` is false."""
    usage: Usage | None
    model: str
    """The model that served, as the answer names it."""
    ids: tuple[str, ...] = ()
    """Ids that a replay re-mints: the answer's own and its tool calls'."""


class NotStored(NamedTuple):
    """The answer was not stored, and this is why: a value, not an exception."""

    reason: str
