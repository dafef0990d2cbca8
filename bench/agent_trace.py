"""A coding agent at work, from a seed: every request that it makes, and when.

The main agent takes 60 steps: it says a sentence, calls one to three tools (now and then a dozen at
once), and gets their results, 1,500 tokens a step. Most steps follow within seconds; some wait for
a person. Four times it hands a part to sub-agents, which have tools and a system prompt of their
own and share both; it waits for them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from trivet.messages import Api
from trivet.prefix.prompts.outline import Outline, outline_of

Body = dict[str, Any]
_WORDS: Final = (
    "return", "self", "request", "error", "value", "index", "token", "cache", "path", "build",
    "async", "await", "module", "table", "record", "branch", "commit", "stream", "buffer", "test",
    "parse", "schema", "client", "server", "retry", "limit", "queue", "worker", "deploy", "query",
)  # fmt: skip
_TOOLS: Final = ("read", "grep", "edit", "run", "list", "fetch", "search", "write", "diff", "task")


class Asked(NamedTuple):
    """One request."""

    at: float
    """Seconds from the start."""
    body: Body
    """Of Anthropic's Messages API."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a trace is drawn from. Tokens are means."""

    seed: int = 1
    steps: int = 60
    step: int = 1_500
    system: int = 3_000
    tool: int = 350
    waits: float = 0.06
    """Share of the steps before which a person is waited for, 6 to 20 minutes."""
    wide: float = 0.05
    """Share of the steps that call a dozen tools at once."""
    handed: int = 4
    """How often sub-agents take over."""
    model: str = "claude-sonnet-4-6"


def trace(shape: Shape = Shape()) -> list[Asked]:
    """All requests, by time."""
    draw = random.Random(shape.seed)
    main = _Agent(draw, shape, "main", shape.system, _TOOLS)
    helper_rules = _text(draw, shape.system // 2)
    helper_tools = _tools(draw, shape, _TOOLS[:4])
    hands = set(draw.sample(range(3, shape.steps - 2), min(shape.handed, shape.steps // 6)))
    found, now = [], 0.0
    for number in range(shape.steps):
        found.append(Asked(now, main.body()))
        waits = draw.random() < shape.waits
        now += draw.uniform(360, 1_200) if waits else draw.lognormvariate(2.6, 0.9)
        if number in hands:
            ends = [now]
            for _ in range(draw.randint(1, 3)):
                helper = _Agent(draw, shape, "helper", 0, ())
                helper.system, helper.tools = helper_rules, helper_tools
                asked = list(_helped(draw, helper, now + draw.uniform(0, 2)))
                found += asked
                ends.append(asked[-1].at + draw.uniform(2, 9))
            now = max(ends)
        main.go_on()
    return sorted(found, key=lambda asked: asked.at)


def _helped(draw: random.Random, helper: _Agent, start: float) -> Iterator[Asked]:
    now = start
    for _ in range(draw.randint(4, 9)):
        yield Asked(now, helper.body())
        helper.go_on()
        now += draw.lognormvariate(2.2, 0.7)


class _Agent:
    def __init__(
        self, draw: random.Random, shape: Shape, name: str, system: int, tools: Sequence[str]
    ) -> None:
        self._draw, self._shape, self._name = draw, shape, name
        self.system = _text(draw, system)
        self.tools = _tools(draw, shape, tools)
        self._messages: list[Body] = [
            {"role": "user", "content": _text(draw, draw.randint(60, 400))}
        ]

    def body(self) -> Body:
        return {
            "model": self._shape.model,
            "max_tokens": 1024,
            "tools": self.tools,
            "system": self.system,
            "messages": copy.copy(self._messages),
        }

    def go_on(self) -> None:
        """What the model said, and what its calls gave."""
        draw, shape = self._draw, self._shape
        calls = 12 if draw.random() < shape.wide else draw.choice((1, 1, 1, 2, 3))
        size = int(shape.step * draw.uniform(0.5, 1.5))
        said: list[Body] = [{"type": "text", "text": _text(draw, draw.randint(20, 90))}]
        given: list[Body] = []
        for _ in range(calls):
            name = f"toolu_{draw.getrandbits(64):016x}"
            part = max(30, (size - 60) // calls)
            asked = {"path": f"src/{draw.choice(_WORDS)}.py", "text": _text(draw, part // 6)}
            said.append(
                {"type": "tool_use", "id": name, "name": draw.choice(_TOOLS), "input": asked}
            )
            given.append(
                {
                    "type": "tool_result",
                    "tool_use_id": name,
                    "content": _text(draw, part - part // 6 - 40),
                }
            )
        self._messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": given},
        ]


def _tools(draw: random.Random, shape: Shape, names: Sequence[str]) -> list[Body]:
    return [
        {
            "name": name,
            "description": _text(draw, int(shape.tool * draw.uniform(0.6, 1.4))),
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
        }
        for name in names
    ]


def _text(draw: random.Random, tokens: int) -> str:
    """About so many tokens of four bytes."""
    made, size = [], 0
    while size < tokens * 4:
        word = draw.choice(_WORDS)
        made.append(word)
        size += len(word) + 1
    return " ".join(made)


def claude(asked: Asked) -> Outline:
    """The request as Anthropic reads it."""
    return outline_of(Api.MESSAGES, asked.body)


def chat_body(body: Body, model: str) -> Body:
    """The same request in OpenAI's Chat Completions."""
    messages: list[Body] = [{"role": "system", "content": body["system"]}]
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            messages.append({"role": "user", "content": content})
        elif message["role"] == "assistant":
            calls = [
                {"id": one["id"], "type": "function",
                 "function": {"name": one["name"], "arguments": str(one["input"])}}
                for one in content[1:]
            ]  # fmt: skip
            messages.append(
                {"role": "assistant", "content": content[0]["text"], "tool_calls": calls}
            )
        else:
            messages += [
                {"role": "tool", "tool_call_id": one["tool_use_id"], "content": one["content"]}
                for one in content
            ]
    tools = [
        {"type": "function", "function": {"name": one["name"], "description": one["description"]}}
        for one in body["tools"]
    ]
    return {"model": model, "tools": tools, "messages": messages}


def gpt(asked: Asked, model: str = "gpt-6-astra") -> Outline:
    """The request as OpenAI reads it."""
    return outline_of(Api.CHAT, chat_body(asked.body, model))
