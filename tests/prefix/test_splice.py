"""Edits on raw JSON text: only what is named changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.canonical import parse
from trivet.prefix.prompts.json_text import may_name
from trivet.prefix.prompts.outline import Place
from trivet.prefix.prompts.splice import Splice, appended, members

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e9, 1e9) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_BODIES = st.dictionaries(_TEXT, _VALUES, max_size=5)
_SPACE = st.text(" \t\r\n", max_size=3)


def _written(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """The value as JSON text with any white space and any escapes."""

    def space() -> str:
        return str(draw(_SPACE))

    if isinstance(value, dict):
        items = [
            f"{space()}{_written(name, draw)}{space()}:{space()}{_written(item, draw)}{space()}"
            for name, item in value.items()
        ]
        return "{" + (",".join(items) or space()) + "}"
    if isinstance(value, list):
        items = [f"{space()}{_written(item, draw)}{space()}" for item in value]
        return "[" + (",".join(items) or space()) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def _texts(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    body = draw(_BODIES)
    text = draw(_SPACE) + _written(body, draw) + draw(_SPACE)
    return text.encode(), body


def _objects(value: Any, place: Place = ()) -> list[Place]:
    found: list[Place] = []
    if isinstance(value, dict):
        found = [place]
        for name, item in value.items():
            found += _objects(item, (*place, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += _objects(item, (*place, index))
    return found


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


@given(_texts())
def test_members_name_the_bytes_of_each_member(text: tuple[bytes, dict[str, Any]]) -> None:
    raw, body = text
    found = members(raw)
    assert [one.name for one in found] == list(body)
    for one in found:
        assert json.loads(raw[one.value : one.end]) == body[one.name]
        assert json.loads(b"{" + raw[one.start : one.end] + b"}") == {one.name: body[one.name]}


@given(_texts())
def test_no_edit_gives_the_very_same_object(text: tuple[bytes, dict[str, Any]]) -> None:
    assert Splice(text[0]).done() is text[0]


@given(_texts(), st.data())
def test_an_added_member_changes_nothing_else(
    text: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    raw, body = text
    place = data.draw(st.sampled_from(_objects(body)))
    name, value = data.draw(_TEXT), data.draw(_VALUES)
    fresh = name not in _at(body, place)
    splice = Splice(raw)
    splice.add(place, name, value)
    made = splice.done()
    wanted = copy.deepcopy(body)
    _at(wanted, place)[name] = value
    assert _same(parse(made), wanted)
    if fresh:
        # What was there is there, in one piece before and one behind.
        added = len(made) - len(raw)
        assert any(made[:at] + made[at + added :] == raw for at in range(len(raw) + 1))


@given(_texts(), st.data())
def test_edits_together_give_what_they_say(
    text: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    raw, body = text
    wanted, splice = copy.deepcopy(body), Splice(raw)
    for name in data.draw(st.lists(st.sampled_from(list(body) or ["absent"]), unique=True)):
        splice.drop(name)
        wanted.pop(name, None)
    for place in data.draw(st.lists(st.sampled_from(_objects(body)), unique=True, max_size=4)):
        splice.add(place, "\x00new", 1)
        if not place or place[0] in wanted:
            _at(wanted, place)["\x00new"] = 1
    put = data.draw(st.dictionaries(_TEXT, _VALUES, max_size=2))
    for name, value in put.items():
        splice.put(name, value)
    made = parse(splice.done())
    # A replaced member has the new value as a whole, whatever was to change inside it.
    assert _same(made, {**wanted, **put})


@given(_texts(), st.dictionaries(_TEXT, _VALUES, min_size=1, max_size=2))
def test_what_is_appended_unread_is_what_is_put(
    text: tuple[bytes, dict[str, Any]], added: dict[str, Any]
) -> None:
    raw, body = text
    added = {name: value for name, value in added.items() if name not in body}
    if not added:
        return
    splice = Splice(raw)
    for name, value in added.items():
        splice.put(name, value)
    assert appended(raw, added, empty=not body) == splice.done()


@given(_texts(), st.data())
def test_a_wrapped_string_keeps_its_own_bytes(
    text: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    raw, body = text
    names = [name for name, value in body.items() if isinstance(value, str)]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    splice = Splice(raw)
    splice.wrap((name,))
    splice.add((name, 0), "cache_control", {"type": "ephemeral"})
    made = splice.done()
    block = {"type": "text", "text": body[name], "cache_control": {"type": "ephemeral"}}
    assert _same(parse(made), {**body, name: [block]})
    own = next(raw[one.value : one.end] for one in members(raw) if one.name == name)
    assert b'[{"type":"text","text":' + own + b',"cache_control":' in made


@given(_texts(), st.data())
def test_an_item_is_put_behind_another(
    text: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    raw, body = text
    names = [name for name, value in body.items() if isinstance(value, list) and value]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    index = data.draw(st.integers(0, len(body[name]) - 1))
    splice = Splice(raw)
    splice.after((name, index), {"cachePoint": {}})
    wanted = copy.deepcopy(body)
    wanted[name].insert(index + 1, {"cachePoint": {}})
    assert _same(parse(splice.done()), wanted)


def _same(found: Any, wanted: Any) -> bool:
    """Equal as parsed, keys in the same order."""
    return json.dumps(found) == json.dumps(wanted)


def test_all_members_can_go_and_others_come() -> None:
    splice = Splice(b'{ "a": 1, "b": [2] }')
    for name in ("b", "a"):
        splice.drop(name)
    splice.put("c", 3)
    assert json.loads(splice.done()) == {"c": 3}


def test_a_wrapped_last_string_ends_before_what_is_added_behind_it() -> None:
    splice = Splice(b'{"m":[{"content":"x"}]}')
    splice.wrap(("m", 0, "content"))
    splice.add(("m", 0), "z", 1)
    splice.after(("m", 0), 2)
    assert splice.done() == b'{"m":[{"content":[{"type":"text","text":"x"}],"z":1},2]}'


def test_a_key_that_is_written_with_escapes_is_found() -> None:
    splice = Splice(b'{"cache\\u005fsalt":"theirs","model":"m"}')
    splice.put("cache_salt", "ours")
    assert json.loads(splice.done()) == {"cache_salt": "ours", "model": "m"}


def test_brackets_and_quotes_inside_strings_are_text() -> None:
    raw = b'{"a":"]}\\"{[","b":{"c":"\\\\"}}'
    splice = Splice(raw)
    splice.add(("b",), "d", "]")
    assert splice.done() == b'{"a":"]}\\"{[","b":{"c":"\\\\","d":"]"}}'


@pytest.mark.parametrize("place", [("a", 0), ("b",), ("c", 3), ("c", "x"), (0,)])
def test_a_place_that_is_not_there_raises(place: Place) -> None:
    with pytest.raises((KeyError, ValueError)):
        Splice(b'{"a":{},"c":[1]}').add(place, "n", 1)


@pytest.mark.parametrize("raw", [b"[1]", b"", b"1", b"}", b'"x"'])
def test_a_text_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        Splice(raw)


def test_a_megabyte_of_trailing_space_is_read_at_once() -> None:
    splice = Splice(b'{"a":1}' + b" " * (1 << 20))
    splice.put("b", 2)
    assert splice.done().startswith(b'{"a":1,"b":2} ')


@given(st.text("abcdefghijklmnopqrstuvwxyz_CP", min_size=1), st.data())
def test_a_key_is_found_however_it_is_written(name: str, data: st.DataObject) -> None:
    escapes = data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
    upper = data.draw(st.booleans())
    written = "".join(
        (f"\\u{ord(one):04X}" if upper else f"\\u{ord(one):04x}") if hidden else one
        for one, hidden in zip(name, escapes, strict=True)
    )
    raw = f'{{"{written}":1}}'.encode()
    assert may_name(raw, name)
    assert Splice(raw).has((), name)
