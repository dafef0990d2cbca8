"""A stored answer becomes a reply of its own; a shared stream becomes each caller's own."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from openai_bodies import DONE, ask, call, calling, chunk, completion, delta, hello, record

from trivet.exact.entry import Entry
from trivet.messages import Api, ExactKey, Request
from trivet.middleware.dialects.registry import CHAT, MESSAGES, RESPONSES
from trivet.middleware.replay import (
    FollowerIds,
    StreamFilter,
    ask_usage,
    follower_shapes,
    hides_usage,
    remint,
    render,
)


def decoded(**fields: Any) -> Request:
    return CHAT.decode(ask(**fields), {})


def stored(value: dict[str, Any]) -> Entry:
    answer = record(CHAT, decoded(), value)
    return Entry(
        key=ExactKey(b"k" * 32),
        tenant="t1",
        api=Api.CHAT,
        canonical=b"c",
        body=answer.body,
        model=answer.model,
        usage=answer.usage,
        ids=answer.ids,
        created=0.0,
        expires=1.0,
        stale_until=1.0,
    )


def usage_chunk() -> bytes:
    return chunk(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})


class TestRender:
    def test_two_replays_differ_in_their_ids_only(self) -> None:
        kept = stored(calling(call(0), call(1)))
        one, two = (json.loads(render(CHAT, kept, decoded(), zero_usage=False)) for _ in range(2))
        ids = [
            [
                answer.pop("id"),
                *(made.pop("id") for made in answer["choices"][0]["message"]["tool_calls"]),
            ]
            for answer in (one, two)
        ]
        assert one == two
        assert not set(ids[0]) & set(ids[1])

    def test_it_is_rendered_once_for_each_delivery(self) -> None:
        kept = stored(completion())
        wanted = [
            decoded(),
            decoded(stream=True),
            decoded(stream=True, stream_options={"include_usage": True}),
        ]
        for request in [*wanted, *wanted]:
            render(CHAT, kept, request, zero_usage=False)
        assert len(kept.memo) == 3

    def test_ids_that_name_state_of_the_provider_are_kept(self) -> None:
        kept = stored(calling(call(0)))
        keeping = decoded()._replace(keep_ids=True)
        assert b'"call_0"' in render(CHAT, kept, keeping, zero_usage=False)

    def test_zeroed_usage_keeps_its_shape(self) -> None:
        usage = {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 5},
            "note": "x",
        }
        kept = stored(completion(usage=usage))
        shown = json.loads(render(CHAT, kept, decoded(), zero_usage=True))["usage"]
        assert shown == {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "total_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0},
            "note": "x",
        }
        assert json.loads(render(CHAT, kept, decoded(), zero_usage=False))["usage"] == usage

    def test_what_the_api_repeats_of_a_request_is_this_requests(self) -> None:
        kept = stored(completion())
        request = RESPONSES.decode(
            b'{"model":"m","input":"x","store":false,"temperature":0,"metadata":{"a":"b"}}', {}
        )
        assert request.echo
        render(RESPONSES, kept, request, zero_usage=False)
        assert kept.memo == {}


class TestRemint:
    def test_without_ids_in_it_nothing_changes(self) -> None:
        assert remint(b'{"id":"other"}', ("call_0",)) == b'{"id":"other"}'

    def test_every_place_of_an_id_gets_the_same_new_one(self) -> None:
        body = b'{"id":"call_0","call_id":"call_0","item_id":"call_0","tool_use_id":"call_0"}'
        made = json.loads(remint(body, ("call_0",)))
        assert len(set(made.values())) == 1
        assert made["id"] != "call_0"


class TestFollowerIds:
    def test_an_id_stays_one_through_a_stream_and_differs_between_followers(self) -> None:
        events = [b'data: {"id": "chatcmpl-1"}\n\n', b'data: {"item_id":"chatcmpl-1"}\n\n']
        made = []
        for _ in range(2):
            mine = FollowerIds()
            first, second = (json.loads(mine(event)[6:]) for event in events)
            assert first["id"] == second["item_id"]
            made.append(first["id"])
        assert len({"chatcmpl-1", *made}) == 3

    @pytest.mark.parametrize(
        "event",
        [
            b'data: {"content":"\\"id\\":\\"call_0\\""}\n\n',
            b'data: {"id":null,"x_id":"call_0"}\n\n',
            b'data: {"id":"functions.name:0"}\n\n',
            b'data: {"id":"\xff\xfe"}\n\n',
            b'data: {"id":""}\n\n',
        ],
    )
    def test_text_and_ids_that_cannot_be_minted_stay(self, event: bytes) -> None:
        assert FollowerIds()(event) == event

    def test_responses_ids_are_minted_where_a_replay_mints_them_and_nowhere_else(self) -> None:
        response = {
            "id": "resp_1234567890",
            "prompt": {"id": "pmpt_1234567890"},
            "tools": [{"type": "function", "parameters": {"examples": [{"id": "example_1234"}]}}],
            "metadata": {"id": "order_1234567890"},
            "output": [],
        }
        called = {"type": "function_call", "id": "fc_1234567890", "call_id": "call_1234567890"}
        events = [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "item": {**called, "name": "f"}},
            {"type": "response.function_call_arguments.delta", "item_id": "fc_1234567890"},
            {"type": "response.completed", "response": {**response, "output": [called]}},
        ]
        mine = FollowerIds()
        made = [json.loads(mine(b"data: %b\n\n" % orjson.dumps(event))[6:]) for event in events]
        first, last = made[0]["response"], made[3]["response"]
        assert first["id"] == last["id"] != "resp_1234567890"
        call_id = made[1]["item"]["call_id"]
        assert call_id == last["output"][0]["call_id"] != "call_1234567890"
        made[0]["response"]["id"] = made[3]["response"]["id"] = "resp_1234567890"
        made[1]["item"]["call_id"] = last["output"][0]["call_id"] = "call_1234567890"
        assert made == events

    @pytest.mark.parametrize(
        ("event", "minted"),
        [
            ({"type": "message_start", "message": {"id": "msg_1234567890"}}, "msg_1234567890"),
            (
                {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t_1"}},
                "t_1",
            ),
            (
                {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_12345"}]}}]},
                "call_12345",
            ),
            (
                {
                    "type": "content_block_start",
                    "content_block": {"type": "server_tool_use", "id": "srvtoolu_1"},
                },
                None,
            ),
            ({"choices": [{"delta": {"annotations": [{"id": "doc_12345"}]}}]}, None),
        ],
    )
    def test_each_dialects_ids_are_minted(self, event: dict[str, Any], minted: str | None) -> None:
        raw = b"data: %b\n\n" % orjson.dumps(event)
        made = FollowerIds()(raw)
        assert (made != raw) is (minted is not None)
        if minted is not None:
            assert f'"{minted}"'.encode() not in made


class TestFollowerShapes:
    def test_a_followers_own_metadata_is_not_taken_for_ids(self) -> None:
        raw = b'{"model":"m","input":"x","store":false,"temperature":0,"metadata":{"id":"mine"}}'
        request = RESPONSES.decode(raw, {})
        event = {
            "type": "response.created",
            "response": {"id": "resp_1", "metadata": {"id": "leaders"}},
        }
        made = b"data: %b\n\n" % orjson.dumps(event)
        for shape in follower_shapes(RESPONSES, request):
            made = shape(made)
        response = json.loads(made.partition(b"data: ")[2])["response"]
        assert response["metadata"] == {"id": "mine"}
        assert response["id"] != "resp_1"

    def test_stored_responses_keep_their_ids(self) -> None:
        request = RESPONSES.decode(b'{"model":"m","input":"x","temperature":0}', {})
        assert request.keep_ids
        assert len(follower_shapes(RESPONSES, request)) == 1


class TestStreamFilter:
    def test_usage_that_was_not_asked_for_is_taken_out(self) -> None:
        shape = StreamFilter(hide_usage=True, shapes=())
        events = [chunk(delta(content="a"), usage=None), usage_chunk(), DONE]
        shown = shape.push(b"".join(events))
        assert shown == chunk(delta(content="a")) + DONE

    def test_usage_that_was_asked_for_stays(self) -> None:
        shape = StreamFilter(hide_usage=False, shapes=())
        stream = b"".join([*hello(), usage_chunk()])
        assert shape.push(stream) == stream

    @pytest.mark.parametrize(
        "event",
        [
            chunk(delta(content='"usage":null,')),
            chunk(delta(content="x"), usage={"prompt_tokens": 1}),
            b'data: "usage"\n\n',
            b'data: {"usage"\n\n',
            b': "usage"\n\n',
        ],
    )
    def test_other_events_that_speak_of_usage_stay(self, event: bytes) -> None:
        assert StreamFilter(hide_usage=True, shapes=()).push(event) == event

    def test_an_event_is_held_until_it_is_whole(self) -> None:
        shape = StreamFilter(hide_usage=True, shapes=(bytes.upper,))
        assert shape.push(b"data: a") == b""
        assert shape.rest() == b"data: a"
        assert shape.push(b"\n\ndata") == b"DATA: A\n\n"
        assert shape.rest() == b"data"

    def test_what_is_too_long_for_an_event_passes_as_it_is(self) -> None:
        shape = StreamFilter(hide_usage=False, shapes=(bytes.upper,), longest=100)
        long = b"data: " + b"x" * 500
        shown = b""
        for start in range(0, len(long), 50):
            shown += shape.push(long[start : start + 50])
            assert len(shape.rest()) <= 100
        shown += shape.push(b"y\n\ndata: z\n\n")
        assert shown.lower() == long + b"y\n\ndata: z\n\n"
        assert shown.startswith(b"data: " + b"x" * 400)
        assert shown.endswith(b"Y\n\nDATA: Z\n\n")

    def test_whole_events_before_a_long_one_are_shaped(self) -> None:
        shape = StreamFilter(hide_usage=False, shapes=(bytes.upper,), longest=10)
        assert shape.push(b"data: a\n\ndata: " + b"x" * 9) == b"DATA: A\n\ndata: " + b"x" * 9
        assert shape.rest() == b""


class TestAskUsage:
    @pytest.mark.parametrize(
        "forward",
        [
            b'{"model":"m","stream":true}',
            b' {"model":"m" ,\n "stream":true }\n',
            b'{"model":"\\u00e9","x":18446744073709551616,"y":"\\ud800","stream":true}',
        ],
    )
    def test_without_options_every_byte_of_the_body_stays(self, forward: bytes) -> None:
        asked = ask_usage(forward)
        assert asked.startswith(forward.rstrip()[:-1])
        assert json.loads(asked) == {
            **json.loads(forward),
            "stream_options": {"include_usage": True},
        }

    @pytest.mark.parametrize("given", [b"null", b'{"include_usage":false}', b"{}"])
    def test_options_that_are_there_are_kept(self, given: bytes) -> None:
        forward = b'{"stream_options":%b,"x":18446744073709551616,"y":"\\ud800"}' % given
        asked = json.loads(ask_usage(forward))
        assert asked["stream_options"] == {"include_usage": True}
        assert (asked["x"], asked["y"]) == (18446744073709551616, "\ud800")

    def test_options_written_with_escapes_are_not_named_twice(self) -> None:
        forward = b'{"stream\\u005foptions":{"include_obfuscation":false}}'
        assert ask_usage(forward).count(b"options") == 1
        assert json.loads(ask_usage(forward))["stream_options"] == {
            "include_obfuscation": False,
            "include_usage": True,
        }


@pytest.mark.parametrize(
    ("fields", "hides"),
    [
        ({"stream": True}, True),
        ({"stream": True, "stream_options": {"include_usage": True}}, False),
        ({}, False),
    ],
)
def test_usage_is_hidden_from_streams_that_did_not_ask(fields: dict[str, Any], hides: bool) -> None:
    assert hides_usage(CHAT, decoded(**fields)) is hides


def test_dialects_whose_streams_always_have_usage_hide_nothing() -> None:
    raw = b'{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"x"}]}'
    assert not hides_usage(MESSAGES, MESSAGES.decode(raw, {}))
