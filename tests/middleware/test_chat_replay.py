"""Chat Completions: how a stored answer is replayed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai_bodies import (
    DONE,
    ask,
    call,
    calling,
    choice,
    chunk,
    chunks,
    completion,
    delta,
    followed,
    hello,
    message,
    record,
)

from trivet.middleware.dialects.chat import ChatDialect

CHAT = ChatDialect()


def decoded(**fields: Any) -> Any:
    return CHAT.decode(ask(**fields), {})


def _said(text: Any, **fields: Any) -> dict[str, Any]:
    return completion(choice(message=message(text, **fields)))


def test_a_json_replay_is_the_stored_body_itself() -> None:
    answer = record(CHAT, decoded(), completion())
    assert CHAT.render_json(answer, decoded()) is answer.body


def test_a_replayed_stream_has_one_role_one_finish_and_done() -> None:
    answer = record(CHAT, decoded(), completion())
    assert chunks(CHAT.render_stream(answer, decoded(stream=True))) == [
        orjson.loads(event[6:])
        for event in (
            chunk(delta(role="assistant", content="", refusal=None)),
            chunk(delta(content="Hello there.")),
            chunk(delta(0, "stop")),
        )
    ]


def test_the_usage_chunk_is_sent_only_to_a_caller_that_asked() -> None:
    answer = record(CHAT, decoded(), completion())
    asked = decoded(stream=True, stream_options={"include_usage": True})
    *others, last = chunks(CHAT.render_stream(answer, asked))
    assert (last["choices"], last["usage"]) == ([], completion()["usage"])
    assert [one["usage"] for one in others] == [None] * 3
    assert not any("usage" in one for one in chunks(CHAT.render_stream(answer, decoded())))


def test_unknown_usage_is_not_replayed_as_zeros() -> None:
    value = completion()
    del value["usage"]
    asked = decoded(stream=True, stream_options={"include_usage": True})
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), asked))
    assert [one["usage"] for one in found] == [None] * 3


def test_ids_and_names_of_tool_calls_are_sent_once() -> None:
    long = '{"text":"%s"}' % ("word " * 100)
    answer = record(CHAT, decoded(), calling(call(0, long), call(1)))
    stream = CHAT.render_stream(answer, decoded(stream=True))
    assert stream.count(b'"id":"call_0"') == stream.count(b'"id":"call_1"') == 1
    assert stream.count(b'"name":"weather"') == 2
    assert stream.count(b'"id":"chatcmpl-1"') == len(chunks(stream))
    assert followed(CHAT, decoded(), [stream_event(one) for one in chunks(stream)] + [DONE])


def stream_event(value: Any) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def test_an_empty_list_of_tool_calls_is_replayed_as_one() -> None:
    value = _said("Hi.", tool_calls=[])
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))
    assert found[2]["choices"][0]["delta"] == {"tool_calls": []}


def test_a_chunk_without_a_delta_changes_nothing() -> None:
    events = [*hello()[:2], chunk({"index": 0, "delta": None}), *hello()[2:]]
    assert "usage" not in followed(CHAT, decoded(), events)


def test_choices_are_replayed_in_index_order() -> None:
    asked = decoded(n=3)
    answer = record(CHAT, asked, completion(choice(2), choice(0), choice(1)))
    found = [one["choices"][0]["index"] for one in chunks(CHAT.render_stream(answer, asked))]
    assert found == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_fields_of_the_providers_own_stand_in_the_first_and_the_last_chunk() -> None:
    value = completion(service_tier="default", citations=["https://a"])
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))
    assert [one.get("citations") for one in found] == [["https://a"], None, ["https://a"]]
    assert [one["service_tier"] for one in found] == ["default"] * 3


def test_tokens_dictate_the_pieces_and_half_characters_stay_together() -> None:
    def token(raw: bytes) -> dict[str, Any]:
        return {"token": repr(raw), "bytes": list(raw), "logprob": -1.0, "top_logprobs": []}

    tokens = [token(raw) for raw in (b"Hi ", b"\xf0\x9f", b"\x91\xa9", b"!")]
    value = completion(
        choice(message=message("Hi 👩!"), logprobs={"content": tokens, "refusal": None})
    )
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))[1:-1]
    assert [one["choices"][0]["delta"]["content"] for one in found] == ["Hi ", "👩", "!"]
    sent = [one["choices"][0]["logprobs"]["content"] for one in found]
    assert sent == [tokens[:1], tokens[1:3], tokens[3:]]


@pytest.mark.parametrize("tokens", [["Hel"], ["Hello there.", "<end>"], [5], [None], []])
def test_tokens_that_do_not_spell_the_text_are_sent_whole(tokens: list[Any]) -> None:
    entries = [{"token": one, "logprob": -1.0} if one else one for one in tokens]
    logprobs = {"content": entries, "refusal": None}
    value = completion(choice(logprobs=logprobs))
    found = chunks(CHAT.render_stream(record(CHAT, decoded(), value), decoded()))
    sent = [one["choices"][0] for one in found if one["choices"][0]["logprobs"]]
    assert [one["logprobs"] for one in sent] == [logprobs]


def test_line_ends_of_unicode_are_escaped_in_a_stream() -> None:
    text = "a\u2028b\u2029c\u0085d\r\ne"
    stream = CHAT.render_stream(record(CHAT, decoded(), _said(text)), decoded())
    assert len(stream.decode().splitlines()) == stream.count(b"\n")
    assert chunks(stream)[1]["choices"][0]["delta"]["content"] == text
