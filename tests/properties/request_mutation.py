"""Random changes of requests, and random ways to say the same."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

import orjson
from request_cases import Body, Case
from request_meaning import ABSENT, unread

LEAVES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.0, 1.0, 0.5, 1e22, 2**53, 2**53 + 1, 2**64, 2**64 + 1,
    -(2**70), "", "x", "X", "hi", "hi ", "1", "null", "\u00e9", "e\u0301", "\ud800", "\x00",
    "a\nb", '{"a":1}', "data:image/png;base64,QQ==", "data:image/png;base64,QR==",
    [], {}, [[]], [None], {"": None},
)  # fmt: skip
NAMES = (
    "x_new",
    "num_ctx",
    "x",
    "",
    "model",
    "cache_control",
    "temperature",
    "\u00e9",
    "options",
    "cache",
)


def picked(values: Sequence[Any], draw: random.Random) -> Any:
    """One of the values, shared with nothing that is mutated later."""
    value = draw.choice(values)
    return copy.deepcopy(value) if type(value) in (dict, list) else value


def mutate(body: Body, draw: random.Random) -> None:
    """One random change somewhere in the body, in place."""
    target: Any = body
    while draw.random() < 0.8:
        items = list(target.values()) if type(target) is dict else target
        inner = draw.choice(items) if items else None
        if type(inner) not in (dict, list):
            break
        target = inner
    if type(target) is dict:
        _change_object(target, draw)
    else:
        _change_array(target, draw)


def _change_object(target: Body, draw: random.Random) -> None:
    names = list(target)
    kind = draw.randrange(6) if names else 0
    name = draw.choice(names) if names else ""
    if kind == 0:
        target[draw.choice(NAMES)] = picked(LEAVES, draw)
    elif kind == 1:
        del target[name]
    elif kind == 2:
        items = list(target.items())
        draw.shuffle(items)
        target.clear()
        target.update(items)
    elif kind == 3:
        other = draw.choice(names)
        target[name], target[other] = target[other], target[name]
    else:
        target[name] = _changed(target[name], draw)


def _change_array(target: list[Any], draw: random.Random) -> None:
    kind = draw.randrange(5) if target else 0
    place = draw.randrange(len(target)) if target else 0
    if kind == 0:
        target.insert(place, picked([*LEAVES, *target], draw))
    elif kind == 1:
        del target[place]
    elif kind == 2:
        draw.shuffle(target)
    else:
        target[place] = _changed(target[place], draw)


def _changed(value: Any, draw: random.Random) -> Any:
    kind = draw.randrange(4)
    if type(value) is str and kind:
        cut = draw.randrange(len(value) + 1)
        return draw.choice((value + "x", value[:cut], value[:cut] + " " + value[cut:], [value]))
    if type(value) in (int, float) and kind:
        return draw.choice((value + 1, -value, float(value), value * 0.5, str(value)))
    return picked(LEAVES, draw)


def chosen(case: Case, draw: random.Random) -> Body:
    """A body with some of the API's fields, mutated up to three times."""
    names = [name for name in case.body if name in case.required or draw.random() < 0.15]
    carried = [name for name in case.carried if draw.random() < 0.1]
    draw.shuffle(names)
    fields = {name: case.body[name] for name in names} | {n: case.carried[n] for n in carried}
    body: Body = orjson.loads(orjson.dumps(fields))
    for _ in range(draw.randrange(4)):
        mutate(body, draw)
    return body


def restyled(case: Case, body: Body, draw: random.Random) -> bytes:
    """The same request: re-ordered, re-spelled, with other transport fields."""
    kept = [(name, value) for name, value in body.items() if name not in case.transport]
    carried = [(name, value) for name, value in case.carried.items() if draw.random() < 0.3]
    # What the cache does not understand of these two stays part of the request.
    for name in ("cache", "stream_options"):
        if name in body and name in case.transport and unread(case, name, body[name]) is not ABSENT:
            carried = [pair for pair in carried if pair[0] != name] + [(name, body[name])]
    pairs = kept + carried
    draw.shuffle(pairs)
    made: Body = {
        name: float(value)
        if name in case.numbers and type(value) is int and abs(value) < 2**53
        else value
        for name, value in pairs
    }
    if case.unordered and type(made.get(case.unordered)) is list:
        made[case.unordered] = [dict(reversed(item.items())) for item in made[case.unordered]]
    return json.dumps(
        made, indent=draw.choice((None, 1)), separators=draw.choice((None, (" , ", "\t:\n")))
    ).encode()
