"""What the mock upstream answers: a request in, a `Reply` out, no I/O."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.mock_upstream import (
    answers,
    chat,
    completions,
    embeddings,
    messages,
    responses,
    responses_stream,
)
from trivet.middleware.mock_upstream.answers import Asked, Body
from trivet.middleware.mock_upstream.commands import NONE, Commands, commands_of, describe

NOTICE = "Trivet's mock upstream. It is not a model: it makes its answers up by rule, for tests."
MODELS = ("mock", "mock-large", "mock-embedding")
_KEPT_RESPONSES = 1000
_UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Api:
    """One API whose answers can stream."""

    ask: Callable[[Body], Asked]
    answer: Callable[[Body, Asked, Commands], Body]
    events: Callable[[Body, Body], Iterator[bytes]]
    error_event: Callable[[str], bytes]


APIS: Mapping[str, Api] = {
    "/chat/completions": Api(chat.ask, chat.answer, chat.events, chat.error_event),
    "/completions": Api(completions.ask, completions.answer, completions.events, chat.error_event),
    "/responses": Api(
        responses.ask, responses.answer, responses_stream.events, responses_stream.error_event
    ),
    "/messages": Api(messages.ask, messages.answer, messages.events, messages.error_event),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came. `route` is the path without `/v1`; header names in lower case."""

    method: str
    route: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def anthropic(self) -> bool:
        """Whether the caller speaks Anthropic's dialect."""
        return self.route.startswith("/messages") or "anthropic-version" in self.headers


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to deliver, and the commands that its delivery obeys."""

    status: int
    body: bytes
    commands: Commands = NONE
    events: Iterator[bytes] | None = None
    error_event: Callable[[str], bytes] = chat.error_event
    headers: Pairs = field(default_factory=list)


class Routes:
    """The routes with the one state that they need: responses that can be asked for again.

    A simulator of a provider overrides what is `finished` before it is sent.
    """

    notice = NOTICE

    def __init__(self) -> None:
        self._stored: OrderedDict[str, Body] = OrderedDict()

    def reset(self) -> None:
        """Forget all that was asked."""
        self._stored.clear()

    def commands(self) -> Mapping[str, str]:
        """The commands that a request can give, with the form of their values."""
        return describe()

    def control(self, method: str, route: str) -> Body | None:
        """The answer to a command under `/_mock`, if there is one of that name."""
        return None

    def finished(self, call: Call, body: Body, made: Body) -> tuple[Body, Pairs]:
        """An answer as it is sent, and further headers of it. Raises `RequestError`."""
        return made, []

    def events(self, api: Api, made: Body, body: Body) -> Iterator[bytes]:
        """The stream of an answer."""
        return api.events(made, body)

    def reply(self, call: Call) -> Reply:
        """Answer `call`; every mistake of the caller becomes an error in its dialect."""
        try:
            return self._reply(call)
        except RequestError as error:
            return self.error(call, error, NONE)
        except _UNREADABLE as error:
            message = f"The mock upstream cannot read this request: {type(error).__name__}: {error}"
            return self.error(call, RequestError(400, message), NONE)

    def _reply(self, call: Call) -> Reply:
        posted = call.route in APIS or call.route in ("/embeddings", "/messages/count_tokens")
        if posted and call.method != "POST":
            raise RequestError(405, f"{call.method} is not allowed here; POST is.")
        body = _body(call) if posted else {}
        commands = commands_of(call.headers, body.get("model", ""))
        if commands.status is not None:
            told = f"The mock upstream was told to answer {commands.status}."
            return self.error(call, RequestError(commands.status, told, code="mock"), commands)
        if posted:
            return self._made(call, body, commands)
        return self._got(call, commands)

    def error(self, call: Call, error: RequestError, commands: Commands) -> Reply:
        """`error` in the caller's dialect."""
        shape = messages.error if call.anthropic else chat.error
        made = shape(error.status, error.message, error.field, error.code)
        head = [*_head(call), ("content-type", "application/json")]
        if commands.retry_after is not None:
            head.append(("retry-after", commands.retry_after))
        if error.status == 405:
            head.append(("allow", "POST"))
        return Reply(error.status, orjson.dumps(made), commands, headers=head)

    def _made(self, call: Call, body: Body, commands: Commands) -> Reply:
        if call.route == "/embeddings":
            return _json(call, embeddings.answer(body), commands)
        if call.route == "/messages/count_tokens":
            return _json(call, {"input_tokens": messages.tokens_of(body)}, commands)
        api = APIS[call.route]
        if call.route == "/responses":
            self._check_previous(body)
        made, told = self.finished(call, body, api.answer(body, api.ask(body), commands))
        if call.route == "/responses" and body.get("store") is not False:
            self._store(made)
        if not body.get("stream") or commands.as_json:
            return _json(call, made, commands, told)
        head = [*_head(call), *told, ("content-type", "text/event-stream; charset=utf-8")]
        head.append(("cache-control", "no-cache"))
        events = self.events(api, made, body)
        return Reply(200, b"", commands, events, api.error_event, head)

    def _check_previous(self, body: Body) -> None:
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self._stored:
            raise RequestError(
                400,
                f"Previous response with id '{previous}' not found.",
                field="previous_response_id",
                code="previous_response_not_found",
            )

    def _store(self, made: Body) -> None:
        self._stored[made["id"]] = made
        if len(self._stored) > _KEPT_RESPONSES:
            self._stored.popitem(last=False)

    def _got(self, call: Call, commands: Commands) -> Reply:
        parts = call.route.strip("/").split("/")
        if call.method == "GET" and parts == ["models"]:
            return _json(call, _models(call), commands)
        if call.method == "GET" and len(parts) == 2 and parts[0] == "models":
            return _json(call, _model(parts[1], call.anthropic), commands)
        if call.method == "GET" and len(parts) == 2 and parts[0] == "responses":
            stored = self._stored.get(parts[1])
            if stored is not None:
                return _json(call, stored, commands)
        raise RequestError(404, f"The mock upstream has no {call.method} {call.route}.")


def _body(call: Call) -> Body:
    body = canonical.parse(call.raw)
    if not isinstance(body, dict):
        raise RequestError(400, "The body must be a JSON object.")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError(400, "you must provide a model parameter", field="model")
    if model.startswith("no-such"):
        message = f"The model '{model}' does not exist."
        raise RequestError(404, message, field="model", code="model_not_found")
    return body


def _models(call: Call) -> Body:
    data = [_model(name, call.anthropic) for name in MODELS]
    if call.anthropic:
        return {"data": data, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]}
    return {"object": "list", "data": data}


def _model(name: str, anthropic: bool) -> Body:
    if anthropic:
        shown = f"{name} (not a model)"
        made = {"type": "model", "id": name, "display_name": shown, "lifecycle": "active"}
        return {**made, "created_at": "2026-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 1767225600, "owned_by": "trivet-mock"}


def _head(call: Call) -> Pairs:
    name = "request-id" if call.anthropic else "x-request-id"
    return [(name, answers.fresh("req_")), ("x-mock-body", hashlib.sha256(call.raw).hexdigest())]


def _json(call: Call, made: Any, commands: Commands, told: Sequence[tuple[str, str]] = ()) -> Reply:
    head = [*_head(call), *told, ("content-type", "application/json")]
    return Reply(200, orjson.dumps(made), commands, headers=head)
