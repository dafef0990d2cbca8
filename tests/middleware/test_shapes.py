"""A prompt in proportion: its stretches add up to it, whatever a caller sends, and hold no text."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api, Usage
from trivet.middleware.prefix_tier.shapes import MOST, shape_of
from trivet.prefix.doctor.live import Finding
from trivet.prefix.prompts.outline import Level, Mark, Outline, Part, outline_of


def outline(*texts: str, **given: Any) -> Outline:
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return outline_of(Api.MESSAGES, {"model": "m", "messages": said, **given})


def found_at(part: int) -> Finding:
    return Finding("t", "r", Level.MESSAGES, (), 0, "uuid", "", "", 0, 0, True, part=part)


def part(level: Level, tokens: int, mark: Mark | None) -> Part:
    return Part(level, ("messages", 0), "text", "user", b'"x"', tokens, mark)


PARTS = st.lists(
    st.builds(
        part,
        st.sampled_from(Level),
        st.integers(0, 10**6),
        st.none() | st.builds(Mark, st.text(max_size=40)),
    ),
    max_size=300,
)


@given(PARTS, st.integers(-1, 300))
def test_stretches_hold_every_part_once_and_are_few(parts: list[Part], broken: int) -> None:
    made = Outline(Api.MESSAGES, "m", tuple(parts))
    shape = shape_of(made, "anthropic", None, found_at(broken))
    assert sum(one.parts for one in shape.stretches) == len(parts)
    assert sum(one.tokens for one in shape.stretches) == made.tokens
    assert len(shape.stretches) <= 2 * MOST + 2
    if 0 <= broken < len(parts):
        assert shape.stretches[shape.broken].first == broken
    else:
        assert shape.broken == -1


def test_a_breakpoint_ends_its_stretch() -> None:
    marked = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    made = outline("a", system=[{"type": "text", "text": "a"}, marked])
    shape = shape_of(made, "anthropic", Usage(100, 1, 60, 30), None)
    assert [(one.level, one.mark) for one in shape.stretches] == [
        (Level.SYSTEM, None),
        (Level.SYSTEM, "1h"),
        (Level.MESSAGES, None),
    ]
    assert (shape.input_tokens, shape.read_tokens, shape.write_tokens) == (100, 60, 30)


def test_nothing_a_caller_writes_but_short_names_is_in_a_shape() -> None:
    made = outline("secret words", system="more secret words")
    assert "secret" not in repr(shape_of(made, "", None, None))
