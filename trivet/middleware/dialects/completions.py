"""OpenAI Completions (legacy): `POST /v1/completions`.

Field list: openai-python 3.57 `types/completion_create_params.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, Api, NotStored, Request
from trivet.middleware.dialects import openai_shapes as shapes
from trivet.middleware.dialects.answers import json_fault
from trivet.middleware.dialects.base import Headers, Recorder, StoreRules
from trivet.middleware.dialects.deltas import DeltaError
from trivet.middleware.dialects.openai_record import (
    ChunkRecorder,
    Fault,
    answer_fault,
    choice_error,
    finish_fault,
    follow_chunk,
    keep,
    record_json,
    says_more,
)
from trivet.middleware.dialects.openai_replay import Frames
from trivet.middleware.dialects.pieces import text_pieces

OBJECT = "text_completion"

FIELDS = shapes.Fields(
    transport=shapes.SERVER_TRANSPORT | {"stream", "user"},
    numbers=shapes.SERVER_NUMBERS
    | {
        "best_of",
        "frequency_penalty",
        "logprobs",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "temperature",
        "top_p",
    },
    nullable=frozenset(
        (
            "best_of",
            "echo",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_tokens",
            "n",
            "presence_penalty",
            "seed",
            "stop",
            "suffix",
            "temperature",
            "top_p",
        )
    ),
)

_CHOICE = frozenset(("index", "text", "logprobs", "finish_reason"))


class CompletionsDialect:
    """The `base.Dialect` of Completions."""

    api = Api.COMPLETIONS
    path = "/v1/completions"
    request_id_header = "x-request-id"
    asks_usage = True

    def decode(self, raw: bytes, headers: Headers) -> Request:
        """Read a request. Raises `RequestError` naming the field that is wrong."""
        body, directives, forward = shapes.read(raw)
        shapes.check(body, FIELDS)
        json_answer, schema = shapes.wanted_json(body)
        return Request(
            api=self.api,
            model=body["model"],
            stream=bool(body.get("stream")),
            forward=forward,
            canonical=canonical.dump(shapes.keyed(body, FIELDS)),
            include_usage=shapes.include_usage(body),
            sampled=shapes.is_sampled(body),
            choices=shapes.count(body) * _prompts(body),
            uncacheable="kv-transfer" if body.get("kv_transfer_params") else None,
            user=shapes.end_user(body),
            json_answer=json_answer,
            schema=schema,
            directives=directives,
        )

    def record(self, request: Request, body: bytes, rules: StoreRules) -> Answer | NotStored:
        """Judge a 2xx JSON answer."""
        return record_json(body, lambda value: fault_of(value, request), rules)

    def recorder(self, request: Request) -> Recorder:
        """A recorder for a 2xx event stream that answers `request`."""
        return CompletionsRecorder(request)

    def render_json(self, answer: Answer, request: Request) -> bytes:
        """The answer's body as it was recorded."""
        return answer.body

    def render_stream(self, answer: Answer, request: Request) -> bytes:
        """The answer as a complete event stream, `[DONE]` included."""
        value = orjson.loads(answer.body)
        frames = Frames(value, OBJECT, request.include_usage)
        for choice in sorted(value["choices"], key=lambda choice: int(choice["index"])):
            frames.extend([orjson.dumps(chunk) for chunk in _chunks(choice)])
        return frames.render()

    def follow(self, event: bytes, request: Request) -> bytes:
        """An event of another caller's live stream, without that one's own fields."""
        return follow_chunk(event)

    def error(self, status: int, message: str, *, field: str | None, code: str | None) -> bytes:
        """An error body as OpenAI shapes it."""
        return shapes.error_body(status, message, field, code)


def _prompts(body: dict[str, Any]) -> int:
    """How many prompts the body has: each gets `n` choices."""
    if "prompt" not in body and "prompt_embeds" not in body:
        raise RequestError(400, "'prompt' is missing.", field="prompt")
    prompt = body.get("prompt")
    if type(prompt) not in (str, list, type(None)) or prompt == []:
        raise RequestError(
            400, "'prompt' must be a string, a non-empty array, or null.", field="prompt"
        )
    if type(prompt) is not list or type(prompt[0]) is int:
        return 1
    return len(prompt)


