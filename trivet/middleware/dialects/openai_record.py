"""Records OpenAI chunk streams (chat and completions) as the answer they amount to."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, NotStored, Request
from trivet.middleware.dialects import openai_shapes as shapes
from trivet.middleware.dialects.base import (
    MAX_IDS,
    StoreRules,
    as_items,
    as_mapping,
    tells_error,
)
from trivet.middleware.dialects.bodies import compact
from trivet.middleware.dialects.deltas import DeltaError
from trivet.middleware.dialects.sse import data_of, fault_of, frame

Fault = str | None

NOT_KEPT = frozenset(("metadata", "kv_transfer_params", "obfuscation"))
"""Fields of an answer that belong to the one request that produced it."""

_NOT_SHARED = re.compile(rb'"(?:metadata|kv_transfer_params)"\s*:')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')

_INTEGER = frozenset((int,))
_FINISH: dict[Any, Fault] = {
    "stop": None,
    "tool_calls": None,
    "function_call": None,
    None: "incomplete",
    "length": "finish-length",
    "content_filter": "finish-content-filter",
}


def finish_fault(reason: Any) -> Fault:
    """Why a choice that ended with `reason` is not stored; None if it may be."""
    return _FINISH.get(reason, "finish-other") if isinstance(reason, str | None) else "finish-other"


def answer_fault(value: Any, kind: str, request: Request) -> Fault:
    """What is wrong with the frame of an answer: its object, an error in it, its choices."""
    if type(value) is not dict:
        return "wrong-object"
    if tells_error(value):
        return "upstream-error"
    if value.get("object") != kind:
        return "wrong-object"
    moderation = value.get("moderation")
    if moderation is not None and _is_flagged(moderation):
        return "moderation"
    indices: list[Any] = [
        as_mapping(choice).get("index") for choice in as_items(value.get("choices"))
    ]
    if not _INTEGER.issuperset(map(type, indices)):
        return "choices-mismatch"
    return None if sorted(indices) == list(range(request.choices)) else "choices-mismatch"


def _is_flagged(moderation: Any) -> bool:
    """Whether the provider's own moderation flagged either side, or did not complete."""
    for side in ("input", "output"):
        found = as_mapping(as_mapping(moderation).get(side))
        if found.get("type") == "error":
            return True
        if any(as_mapping(one).get("flagged") for one in as_items(found.get("results"))):
            return True
    return False


def record_json(
    body: bytes, judge: Callable[[Any], Fault], rules: StoreRules
) -> Answer | NotStored:
    """Judge the body of a 2xx JSON answer."""
    try:
        value, is_compact = canonical.read(body)
        if not is_compact:
            # JSON that every parser reads alike has no lone surrogates, which this one refuses.
            orjson.loads(body)
    except (RequestError, orjson.JSONDecodeError):
        return NotStored("not-json")
    return finished(value, judge(value), rules, body if is_compact else None)


def choice_error(choice: dict[str, Any]) -> bool:
    """Whether a choice failed. OpenRouter tells the provider's own reason apart."""
    native = choice.get("native_finish_reason")
    failed = type(native) is str and native.lower() == "error"
    return failed or choice.get("error") is not None


def says_more(part: Any) -> bool:
    """Whether a delta, or the logprobs beside it, adds to what was said."""
    if type(part) is dict:
        return any(value for name, value in part.items() if name != "role")
    return bool(part)


def finished(
    value: Any, fault: Fault, rules: StoreRules, text: bytes | None = None
) -> Answer | NotStored:
    """The answer that `value` is, if nothing is wrong with it. `text` is its compact form, where
    that is there already."""
    if fault is not None:
        return NotStored(fault)
    ids = ids_of(value)
    if len(ids) > MAX_IDS:
        return NotStored("too-many-ids")
    try:
        kept = NOT_KEPT.isdisjoint(value)
        body = text if kept and text is not None else _written(value)
    except TypeError:
        # Nested too deep, or an integer of 65 bits and more.
        return NotStored("unwritable")
    if len(body) > rules.max_entry:
        return NotStored("too-large")
    model = value.get("model")
    return Answer(
        body=body,
        usage=shapes.usage_of(value.get("usage")),
        model=model if type(model) is str else "",
        ids=tuple(ids),
    )


def _written(value: dict[str, Any]) -> bytes:
    return orjson.dumps({name: item for name, item in value.items() if name not in NOT_KEPT})


def ids_of(value: dict[str, Any]) -> list[str]:
    """The answer's id and those of its tool calls, each once."""
    found = [value.get("id")]
    for choice in value["choices"]:
        calls = as_items(as_mapping(choice.get("message")).get("tool_calls"))
        found.extend(as_mapping(call).get("id") for call in calls)
    return list(dict.fromkeys([one for one in found if type(one) is str and one]))


