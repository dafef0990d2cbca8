"""Which chat completions are stored, and how a stream of chunks becomes one."""

from __future__ import annotations

from typing import Any

from trivet.messages import Request
from trivet.middleware.dialects.answers import json_fault
from trivet.middleware.dialects.base import StoreRules, as_items, as_mapping
from trivet.middleware.dialects.deltas import DeltaError, merge, settle
from trivet.middleware.dialects.openai_record import (
    ChunkRecorder,
    Fault,
    answer_fault,
    choice_error,
    finish_fault,
    keep,
    says_more,
)

OBJECT = "chat.completion"
CHUNK = "chat.completion.chunk"

_TOKEN_LISTS = frozenset(("token_ids",))
"""Fields of a choice that vLLM sends in pieces, beside the delta."""
_PARTS = ("delta", "logprobs")
_TEXT = (str, type(None))


def fault_of(value: Any, request: Request, rules: StoreRules) -> Fault:
    """Why a chat completion is not stored, the first reason found; None if it is complete."""
    fault = answer_fault(value, OBJECT, request)
    if fault is not None:
        return fault
    for choice in value["choices"]:
        fault = _choice_fault(choice, request, rules)
        if fault is not None:
            return fault
    return None


def _choice_fault(choice: dict[str, Any], request: Request, rules: StoreRules) -> Fault:
    if choice_error(choice):
        return "upstream-error"
    fault = finish_fault(choice.get("finish_reason"))
    if fault is not None:
        return fault
    message = choice.get("message")
    if type(message) is not dict or message.get("role") not in (None, "assistant"):
        return "wrong-object"
    if message.get("audio"):
        return "audio"
    if type(message.get("content")) not in _TEXT or type(message.get("refusal")) not in _TEXT:
        return "unknown-content"
    if message.get("refusal"):
        return None if rules.refusals else "refusal"
    if message.get("tool_calls") or message.get("function_call"):
        return _calls_fault(message) if rules.tool_calls else "tool-calls"
    if choice["finish_reason"] != "stop":
        return "incomplete"
    content = message.get("content")
    if not content or content.isspace():
        return "empty"
    return json_fault(content, request.schema) if request.json_answer else None


def _calls_fault(message: dict[str, Any]) -> Fault:
    calls = message.get("tool_calls") or []
    if type(calls) is not list or not all(_is_call(call) for call in calls):
        return "invalid-tool-call"
    function = message.get("function_call")
    return None if not function or _is_function(function) else "invalid-tool-call"


def _is_call(call: Any) -> bool:
    if type(call) is not dict:
        return False
    if call.get("type") == "custom":
        custom = as_mapping(call.get("custom"))
        return bool(custom.get("name")) and type(custom.get("input")) is str
    return _is_function(call.get("function"))


def _is_function(function: Any) -> bool:
    name = as_mapping(function).get("name")
    arguments = as_mapping(function).get("arguments", "")
    if type(name) is not str or not name or type(arguments) is not str:
        return False
    # Some servers send "" for a function without parameters.
    return not arguments or json_fault(arguments, None) is None


def _object(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise DeltaError("an object is something else")
    return value


class _Choice:
    """One choice of a stream, as far as it has come."""

    __slots__ = ("extras", "finish", "logprobs", "message")

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.finish: Any = None
        self.logprobs: dict[str, Any] | None = None
        self.extras: dict[str, Any] = {}

    def take(self, choice: dict[str, Any]) -> None:
        if self.finish is not None and any(says_more(choice.get(part)) for part in _PARTS):
            raise DeltaError("a choice went on after its end")
        for name, value in choice.items():
            if name == "delta":
                merge(self.message, _object(value))
            elif name == "finish_reason":
                self._end(value)
            elif name == "logprobs":
                self._add_logprobs(value)
            elif name in _TOKEN_LISTS:
                self.extras.setdefault(name, []).extend(value or ())
            elif name != "index":
                keep(self.extras, name, value)

    def _end(self, reason: Any) -> None:
        if reason is None:
            return
        if self.finish is not None and self.finish != reason:
            raise DeltaError("a choice ended twice")
        self.finish = reason

    def _add_logprobs(self, logprobs: Any) -> None:
        if logprobs is None:
            return
        if self.logprobs is None:
            self.logprobs = {"content": None, "refusal": None}
        for name, value in _object(logprobs).items():
            held = self.logprobs.get(name)
            if type(held) is list and type(value) is list:
                held.extend(value)
            elif value is not None:
                self.logprobs[name] = value

    def settled(self, index: int) -> dict[str, Any]:
        merged = settle(self.message)
        message = {"role": merged.pop("role", None) or "assistant", "content": None, **merged}
        calls = message.get("tool_calls")
        if type(calls) is list:
            message["tool_calls"] = [_as_call(call) for call in calls]
        return {
            "index": index,
            "message": message,
            "logprobs": self.logprobs,
            "finish_reason": self.finish,
            **self.extras,
        }


def _as_call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call as it stands in a message: without the index that only deltas have."""
    rest = {name: value for name, value in call.items() if name not in ("index", "id", "type")}
    return {"id": call.get("id"), "type": call.get("type") or "function", **rest}


class ChatRecorder(ChunkRecorder):
    """Recorder of a chat completion stream."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, CHUNK)
        self._choices: dict[int, _Choice] = {}

    def _choose(self, index: int, choice: dict[str, Any]) -> None:
        held = self._choices.get(index)
        if held is None:
            if not 0 <= index < self._request.choices:
                raise DeltaError("a choice that was not asked for")
            held = self._choices[index] = _Choice()
        held.take(choice)
        for call in as_items(as_mapping(choice.get("delta")).get("tool_calls")):
            self._see(as_mapping(call).get("id"))

    def _answer(self) -> tuple[str, list[dict[str, Any]]]:
        return OBJECT, [self._choices[index].settled(index) for index in sorted(self._choices)]

    def _judge(self, value: dict[str, Any], rules: StoreRules) -> Fault:
        return fault_of(value, self._request, rules)