def fault_of(value: Any, request: Request) -> Fault:
    """Why a completion is not stored, the first reason found; None if it is complete."""
    fault = answer_fault(value, OBJECT, request)
    if fault is not None:
        return fault
    for choice in value["choices"]:
        fault = _choice_fault(choice, request)
        if fault is not None:
            return fault
    return None


def _choice_fault(choice: dict[str, Any], request: Request) -> Fault:
    if choice_error(choice):
        return "upstream-error"
    fault = finish_fault(choice.get("finish_reason"))
    if fault is not None:
        return fault
    if choice["finish_reason"] != "stop":
        return "finish-other"
    text = choice.get("text")
    if type(text) is not str:
        return "wrong-object"
    if not text or text.isspace():
        return "empty"
    return json_fault(text, request.schema) if request.json_answer else None


class _Choice:
    """One choice of a stream, as far as it has come."""

    __slots__ = ("extras", "finish", "logprobs", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.finish: Any = None
        self.logprobs: dict[str, Any] | None = None
        self.extras: dict[str, Any] = {}

    def take(self, choice: dict[str, Any]) -> None:
        text, reason = choice.get("text"), choice.get("finish_reason")
        if self.finish is not None and (text or says_more(choice.get("logprobs"))):
            raise DeltaError("a choice went on after its end")
        if type(text) is str:
            self.texts.append(text)
        elif text is not None:
            raise DeltaError("a text is something else")
        if reason is not None:
            if self.finish is not None and self.finish != reason:
                raise DeltaError("a choice ended twice")
            self.finish = reason
        self._add_logprobs(choice.get("logprobs"))
        for name, value in choice.items():
            if name not in _CHOICE:
                keep(self.extras, name, value)

    def _add_logprobs(self, logprobs: Any) -> None:
        if logprobs is None:
            return
        if type(logprobs) is not dict:
            raise DeltaError("logprobs are something else")
        if self.logprobs is None:
            self.logprobs = {}
        for name, value in logprobs.items():
            held = self.logprobs.get(name)
            if type(held) is list and type(value) is list:
                held.extend(value)
            elif value is not None or name not in self.logprobs:
                self.logprobs[name] = value

    def settled(self, index: int) -> dict[str, Any]:
        return {
            "text": "".join(self.texts),
            "index": index,
            "logprobs": self.logprobs,
            "finish_reason": self.finish,
            **self.extras,
        }


class CompletionsRecorder(ChunkRecorder):
    """Recorder of a completion stream."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, OBJECT)
        self._choices: dict[int, _Choice] = {}

    def _choose(self, index: int, choice: dict[str, Any]) -> None:
        held = self._choices.get(index)
        if held is None:
            if not 0 <= index < self._request.choices:
                raise DeltaError("a choice that was not asked for")
            held = self._choices[index] = _Choice()
        held.take(choice)

    def _answer(self) -> tuple[str, list[dict[str, Any]]]:
        return OBJECT, [self._choices[index].settled(index) for index in sorted(self._choices)]

    def _judge(self, value: dict[str, Any], rules: StoreRules) -> Fault:
        return fault_of(value, self._request)


def _chunks(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index, logprobs = choice["index"], choice.get("logprobs")
    pieces = _cut(choice["text"], logprobs)
    for text, part in pieces:
        yield {"text": text, "index": index, "logprobs": part, "finish_reason": None}
    end = {"text": "", "index": index, "logprobs": None, **choice}
    end.update(text="", logprobs=None)
    yield end


def _cut(text: str, logprobs: Any) -> Iterator[tuple[str, Any]]:
    """The text in pieces with their logprobs: by token if the tokens spell the text."""
    if not logprobs:
        yield from ((piece, None) for piece in text_pieces(text))
        return
    lists = {name: items for name, items in logprobs.items() if type(items) is list}
    tokens = lists.get("tokens") or []
    if "".join(map(str, tokens)) != text or any(len(v) != len(tokens) for v in lists.values()):
        yield text, logprobs
        return
    for place, token in enumerate(tokens):
        part = {name: [items[place]] for name, items in lists.items()}
        yield token, {**logprobs, **part}
