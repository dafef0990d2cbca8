"""Writes a recorded chat completion as the stream of chunks that amounts to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from trivet.messages import Answer, Request
from trivet.middleware.dialects.chat_answers import CHUNK
from trivet.middleware.dialects.openai_replay import Frames
from trivet.middleware.dialects.pieces import text_pieces, token_pieces

_CHOICE = frozenset(("index", "message", "logprobs", "finish_reason"))
_OWN_TURN = frozenset(("role", "content", "refusal", "tool_calls", "function_call", "annotations"))
_FUNCTION, _CUSTOM = ("function", "arguments"), ("custom", "input")
_REASONING = frozenset(("reasoning", "reasoning_content", "thinking"))
"""Texts that are worth a stream; other texts of a provider's own go whole."""

Logprobs = dict[str, Any] | None


class Run(NamedTuple):
    """Consecutive deltas of one form: each is `before`, one of `values` as JSON, `after`."""

    before: bytes
    values: list[Any]
    after: bytes
    logprobs: list[Logprobs] | None = None
    """One for each value; None if there are none."""


def _one(delta: dict[str, Any]) -> Run:
    return Run(b"", [delta], b"")


def render(answer: Answer, request: Request) -> bytes:
    """The answer as a complete stream.

    Each choice in index order: the role once, texts in pieces, each tool call's id and name once,
    the finish. The official accumulators append what is repeated and need the first chunk of a
    choice free of logprobs.
    """
    value = orjson.loads(answer.body)
    frames = Frames(value, CHUNK, request.include_usage)
    for choice in sorted(value["choices"], key=lambda choice: int(choice["index"])):
        _render_choice(choice, frames)
    return frames.render()


def _render_choice(choice: dict[str, Any], frames: Frames) -> None:
    opening = b'{"index":%d,"delta":' % choice["index"]
    logprobs, given = choice.get("logprobs"), False
    for run in _runs(choice["message"], logprobs):
        before = opening + run.before
        if run.logprobs is None:
            after = run.after + b',"logprobs":null,"finish_reason":null}'
            frames.extend([before + orjson.dumps(value) + after for value in run.values])
            continue
        given = True
        between, after = run.after + b',"logprobs":', b',"finish_reason":null}'
        pairs = zip(run.values, run.logprobs, strict=True)
        frames.extend(
            [
                before + orjson.dumps(value) + between + orjson.dumps(tokens) + after
                for value, tokens in pairs
            ]
        )
    end = {"logprobs": None if given else logprobs, "finish_reason": choice["finish_reason"]}
    end.update((name, item) for name, item in choice.items() if name not in _CHOICE)
    frames.extend([opening + b"{}," + orjson.dumps(end)[1:]])


def _runs(message: dict[str, Any], logprobs: Logprobs) -> Iterator[Run]:
    """The deltas of one message, in the order of a live stream."""
    yield _one(_first(message))
    for name, value in message.items():
        if name not in _OWN_TURN and value is not None:
            yield _own(name, value)
    for name in ("content", "refusal"):
        text = message.get(name)
        if text:
            yield _spoken(name, text, logprobs)
            logprobs = None
    if logprobs and logprobs.get("content"):
        yield Run(b"", [{}], b"", [logprobs])
    yield from _calls(message)
    if message.get("annotations") is not None:
        yield _one({"annotations": message["annotations"]})


def _first(message: dict[str, Any]) -> dict[str, Any]:
    delta: dict[str, Any] = {name: None for name, value in message.items() if value is None}
    if message.get("content") is not None:
        delta["content"] = ""
    return {"role": message.get("role", "assistant"), **delta}


def _own(name: str, value: Any) -> Run:
    """A field of the provider's own: it precedes the content, as reasoning does."""
    if type(value) is str and value and name in _REASONING:
        return _texts(name, text_pieces(value))
    return _one({name: value})


def _texts(name: str, pieces: list[str], logprobs: list[Logprobs] | None = None) -> Run:
    return Run(b'{"%b":' % name.encode(), pieces, b"}", logprobs)


def _spoken(name: str, text: str, logprobs: Logprobs) -> Run:
    """Content or refusal, cut where the tokens cut it if they are known."""
    if not logprobs:
        return _texts(name, text_pieces(text))
    tokens = logprobs.get(name)
    other = any(item is not None for key, item in logprobs.items() if key != name)
    pieces = None if other or not tokens else token_pieces(text, tokens)
    if pieces is None:
        return _texts(name, [text], [logprobs])
    nulls: dict[str, Any] = dict.fromkeys(logprobs)
    groups: list[Logprobs] = [{**nulls, name: group} for _, group in pieces]
    return _texts(name, [piece for piece, _ in pieces], groups)


def _calls(message: dict[str, Any]) -> Iterator[Run]:
    calls = message.get("tool_calls")
    for index, call in enumerate(calls or ()):
        kind, text = _CUSTOM if call.get("type") == "custom" else _FUNCTION
        opening = {"index": index, **_without_index(call), kind: _opened(call[kind], text)}
        yield _one({"tool_calls": [opening]})
        before = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), text.encode())
        yield Run(before, text_pieces(call[kind].get(text, "")), b"}}]}")
    if calls == []:
        yield _one({"tool_calls": []})
    function = message.get("function_call")
    if function:
        yield _one({"function_call": _opened(function, "arguments")})
        yield Run(
            b'{"function_call":{"arguments":', text_pieces(function.get("arguments", "")), b"}}"
        )


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "index"}


def _opened(called: dict[str, Any], text: str) -> dict[str, Any]:
    """What a call begins with: its text empty."""
    return {**called, text: ""} if text in called else called
