"""Pairs of prompts with one known break each, from a fixed seed.

What varies inside a prompt comes half from lists here, half from `volatile/made_elsewhere.json`:
names, addresses, ids and dates that Faker and Babel made in 15 locales, so that the detectors are
not measured on their own patterns. Where two prompts part is computed from how they were made.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trivet.messages import Api
from trivet.prefix.prompts.outline import Level, Outline, outline_of

SEED = 20261130
MADE = json.loads((Path(__file__).parent / "volatile" / "made_elsewhere.json").read_text())
_IDS = {"uuid", "hash", "random-id"}

TEXT = """Answer in the language of the question. Keep answers short and give sources where you
can. When a customer asks for a refund, look up the order first, then say which rule applies. Never
promise a delivery date that the warehouse has not confirmed. If the question is about a product
that we do not sell, say so and offer the nearest one that we do. Prices hold for the day of the
order. Quote the paragraph of the terms that an answer rests on. Be kind when somebody is angry.
Use tables for comparisons of more than two products. Say when you do not know."""

OWN = {
    "timestamp": [
        ("15:09:20", "15:09:21"),
        ("2026-11-30T15:09:20Z", "2026-11-30T16:40:02Z"),
        ("1764515360", "1764519912"),
        ("3:09 PM", "11:40 AM"),
        ("Mon, 30 Nov 2026 15:09:20 GMT", "Tue, 01 Dec 2026 08:00:11 GMT"),
        ("1764515360123", "1764515361987"),
    ],
    "date": [
        ("Monday, November 30, 2026", "Tuesday, December 1, 2026"),
        ("2026-11-30", "2026-12-01"),
        ("30.11.2026", "01.12.2026"),
        ("Nov 30", "Dec 1"),
        ("30 November 2026", "1 December 2026"),
    ],
    "random-id": [
        ("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"),
        ("req_a81Kd02mZq", "req_00fLs7Hw3p"),
        ("3f2a9c1e77", "b81d02aa4f"),
    ],
    "user-name": [("Anna Schmidt", "Bob Miller"), ("maria", "joe.k"), ("Dr. Lee", "Ms. Ortiz")],
    "e-mail": [("anna@example.com", "bob.m@example.org")],
    "counter": [("17", "18"), ("3", "112"), ("0.82", "0.79"), ("1,204", "1,311"), ("41", "7")],
}
AROUND = {
    "timestamp": [
        "Current time: {}.",
        "It is now {}.",
        "<now>{}</now>",
        "Generated at {} by ops.",
        '{{"now": "{}"}}',
        "Last sync {}; data may lag.",
    ],
    "date": [
        "Today is {}.",
        "Date: {}",
        "<env>\nToday's date: {}\n</env>",
        "As of {}, prices hold.",
    ],
    "random-id": [
        "Session {}.",
        "Request id: {}",
        "trace={}",
        "Conversation {} follows.",
        '{{"id": "{}"}}',
    ],
    "user-name": [
        "User: {}.",
        "You are talking to {}.",
        "The customer's name is {}.",
        "Hello {}, welcome.",
        "You assist {} today.",
        "Signed in as {}.",
    ],
    "e-mail": ["Contact: {}", "The user ({}) is signed in.", "Mail: {}."],
    "counter": [
        "You have {} open tickets.",
        "Turn {} of the day.",
        "Stock: {} pieces.",
        "Balance: {} EUR.",
    ],
}


class Pair(NamedTuple):
    """Two prompts, and where and why they part."""

    family: str
    old: Outline
    new: Outline
    level: Level | None
    """None: nothing parts them."""
    place: tuple[str | int, ...]
    char: int
    causes: frozenset[str]


def text_of(rng: random.Random, sentences: int = 40) -> str:
    said = TEXT.replace("\n", " ").split(". ")
    return ". ".join(rng.choice(said).rstrip(".") for _ in range(sentences)) + "."


def tool(rng: random.Random, name: str) -> dict[str, Any]:
    fields = rng.sample(["query", "limit", "since", "order_id", "language", "region"], 4)
    props = {one: {"type": "string", "description": f"The {one} to use."} for one in fields}
    described = f"Looks up the {name.replace('_', ' ')}. {text_of(rng, 3)}"
    schema = {"type": "object", "properties": props, "required": fields[:2]}
    return {"name": name, "description": described, "input_schema": schema}


NAMES = ["orders", "stock", "refunds", "terms", "shipping", "invoices", "tickets", "people"]


class Case:
    """One body in the shape of an API, with the places of its pieces."""

    def __init__(self, rng: random.Random, api: Api, turns: int = 3) -> None:
        self.rng, self.api = rng, api
        self.tools = [tool(rng, name) for name in rng.sample(NAMES, rng.randint(3, 6))]
        self.system = text_of(rng, rng.randint(12, 40))
        self.messages: list[dict[str, Any]] = []
        for turn in range(turns):
            ask = f"Question {turn}: {text_of(rng, 2)}"
            self.messages.append({"role": "user", "content": ask})
            self.messages.append({"role": "assistant", "content": text_of(rng, 6)})
        self.messages.append({"role": "user", "content": "And what about the last one?"})
        self.more: dict[str, Any] = {}
        self.model = {Api.MESSAGES: "claude-sonnet-5"}.get(api, "gpt-5.6")

    def copy(self) -> Case:
        return copy.deepcopy(self)

    def outline(self) -> Outline:
        body: dict[str, Any] = {"model": self.model, **self.more}
        tools = copy.deepcopy(self.tools)
        if self.api is Api.MESSAGES:
            body |= {"tools": tools, "system": self.system, "messages": self.messages}
        elif self.api is Api.CHAT:
            shaped = [_function(one) for one in tools]
            system = {"role": "system", "content": self.system}
            body |= {"tools": shaped, "messages": [system, *self.messages]}
        else:
            flat = [{"type": "function", **_function(one)["function"]} for one in tools]
            body |= {"tools": flat, "instructions": self.system, "input": self.messages}
        return outline_of(self.api, json.loads(json.dumps(body)))

    def at_system(self) -> tuple[str | int, ...]:
        return {
            Api.MESSAGES: ("system",), Api.CHAT: ("messages", 0, "content"),
        }.get(self.api, ("instructions",))  # fmt: skip

    def at_message(self, index: int) -> tuple[str | int, ...]:
        first = {Api.MESSAGES: ("messages", index), Api.CHAT: ("messages", index + 1)}
        return first.get(self.api, ("input", index))

    def pair(
        self, other: Case, family: str, level: Level | None, place: tuple[str | int, ...],
        char: int, *causes: str,
    ) -> Pair:  # fmt: skip
        return Pair(family, self.outline(), other.outline(), level, place, char, frozenset(causes))


def _function(one: dict[str, Any]) -> dict[str, Any]:
    named = {**one}
    named["parameters"] = named.pop("input_schema")
    return {"type": "function", "function": named}


def common(a: str, b: str) -> int:
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count


def volatile_pairs(rng: random.Random, kind: str, count: int) -> Iterator[tuple[str, str]]:
    made: list[list[str]] = list(MADE.get(kind, []))
    for number in range(count):
        one, other = rng.choice(made) if made and number % 2 else rng.choice(OWN[kind])
        yield one, other


def in_system(rng: random.Random, case: Case, kind: str, values: tuple[str, str]) -> Pair:
    around = rng.choice(AROUND[kind])
    sentences = case.system.split(". ")
    at = rng.randrange(1, max(2, len(sentences) // 2))
    made = [". ".join([*sentences[:at], around.format(value), *sentences[at:]]) for value in values]
    old, new = case, case.copy()
    old.system, new.system = made
    causes = {"random-id": _IDS, "timestamp": {"timestamp"}}.get(kind, {kind})
    char = common(*made)
    return old.pair(new, kind, Level.SYSTEM, old.at_system(), char, *causes)


def reordered_list(rng: random.Random, case: Case) -> Pair:
    items = [f"{name}: {text_of(rng, 1)}" for name in rng.sample(NAMES, 5)]
    glue = rng.choice(["\n- ", "; ", "\n* "])
    other = items.copy()
    while other == items:
        rng.shuffle(other)
    old, new = case, case.copy()
    lists = (glue.join(items), glue.join(other))
    old.system, new.system = (f"{case.system}\nTopics:{glue}{one}\nThat is all." for one in lists)
    char = common(old.system, new.system)
    return old.pair(new, "list", Level.SYSTEM, old.at_system(), char, "list-reordered")


def white_space(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = case.system.index(". ", len(case.system) // 3) + 1
    new.system = case.system[:at] + rng.choice(["\n", "  ", "\n\n", "\t"]) + case.system[at + 1 :]
    char = common(old.system, new.system)
    return old.pair(new, "space", Level.SYSTEM, old.at_system(), char, "white-space")


def edited_text(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = case.system.index(". ", len(case.system) // 3) + 2
    new.system = case.system[:at] + "always be brief and " + case.system[at:]
    char = common(old.system, new.system)
    return old.pair(new, "text", Level.SYSTEM, old.at_system(), char, "text-edited")


def shuffled_tools(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    while new.tools == old.tools:
        rng.shuffle(new.tools)
    at = next(i for i, one in enumerate(old.tools) if one != new.tools[i])
    return old.pair(new, "tools", Level.TOOLS, ("tools", at), -1, "tools-reordered")


def _turned(value: Any) -> Any:
    """The same JSON with the keys of each object the other way round."""
    if isinstance(value, dict):
        return {name: _turned(item) for name, item in reversed(value.items())}
    return [_turned(one) for one in value] if isinstance(value, list) else value


def tool_keys(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = rng.randrange(len(old.tools))
    props = new.tools[at]["input_schema"]["properties"]
    new.tools[at]["input_schema"]["properties"] = _turned(props)
    return old.pair(new, "tool keys", Level.TOOLS, ("tools", at), -1, "keys-reordered")


def required_order(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = rng.randrange(len(old.tools))
    new.tools[at]["input_schema"]["required"].reverse()
    return old.pair(new, "required", Level.TOOLS, ("tools", at), -1, "list-reordered")


def other_tools(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = rng.randrange(len(old.tools))
    what = rng.choice(["added", "removed", "description", "schema"])
    if what == "added":
        new.tools.insert(at, tool(rng, "weather"))
        cause = "tool-added"
    elif what == "removed":
        del new.tools[at]
        cause = "tool-removed"
    elif what == "description":
        new.tools[at]["description"] += " Use it with care and only when asked."
        cause = "tool-edited"
    else:
        new.tools[at]["input_schema"]["properties"]["page"] = {"type": "integer"}
        cause = "tool-edited"
    level, place = Level.TOOLS, ("tools", at)
    if what == "removed" and at == len(new.tools):
        place = ("tools", at)
    return old.pair(new, f"tool {what}", level, place, -1, cause)


def tool_text(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    at = rng.randrange(len(old.tools))
    kind = rng.choice(["date", "counter", "random-id"])
    first, second = next(volatile_pairs(rng, kind, 1))
    for one, value in ((old, first), (new, second)):
        one.tools[at]["description"] += " " + rng.choice(AROUND[kind][:1]).format(value)
    causes = _IDS if kind == "random-id" else {kind}
    return old.pair(new, "tool text", Level.TOOLS, ("tools", at), -1, *causes)


def setting(rng: random.Random, case: Case) -> Pair:
    old, new = case, case.copy()
    if rng.random() < 0.2:
        new.model += "-mini"
        return old.pair(new, "model", Level.TOOLS, ("model",), 0, "model-changed")
    level = Level.MESSAGES if case.api is Api.MESSAGES else Level.TOOLS
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    by_api = {
        Api.MESSAGES: [
            ("thinking", {"type": "enabled", "budget_tokens": 2048}, "thinking-changed"),
            ("output_config", {"effort": "low"}, "effort-changed"),
            ("output_config", {"format": {"type": "json_schema"}}, "response-format-changed"),
            ("tool_choice", {"type": "any"}, "tool-choice-changed"),
        ],
        Api.CHAT: [
            ("reasoning_effort", "low", "effort-changed"),
            ("response_format", schema, "response-format-changed"),
            ("parallel_tool_calls", False, "setting-changed"),
        ],
    }
    default = [
        ("reasoning", {"effort": "high"}, "effort-changed"),
        ("text", {"format": {"type": "json_object"}}, "response-format-changed"),
        ("text", {"verbosity": "low"}, "setting-changed"),
    ]
    name, value, cause = rng.choice(by_api.get(case.api, default))
    new.more[name] = value
    return old.pair(new, "setting", level, (name,), 0, cause)


def call_keys(rng: random.Random, case: Case) -> Pair:
    """A recorded tool call whose arguments were serialised anew."""
    old, new = case, case.copy()
    first = {"order_id": "A-17", "language": "en", "limit": 3}
    second = dict(reversed(first.items()))
    for one, value in ((old, first), (new, second)):
        if case.api is Api.MESSAGES:
            block = {"type": "tool_use", "id": "toolu_1", "name": "orders", "input": value}
            one.messages[3] = {"role": "assistant", "content": [block]}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
            one.messages[4] = {"role": "user", "content": [result]}
        else:
            text = json.dumps(value)
            called = {"id": "call_1", "type": "function",
                      "function": {"name": "orders", "arguments": text}}  # fmt: skip
            one.messages[3] = {"role": "assistant", "content": None, "tool_calls": [called]}
            one.messages[4] = {"role": "tool", "tool_call_id": "call_1", "content": "found"}
    return old.pair(new, "call keys", Level.MESSAGES, old.at_message(3), -1, "keys-reordered")


def history(rng: random.Random, case: Case) -> Pair:
    old = Case(rng, case.api, 8)
    new = old.copy()
    new.messages += [
        {"role": "assistant", "content": text_of(rng, 4)},
        {"role": "user", "content": "Go on, please."},
    ]
    what = rng.choice(["compacted", "truncated", "rewritten", "summary"])
    if what == "compacted":
        at = 2
        summary = {"role": "assistant", "content": "Summary so far: " + text_of(rng, 5)}
        new.messages[2:10] = [summary]
        cause = "history-compacted"
    elif what == "summary":
        at = 1
        summary = {"role": "assistant", "content": "What was said: " + text_of(rng, 5)}
        new.messages[1:-1] = [summary]
        cause = "history-compacted"
    elif what == "truncated":
        at = rng.choice([0, 2])
        del new.messages[at : at + 4]
        cause = "history-truncated"
    else:
        at = rng.choice([4, 6])
        new.messages[at]["content"] = "[cleared] " + text_of(rng, 1)
        cause = "history-rewritten"
    return old.pair(new, f"history {what}", Level.MESSAGES, old.at_message(at), -1, cause)


def thinking_gone(rng: random.Random, case: Case) -> Pair:
    old = Case(rng, Api.MESSAGES)
    said = old.messages[3]["content"]
    thought = {"type": "thinking", "thinking": text_of(rng, 5), "signature": "c2lnbmF0dXJl"}
    old.messages[3]["content"] = [thought, {"type": "text", "text": said}]
    new = old.copy()
    new.messages[3]["content"] = [{"type": "text", "text": said}]
    place = (*old.at_message(3), "content", 0)
    return old.pair(new, "thinking", Level.MESSAGES, place, -1, "thinking-dropped")


def images(rng: random.Random, case: Case) -> Pair:
    old = Case(rng, Api.MESSAGES)
    new = old.copy()
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    new.messages += [
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": [picture, {"type": "text", "text": "And this?"}]},
    ]
    place = ("messages", len(new.messages) - 1, "content", 0)
    return old.pair(new, "images", Level.MESSAGES, place, 0, "images-changed")


def message_text(rng: random.Random, case: Case) -> Pair:
    """Something volatile that a client puts into its history anew each time."""
    old, new = case, case.copy()
    kind = rng.choice(["timestamp", "random-id", "date"])
    values = next(volatile_pairs(rng, kind, 1))
    for one, value in zip((old, new), values, strict=True):
        one.messages[2]["content"] = f"{AROUND[kind][0].format(value)} {one.messages[2]['content']}"
    char = common(old.messages[2]["content"], new.messages[2]["content"])
    causes = _IDS if kind == "random-id" else {kind}
    place = (*old.at_message(2), "content")
    return old.pair(new, "message text", Level.MESSAGES, place, char, *causes)


Make = Callable[[random.Random, Case], Pair]
FAMILIES: tuple[tuple[Make, int], ...] = (
    (reordered_list, 12), (white_space, 8), (edited_text, 8), (shuffled_tools, 12),
    (tool_keys, 10), (required_order, 4), (other_tools, 16), (tool_text, 8), (setting, 18),
    (call_keys, 8), (history, 16), (thinking_gone, 4), (images, 4), (message_text, 10),
)  # fmt: skip
IN_SYSTEM = (("timestamp", 16), ("date", 12), ("random-id", 14), ("user-name", 10), ("e-mail", 4),
             ("counter", 6))  # fmt: skip
APIS = (Api.MESSAGES, Api.CHAT, Api.RESPONSES)


def pairs(seed: int = SEED) -> list[Pair]:
    """200 pairs, the same for the same seed."""
    rng = random.Random(seed)
    made: list[Pair] = []
    for kind, count in IN_SYSTEM:
        made += [
            in_system(rng, Case(rng, rng.choice(APIS)), kind, values)
            for values in volatile_pairs(rng, kind, count)
        ]
    for make, count in FAMILIES:
        made += [make(rng, Case(rng, APIS[number % 3])) for number in range(count)]
    return made
