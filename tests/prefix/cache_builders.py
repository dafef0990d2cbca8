"""Prompts of a known size for the tests of the cache models."""

from __future__ import annotations

from typing import Any

from trivet.messages import Api
from trivet.prefix.caches import Billed, CacheModel
from trivet.prefix.prompts.outline import Outline, outline_of

Body = dict[str, Any]


def words(name: str, tokens: int) -> str:
    """A text of exactly `tokens` tokens as a content block of its own."""
    text = (f"{name} " * tokens)[: tokens * 4 - len('{"type":"text","text":""}')]
    return text.ljust(tokens * 4 - 25, ".")


def block(name: str, tokens: int, ttl: str | None = None) -> Body:
    """A text block; `ttl` marks it, `""` for the default lifetime."""
    made: Body = {"type": "text", "text": words(name, tokens)}
    if ttl is not None:
        made["cache_control"] = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return made


def claude(*turns: Body, system: list[Body] | None = None, **fields: Any) -> Outline:
    """A prompt of Anthropic's: each block of `turns` is a user message of its own."""
    body = {"model": "claude-opus-5-5", "messages": [user(one) for one in turns], **fields}
    if system is not None:
        body["system"] = system
    return outline_of(Api.MESSAGES, body)


def user(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks)}


def part(name: str, tokens: int, ttl: str | None = None) -> Body:
    """A text part of OpenAI's; `ttl` marks it."""
    made: Body = {"type": "text", "text": words(name, tokens)}
    if ttl is not None:
        made["prompt_cache_breakpoint"] = {"mode": "explicit", **({"ttl": ttl} if ttl else {})}
    return made


def gpt(*turns: Body, model: str = "gpt-5.6", api: Api = Api.CHAT, **fields: Any) -> Outline:
    """A prompt of OpenAI's: the first part is the system prompt, each other a user message."""
    messages = [{"role": "user", "content": [one]} for one in turns]
    if messages:
        messages[0]["role"] = "system"
    name = "input" if api is Api.RESPONSES else "messages"
    return outline_of(api, {"model": model, name: messages, **fields})


def billed(cache: CacheModel, outline: Outline, at: float = 0.0, owner: str = "acme") -> Billed:
    """What `cache` bills; fails where it refuses."""
    found = cache.ask(owner, outline, at)
    assert isinstance(found, Billed), found
    return found
