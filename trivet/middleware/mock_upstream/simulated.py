"""What all simulators do: each answer's usage comes from a model of the provider's cache."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trivet.errors import RequestError
from trivet.messages import Api
from trivet.middleware.mock_upstream.answers import Body
from trivet.middleware.mock_upstream.clock import Clock, Moment, split
from trivet.middleware.mock_upstream.commands import NONE, Commands, commands_of
from trivet.middleware.mock_upstream.routes import Call, Pairs, Reply, Routes
from trivet.prefix.caches import Billed, Refused, make_cache
from trivet.prefix.prompts.outline import Outline, outline_of

APIS: Final[Mapping[str, Api]] = {
    "/chat/completions": Api.CHAT,
    "/completions": Api.COMPLETIONS,
    "/responses": Api.RESPONSES,
    "/messages": Api.MESSAGES,
}
_NOTICE: Final = (
    "Trivet's simulator of {name}'s API with its documented prompt cache, for tests and dry runs. "
    "It is not {name} and not a model: answers are made up by rule, tokens are estimated."
)


class SimulatedRoutes(Routes):
    """A provider: its name, its cache, a clock that `x-mock` moves (`at=`, `advance=` and
    `first-byte=` seconds)."""

    provider = ""
    name = ""
    served: tuple[str, ...] = ()
    """Paths of the shared dialects that the provider has."""

    def __init__(self, delay_ms: float = 0) -> None:
        super().__init__()
        self.notice = _NOTICE.format(name=self.name)
        self._delay_s = delay_ms / 1000
        self.clock = Clock()
        self.cache = make_cache(self.provider)
        self.moment = Moment(0.0, 0.0)

    def reset(self) -> None:
        """Forget all that was asked and cached; the clock starts anew."""
        super().reset()
        self.clock = Clock()
        self.cache = make_cache(self.provider)

    def commands(self) -> Mapping[str, str]:
        """See `Routes`."""
        return {**super().commands(), **dict.fromkeys(("at", "advance", "first-byte"), "SECONDS")}

    def control(self, method: str, route: str) -> Body | None:
        """`GET /_mock/clock`, `POST /_mock/advance/SECONDS`."""
        if method == "POST" and route.startswith("/_mock/advance/"):
            told = route.removeprefix("/_mock/advance/")
            if not told.replace(".", "", 1).isdecimal():
                return {"error": {"message": f"{told} is no time."}}
            self.clock.advance(float(told))
        elif (method, route) != ("GET", "/_mock/clock"):
            return None
        return {"now": self.clock.now()}

    def reply(self, call: Call) -> Reply:
        """See `Routes`. The commands that move the clock are obeyed first."""
        call = dataclasses.replace(call, route=self.route(call.route))
        try:
            if call.route in APIS and call.route not in self.served:
                told = f"The simulator of {self.name} has no {call.method} {call.route}."
                raise RequestError(404, told)
            words, headers = split(call.headers)
            late = max(commands_of(headers, "").delay / 1000, self._delay_s)
            self.moment = self.clock.take(words, late)
        except RequestError as error:
            return self.error(call, error, NONE)
        return self.reply_at(dataclasses.replace(call, headers=headers))

    def reply_at(self, call: Call) -> Reply:
        """The answer at `self.moment`."""
        return super().reply(call)

    def route(self, route: str) -> str:
        """The path in the form of the shared dialects (`/messages`)."""
        return route

    def ask(self, owner: str, outline: Outline) -> Billed:
        """What the cache model bills at `self.moment`. Raises `RequestError` with its refusal."""
        outline = outline._replace(model=outline.model.partition("+")[0])
        at, first_byte_s = self.moment
        return unrefused(self.cache.ask(owner, outline, at, first_byte_s=first_byte_s))

    def owner(self, call: Call, body: Body) -> str:
        """Who shares a cache with whom: the credential stands for the organisation."""
        return credential(call.headers)


class SimulatedDialect(SimulatedRoutes, ABC):
    """A provider whose answers are those of the shared dialects, with its own usage."""

    def finished(self, call: Call, body: Body, made: Body) -> tuple[Body, Pairs]:
        """See `Routes`."""
        if call.route not in APIS:
            return made, []
        self.check(call, body)
        outline = outline_of(APIS[call.route], body)
        billed = self.ask(self.owner(call, body), outline)
        if made.get("usage"):
            made = made | {"usage": self.usage(call, made["usage"], billed, outline)}
        return made, told_of(billed, self.moment)

    def check(self, call: Call, body: Body) -> None:
        """Raise `RequestError` for what the provider rejects."""

    @abstractmethod
    def usage(self, call: Call, usage: Body, billed: Billed, outline: Outline) -> Body:
        """Usage in the provider's shape."""


def unrefused(billed: Billed | Refused) -> Billed:
    """Raise `RequestError` for a refusal."""
    if isinstance(billed, Refused):
        raise RequestError(billed.status, billed.message, field=billed.field)
    return billed


def told_of(billed: Billed, moment: Moment) -> Pairs:
    """Headers that say what the model of the cache did, for whoever writes a test."""
    told = [("x-mock-cache-read", str(billed.read)), ("x-mock-at", f"{moment.at:g}")]
    return [*told, ("x-mock-cache-why", billed.why)] if billed.why else told


def credential(headers: Mapping[str, str]) -> str:
    """Whatever names the account."""
    names = ("x-api-key", "authorization", "x-goog-api-key", "api-key")
    return next((headers[name] for name in names if name in headers), "")


def check_fields(
    given: Mapping[str, Any], known: frozenset[str], message: str, code: str | None = None
) -> None:
    """Raise `RequestError` 400 for the first field that is not `known`; `message` has `{name}`."""
    for name in given:
        if name not in known:
            raise RequestError(400, message.format(name=name), field=name, code=code)


def blocks(body: Body, *names: str) -> Iterator[tuple[str, Body]]:
    """Every object inside the lists called `names`, and inside their `content`, with its path."""
    for name in names:
        items = body.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, dict):
                continue
            yield f"{name}.{index}", item
            yield from ((f"{name}.{index}.{inner}", one) for inner, one in blocks(item, "content"))


def commands_in(call: Call, model: str) -> Commands:
    """The commands of a request whose model stands in its path."""
    return commands_of(call.headers, model)