def follow_chunk(event: bytes) -> bytes:
    """A chunk of a live stream as others than its leader get it: without `NOT_KEPT`."""
    if _NOT_SHARED.search(event) is None:
        return event
    try:
        chunk = as_mapping(canonical.parse(data_of(event)))
    except RequestError:
        return event
    kept = {name: value for name, value in chunk.items() if name not in NOT_KEPT}
    return event if len(kept) == len(chunk) else frame(compact(kept))


def keep(extras: dict[str, Any], name: str, value: Any) -> None:
    """Note a field that is no delta: the last value wins, objects are merged at one level."""
    held = extras.get(name)
    if value is None:
        extras.setdefault(name, None)
    elif type(held) is dict and type(value) is dict:
        extras[name] = {**held, **value}
    else:
        extras[name] = value


def _tells_error(data: bytes) -> bool:
    try:
        return tells_error(as_mapping(orjson.loads(data)))
    except orjson.JSONDecodeError:
        return False


def _differ(name: str, held: Any, value: Any) -> bool:
    # Some servers repeat a model's name in another case.
    if name == "model" and type(held) is str and type(value) is str:
        return held.casefold() != value.casefold()
    return bool(held != value)


class ChunkRecorder:
    """The part of a recorder that chat and completions share; see `base.Recorder`."""

    def __init__(self, request: Request, kind: str) -> None:
        self.ids: list[str] = []
        self._request = request
        self._kind = kind
        self._head: dict[str, Any] = {}
        self._extras: dict[str, Any] = {}
        self._fault: Fault = None
        self._done = False

    def feed(self, event: bytes) -> None:
        """Take the next event."""
        data = data_of(event)
        if self._fault is not None:
            return
        if self._done:
            # Clients stop at `[DONE]`; that the upstream failed after it counts all the same.
            failed = fault_of(event) == "upstream-error" or _tells_error(data)
            self._fault = "upstream-error" if failed else None
            return
        self._fault = fault_of(event)
        if self._fault is None and data == b"[DONE]":
            self._done = True
        elif self._fault is None and data:
            self._fault = self._take(data)
            if self._fault is None and len(self.ids) > MAX_IDS:
                self._fault = "too-many-ids"

    def _take(self, data: bytes) -> Fault:
        # The fast parser takes the last of two equal names, as those of all SDKs do.
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return "not-json"
        if type(chunk) is not dict:
            return "wrong-object"
        if tells_error(chunk):
            return "upstream-error"
        if not self._is_ours(chunk):
            return "wrong-object"
        try:
            self._note(chunk)
            for choice in chunk["choices"] or ():
                if type(choice) is not dict or type(choice.get("index")) is not int:
                    return "bad-stream"
                if choice_error(choice):
                    return "upstream-error"
                self._choose(choice["index"], choice)
        except (DeltaError, TypeError):
            return "bad-stream"
        return None

    def _is_ours(self, chunk: dict[str, Any]) -> bool:
        # Azure opens a stream with a chunk that has neither an object nor choices.
        unnamed = not chunk.get("object") and not chunk.get("choices")
        return "choices" in chunk and (unnamed or chunk.get("object") == self._kind)

    def _note(self, chunk: dict[str, Any]) -> None:
        for name, value in chunk.items():
            if name in ("id", "created", "model"):
                if value and name not in self._head:
                    self._head[name] = value
                    if name == "id":
                        self._see(value)
                elif value and name != "created" and _differ(name, self._head[name], value):
                    raise DeltaError(f"two answers in one stream: {name}")
            elif name not in ("choices", "object") and name not in NOT_KEPT:
                keep(self._extras, name, value)

    def _see(self, identity: Any) -> None:
        if type(identity) is not str or not identity or len(self.ids) > MAX_IDS:
            return
        if identity not in self.ids:
            self.ids.append(identity)

    def is_usage_only(self, event: bytes) -> bool:
        """True for the chunk without choices that carries the usage."""
        if _NO_CHOICES.search(event) is None:
            return False
        try:
            chunk = as_mapping(orjson.loads(data_of(event)))
        except orjson.JSONDecodeError:
            return False
        return chunk.get("choices") == [] and chunk.get("usage") is not None

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        """The complete answer, or why there is none to store."""
        if self._fault is not None:
            return NotStored(self._fault)
        if not self._done:
            return NotStored("no-done")
        kind, choices = self._answer()
        value = {"id": None, "object": kind, "created": 0, "model": None, **self._head}
        value["choices"] = choices
        usage = self._extras.pop("usage", None)
        if usage is not None:
            value["usage"] = usage
        value.update(self._extras)
        return finished(value, self._judge(value, rules), rules)

    @abstractmethod
    def _choose(self, index: int, choice: dict[str, Any]) -> None:
        """Take one choice of a chunk. May raise `DeltaError`."""

    @abstractmethod
    def _answer(self) -> tuple[str, list[dict[str, Any]]]:
        """The `object` and the `choices` of the answer."""

    @abstractmethod
    def _judge(self, value: dict[str, Any], rules: StoreRules) -> Fault:
        """Why the answer is not stored; None if it is."""
