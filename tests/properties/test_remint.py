"""Fresh ids change nothing but whole values of id fields, and a stream is shaped event by event."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.replay import FollowerIds, StreamFilter, remint

IDS = ("call_abc123", "toolu_01XYZ", "chatcmpl-9", "AbCdEf123")
FIELDS = ("id", "call_id", "item_id", "tool_use_id")

# Text that is as hard as it gets: ids, quotes, escapes and whole id fields, written as text.
SNIPPETS = st.sampled_from(
    [
        *IDS,
        '"',
        "\\",
        '"id":"call_abc123"',
        '\\"id\\":\\"call_abc123\\"',
        "\n",
        "\u2028",
        "\u00e9",
        ":",
        ",",
        "{",
        "}",
    ]
)
TEXT = st.lists(SNIPPETS, max_size=6).map("".join) | st.text(max_size=8)
NAMES = st.sampled_from(
    [*FIELDS, "content", "arguments", "ids", "xid", "id_", 'q"id', "call_abc123"]
)
VALUES = st.recursive(
    TEXT | st.sampled_from(IDS) | st.integers(-5, 5) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def expected(value: Any, fresh: dict[str, str]) -> Any:
    """`value` with the ids of id fields replaced, by walking it."""
    if isinstance(value, dict):
        return {
            name: fresh.get(inner, inner)
            if name in FIELDS and isinstance(inner, str)
            else expected(inner, fresh)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [expected(inner, fresh) for inner in value]
    return value


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.lists(st.sampled_from(IDS), unique=True))
def test_only_whole_id_values_change(value: dict[str, Any], ids: list[str]) -> None:
    markers = dict(zip(FIELDS, ids, strict=False))
    whole = {"value": value, "markers": markers}
    made = json.loads(remint(orjson.dumps(whole), tuple(ids)))
    fresh = {markers[field]: made["markers"][field] for field in markers}
    assert all(new != old for old, new in fresh.items())
    assert made == expected(whole, fresh)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_nothing_changes_without_ids(value: dict[str, Any]) -> None:
    raw = orjson.dumps(value)
    assert remint(raw, ()) == raw


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_follower_gets_other_ids_and_nothing_else(value: dict[str, Any]) -> None:
    mine = FollowerIds()
    markers = dict(zip(FIELDS, IDS, strict=True))
    made = json.loads(mine(orjson.dumps({"value": value, "markers": markers})))
    walked = json.loads(mine(orjson.dumps({"value": value})))["value"]
    fresh = {old: made["markers"][field] for field, old in markers.items()}
    assert made["value"] == walked
    known = expected(value, fresh)
    for one, two in zip(texts(walked), texts(known), strict=True):
        # Ids that the strategy made up are minted too; what is no id field stays.
        assert one == two or one.startswith(two)


def texts(value: Any) -> list[str]:
    """All strings of a value, in order."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


CHUNKS = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "choices": st.lists(VALUES, max_size=2)},
    optional={"usage": st.none() | st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9)})},
)
EVENTS = st.one_of(
    CHUNKS.map(lambda value: b"data: %b\n\n" % orjson.dumps(value)),
    CHUNKS.map(lambda value: b"event: x\r\ndata: %b\r\n\r\n" % orjson.dumps(value)),
    st.sampled_from([b"data: [DONE]\n\n", b": ping\n\n", b"\n\n", b"data: {\n\n"]),
)


def shaped(stream: bytes, cuts: list[int], shapes: tuple[Any, ...]) -> bytes:
    shape = StreamFilter(hide_usage=True, shapes=shapes)
    places = sorted({min(cut, len(stream)) for cut in cuts})
    shown = b"".join(
        shape.push(stream[start:end])
        for start, end in zip([0, *places], [*places, len(stream)], strict=True)
    )
    return shown + shape.rest()


@given(
    st.lists(EVENTS, max_size=6).map(b"".join),
    st.binary(max_size=5),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_what_a_caller_gets_does_not_depend_on_how_the_stream_was_cut(
    events: bytes, rest: bytes, cuts: list[int]
) -> None:
    ids = FollowerIds()
    whole = shaped(events + rest, [], (ids,))
    assert shaped(events + rest, cuts, (ids,)) == whole
    assert shaped(events + rest, list(range(len(events + rest))), (ids,)) == whole
