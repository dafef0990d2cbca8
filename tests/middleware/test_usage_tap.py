import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Usage
from trivet.middleware.prefix_tier.usage_tap import NOTHING, Told, UsageTap

CHAT = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
JSON, STREAM = "application/json", "text/event-stream"


def tapped(body: bytes, media_type: str = JSON, size: int = 1 << 30) -> Told:
    tap = UsageTap(media_type)
    for start in range(0, len(body), size):
        tap.take(body[start : start + size])
    return tap.told()


def events(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


def chunk(text: str = "x", usage: Any = None) -> dict[str, Any]:
    return {"model": "m", "choices": [{"delta": {"content": text}}], "usage": usage}


def anthropic(*texts: str) -> bytes:
    start = {"model": "claude", "usage": {"input_tokens": 5, "cache_read_input_tokens": 90}}
    deltas = [{"type": "content_block_delta", "delta": {"text": text}} for text in texts]
    end = {"type": "message_delta", "usage": {"output_tokens": 7}}
    return events({"type": "message_start", "message": start}, *deltas, end)


def test_a_json_answer_is_read_whole() -> None:
    body = json.dumps({"model": "m", "choices": [], "usage": CHAT}, indent=2).encode()
    assert tapped(body) == Told(Usage(20, 5), "m")


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("texts", [2, 20_000])
def test_a_streams_usage_is_found_however_it_is_cut(size: int, texts: int) -> None:
    body = events(*[chunk()] * texts, chunk(usage=CHAT)) + b"data: [DONE]\n\n"
    assert tapped(body, STREAM, max(size, len(body) // 5_000)) == Told(Usage(20, 5), "m")


@pytest.mark.parametrize("texts", [1, 5_000])
def test_the_beginning_and_the_end_of_an_anthropic_stream_are_put_together(texts: int) -> None:
    told = tapped(anthropic(*["word " * 10] * texts), STREAM)
    assert told == Told(Usage(95, 7, 90), "claude")


def test_of_a_stream_that_broke_off_what_was_told_counts() -> None:
    body = anthropic("a", "b")
    assert tapped(body[: body.index(b"message_delta")], STREAM).usage == Usage(95, 0, 90)


def test_a_large_event_at_the_end_is_looked_through_from_behind() -> None:
    response = {"model": "m", "output": ["y" * 200_000], "usage": {"input_tokens": 3}}
    response["usage"] = {"input_tokens": 30, "output_tokens": 4, "total_tokens": 34}
    body = events({"type": "response.completed", "response": response})
    assert tapped(body, STREAM, 4096).usage == Usage(30, 4)


def test_a_large_json_answer_is_looked_through_from_behind() -> None:
    body = json.dumps({"data": ["z" * 300_000], "model": "e", "usage": CHAT}).encode()
    assert tapped(body, JSON, 4096) == Told(Usage(20, 5), "e")


def test_gemini_s_array_of_events_and_its_event_stream_say_the_same() -> None:
    parts = [
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": n}, "modelVersion": "g"}
        for n in (1, 6)
    ]
    array = json.dumps(parts).encode()
    assert tapped(array) == tapped(events(*parts), STREAM) == Told(Usage(9, 6), "g")


def test_bedrocks_binary_events_are_looked_through() -> None:
    usage = b'{"metrics":{"latencyMs":1},"usage":{"inputTokens":5,"outputTokens":2,'
    usage += b'"totalTokens":7,"cacheReadInputTokens":8},"p":"ab"}'
    body = b"\x00\x00\x01\x10junk\xff" * 9 + b"\x0b:event-type\x07" + usage + b"\xde\xad"
    told = tapped(body, "application/vnd.amazon.eventstream")
    assert told.usage == Usage(13, 2, 8)


@pytest.mark.parametrize("media_type", [JSON, STREAM])
@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_model_says_is_not_taken_for_usage(media_type: str, size: int) -> None:
    said = json.dumps({"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0}})
    value = chunk("w" * size + said)
    body = events(value) if media_type == STREAM else json.dumps(value).encode()
    assert tapped(body, media_type).usage is None


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 2**31, "completion_tokens": 1},
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}},
        {"prompt_tokens": -5, "completion_tokens": 1},
        {"prompt_tokens": "5"},
        {},
        [],
    ],
)
def test_counts_that_cannot_be_true_are_not_known(usage: Any) -> None:
    assert tapped(json.dumps({"usage": usage}).encode()).usage is None


@given(st.lists(st.binary(max_size=300), max_size=8), st.sampled_from([JSON, STREAM, "", "x/y"]))
def test_no_body_makes_it_fail(chunks: list[bytes], media_type: str) -> None:
    tap = UsageTap(media_type)
    for one in chunks:
        tap.take(one)
    assert isinstance(tap.told(), Told)


@given(st.lists(st.integers(0, 200_000), max_size=20))
def test_what_is_kept_is_bounded(sizes: list[int]) -> None:
    tap = UsageTap(STREAM)
    for size in sizes:
        tap.take(b"x" * size)
    kept = sum(map(len, tap._head)) + sum(map(len, tap._tail))
    assert kept <= (16 << 10) + 2 * (48 << 10)


def test_without_a_body_nothing_is_told() -> None:
    assert UsageTap(JSON).told() == NOTHING
