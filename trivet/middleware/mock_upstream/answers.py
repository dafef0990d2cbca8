"""The answer as such, before a dialect gives it a form: a function of the request and no more.

Each dialect reads a request into an `Asked`; `compose` makes a `Draft` of each choice; the dialect
writes it as JSON, and derives its stream from that JSON.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from trivet import canonical
from trivet.middleware.mock_upstream.commands import Commands
from trivet.middleware.mock_upstream.schema import example

Body = dict[str, Any]
Finish = Literal["stop", "length", "filter", "refusal", "tool"]
_draws = itertools.count(1)
_NESTED = ("cache_control", "prompt_cache_breakpoint")
_MAX_PIECES = 4096


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the request offers. `schema` is None for a custom (free text) tool."""

    name: str
    schema: Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the answer makes; `arguments` is JSON, or free text for a custom tool."""

    name: str
    arguments: str
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, in one shape for all dialects."""

    model: str
    digest: str
    """SHA-256 in hex over the body without transport fields: what the text echoes."""
    text: str
    """The last user text; empty when the conversation ends with a tool result."""
    sampled: bool
    choices: int = 1
    tools: tuple[Tool, ...] = ()
    forced: str | bool = False
    """Name of the tool that must be called, or True for any."""
    parallel: bool = True
    schema: Any = None
    """The schema of a JSON answer; True for any JSON object."""
    prompt_tokens: int = 1


@dataclass(frozen=True, slots=True)
class Draft:
    """One choice."""

    text: str
    finish: Finish
    tools: tuple[ToolCall, ...] = ()
    refused: bool = False


def digest_of(body: Body, transport: frozenset[str]) -> str:
    """SHA-256 in hex over everything in `body` that may shape the answer."""
    kept = {key: value for key, value in body.items() if key not in transport}
    packed = canonical.dump(canonical.envelope(kept))
    if any(name.encode() in packed for name in _NESTED):
        packed = canonical.dump(_without(canonical.envelope(kept)))
    return hashlib.sha256(packed).hexdigest()


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items() if key not in _NESTED}
    if isinstance(value, list):
        return [_without(inner) for inner in value]
    return value


def compose(asked: Asked, commands: Commands) -> list[Draft]:
    """The choices of one answer, in order."""
    draw = next(_draws) if asked.sampled else None
    return [_compose(asked, commands, index, draw) for index in range(asked.choices)]


def _compose(asked: Asked, commands: Commands, index: int, draw: int | None) -> Draft:
    if commands.empty:
        return Draft("", "stop")
    if commands.refusal:
        return Draft("Trivet's mock upstream was told to refuse this.", "refusal", refused=True)
    calls = tuple(_calls(asked))
    if calls:
        return Draft("", "tool", calls)
    text = _shaped(_text(asked, index, draw), asked, commands)
    return Draft(text, "length" if commands.length else "filter" if commands.filter else "stop")


def _text(asked: Asked, index: int, draw: int | None) -> str:
    text = f"Trivet's mock upstream, not a model, read {asked.digest[:16]} for {asked.model}."
    if asked.choices > 1:
        text += f" Choice {index + 1} of {asked.choices}."
    if draw is not None:
        text += f" Draw {draw}."
    return text


def _shaped(text: str, asked: Asked, commands: Commands) -> str:
    if commands.echo:
        return asked.text
    if asked.schema is not None:
        made = {"answer": text} if asked.schema is True else example(asked.schema, text)
        return orjson.dumps(made).decode()
    if commands.tokens is not None:
        words = [*text.split(), *itertools.repeat("word", max(0, commands.tokens))]
        return " ".join(words[: commands.tokens])
    if commands.bytes is not None:
        filler = " and so on" * (commands.bytes // 10 + 1)
        return (text + filler)[: commands.bytes]
    return text


def _calls(asked: Asked) -> Iterator[ToolCall]:
    wish = asked.text.lower()
    every = any(word in wish for word in ("every tool", "all tools", "tools in parallel"))
    if not asked.tools or not (asked.forced or every or "call a tool" in wish):
        return
    chosen = asked.tools
    if isinstance(asked.forced, str):
        chosen = tuple(tool for tool in chosen if tool.name == asked.forced)
    for tool in chosen if every and asked.parallel else chosen[:1]:
        if tool.schema is None:
            yield ToolCall(tool.name, f"mock input {asked.digest[:16]}", custom=True)
        else:
            made = example(tool.schema, f"mock {asked.digest[:16]}")
            yield ToolCall(tool.name, orjson.dumps(made).decode())


def pieces(text: str) -> list[str]:
    """`text` in pieces that join to it: a word with the space behind it counts as one token."""
    if not text:
        return []
    words = text.split(" ")
    tokens = [word + " " for word in words[:-1]] + ([words[-1]] if words[-1] else [])
    if len(tokens) <= _MAX_PIECES:
        return tokens
    size = -(-len(tokens) // _MAX_PIECES)
    return ["".join(tokens[at : at + size]) for at in range(0, len(tokens), size)]


def halves(text: str) -> list[str]:
    """`text` in two parts, neither of them empty where that can be."""
    middle = (len(text) + 1) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def count(text: str) -> int:
    """Tokens of `text`: its words."""
    return text.count(" ") + 1 if text else 0


def fresh(prefix: str) -> str:
    """An id that no other call got."""
    return prefix + secrets.token_hex(12)


def text_of(content: Any) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in parts if isinstance(text, str))


def is_sampled(body: Body) -> bool:
    """Whether a real model would draw this answer at random."""
    return body.get("temperature") != 0 and body.get("seed") is None


def logprobs_of(text: str, top: int) -> list[Body]:
    """Made-up log probabilities: one entry a token, `top` alternatives each."""
    return [
        {
            "token": token,
            "logprob": -0.25,
            "bytes": list(token.encode()),
            "top_logprobs": [
                {
                    "token": token if rank == 0 else f"alt{rank} ",
                    "logprob": -0.25 - rank,
                    "bytes": list((token if rank == 0 else f"alt{rank} ").encode()),
                }
                for rank in range(top)
            ],
        }
        for token in pieces(text)
    ]
