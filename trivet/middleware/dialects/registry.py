"""Which path speaks which API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trivet.messages import Api
from trivet.middleware.dialects.base import Dialect
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.completions import CompletionsDialect
from trivet.middleware.dialects.messages import MessagesDialect
from trivet.middleware.dialects.responses import ResponsesDialect
from trivet.middleware.running.config import DialectFamily

CHAT: Final[Dialect] = ChatDialect()
COMPLETIONS: Final[Dialect] = CompletionsDialect()
RESPONSES: Final[Dialect] = ResponsesDialect()
MESSAGES: Final[Dialect] = MessagesDialect()


@dataclass(frozen=True, slots=True)
class Route:
    """One cached path. `voice` is the dialect in which errors are said."""

    api: Api
    family: DialectFamily
    voice: Dialect
    methods: frozenset[str]


_POST: Final = frozenset({"POST"})
_ROUTES: Final = {
    # GET lists and reads completions that the provider stored: those pass through.
    "/chat/completions": Route(Api.CHAT, "openai", CHAT, frozenset({"POST", "GET"})),
    "/completions": Route(Api.COMPLETIONS, "openai", COMPLETIONS, _POST),
    "/responses": Route(Api.RESPONSES, "openai", RESPONSES, _POST),
    "/embeddings": Route(Api.EMBEDDINGS, "openai", CHAT, _POST),
    "/messages": Route(Api.MESSAGES, "anthropic", MESSAGES, _POST),
}


def route_of(path: str) -> Route | None:
    """The API that `path` speaks, with or without a leading `/v1`; None passes through."""
    return _ROUTES.get(path.removeprefix("/v1"))


def voice_of(path: str, anthropic: bool) -> tuple[Dialect, DialectFamily]:
    """In which dialect a path without a route is answered. `anthropic`: its headers say so."""
    if anthropic or path.removeprefix("/v1").startswith("/messages"):
        return MESSAGES, "anthropic"
    return CHAT, "openai"


def dialect_of(api: Api) -> Dialect:
    """The dialect of an API with whole answers; embeddings speak in chat's voice."""
    return {
        Api.CHAT: CHAT,
        Api.COMPLETIONS: COMPLETIONS,
        Api.RESPONSES: RESPONSES,
        Api.MESSAGES: MESSAGES,
        Api.EMBEDDINGS: CHAT,
    }[api]
