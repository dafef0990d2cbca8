"""The official Anthropic SDK reads what the dialect replays."""

from __future__ import annotations

from typing import Any

import anthropic
import orjson
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic_answers import ANSWERS, UNRECORDED
from replay_server import plain, recorded, recorded_stream, serving

from trivet.messages import Answer
from trivet.middleware.dialects.messages import MessagesDialect

DIALECT = MessagesDialect()
ASK: Any = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hi"}],
}
REQUEST = DIALECT.decode(orjson.dumps(ASK), {})
ALL = ANSWERS | UNRECORDED


def stored(body: dict[str, Any]) -> Answer:
    return Answer(orjson.dumps(body), None, "m")


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)


@pytest.mark.parametrize("name", ALL)
def test_the_sync_sdk_rebuilds_from_the_stream_what_it_reads_as_json(name: str) -> None:
    with serving(DIALECT, stored(ALL[name])) as url, client(url) as sdk:
        whole = sdk.messages.create(**ASK)
        with sdk.messages.stream(**ASK) as stream:
            rebuilt = stream.get_final_message()
        assert plain(rebuilt) == plain(whole)
        snapshot: Any = None
        buffers: dict[int, bytes] = {}
        for event in sdk.messages.create(**ASK, stream=True):
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
        assert plain(snapshot) == plain(whole)


@pytest.mark.parametrize("name", ALL)
async def test_the_async_sdk_rebuilds_from_the_stream_what_it_reads_as_json(name: str) -> None:
    with serving(DIALECT, stored(ALL[name])) as url:
        async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as sdk:
            whole = await sdk.messages.create(**ASK)
            async with sdk.messages.stream(**ASK) as stream:
                rebuilt = await stream.get_final_message()
            assert plain(rebuilt) == plain(whole)
            events = [event async for event in await sdk.messages.create(**ASK, stream=True)]
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"


@pytest.mark.parametrize("name", ALL)
def test_the_beta_sdk_rebuilds_the_same_message(name: str) -> None:
    with serving(DIALECT, stored(ALL[name])) as url, client(url) as sdk:
        whole = sdk.beta.messages.create(**ASK)
        with sdk.beta.messages.stream(**ASK) as stream:
            assert plain(stream.get_final_message()) == plain(whole)


def test_pieces_of_one_byte_change_nothing() -> None:
    answer = stored(ANSWERS["tools"])
    with serving(DIALECT, answer, piece=1) as url, client(url) as sdk:
        whole = sdk.messages.create(**ASK)
        with sdk.messages.stream(**ASK) as stream:
            assert plain(stream.get_final_message()) == plain(whole)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_recorded_stream_is_the_json_answer(name: str) -> None:
    body = orjson.dumps(ANSWERS[name])
    answer = recorded(DIALECT, REQUEST, body)
    assert answer.body == body
    stream = DIALECT.render_stream(answer, REQUEST)
    again = recorded_stream(DIALECT, REQUEST, stream)
    assert orjson.loads(again.body) == ANSWERS[name]
    assert (again.usage, again.model, again.ids) == (answer.usage, answer.model, answer.ids)
    assert DIALECT.render_stream(again, REQUEST) == stream


@pytest.mark.parametrize("name", ANSWERS)
def test_a_recorded_stream_reads_as_json_and_as_a_stream(name: str) -> None:
    stream = DIALECT.render_stream(stored(ANSWERS[name]), REQUEST)
    answer = recorded_stream(DIALECT, REQUEST, stream, piece=7)
    with serving(DIALECT, stored(ANSWERS[name])) as url, client(url) as sdk:
        original = plain(sdk.messages.create(**ASK))
    with serving(DIALECT, answer) as url, client(url) as sdk:
        assert plain(sdk.messages.create(**ASK)) == original
        with sdk.messages.stream(**ASK) as events:
            assert plain(events.get_final_message()) == original


def test_text_arrives_in_more_than_one_piece() -> None:
    answer = stored(ANSWERS["thinking"])
    with (
        serving(DIALECT, answer) as url,
        client(url) as sdk,
        sdk.messages.stream(**ASK) as stream,
    ):
        parts = list(stream.text_stream)
    assert len(parts) > 3
    assert "".join(parts) == ANSWERS["thinking"]["content"][2]["text"]
