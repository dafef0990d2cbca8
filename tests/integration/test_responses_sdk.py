"""The official OpenAI SDK reads what the dialect replays."""

from __future__ import annotations

from typing import Any

import openai
import orjson
import pytest
from openai_responses import ANSWERS, CALL
from pydantic import BaseModel
from replay_server import plain, recorded, recorded_stream, serving

from trivet.messages import Answer
from trivet.middleware.dialects.responses import ResponsesDialect

# The SDK itself warns when it copies an item of a type that it does not know.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

DIALECT = ResponsesDialect()
ASK: Any = {"model": "gpt-5.6", "input": "hi"}
REQUEST = DIALECT.decode(orjson.dumps(ASK | {"store": False}), {})


def stored(body: dict[str, Any]) -> Answer:
    return Answer(orjson.dumps(body), None, "m")


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)


def check_events(events: list[Any], whole: Any) -> None:
    """The order that the API documents, and that deltas add up to what `done` repeats."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0].response.status == "in_progress"
    assert events[0].response.id == whole.id
    assert plain(events[-1].response) == plain(whole)
    added = [event.output_index for event in events if event.type == "response.output_item.added"]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert added == list(range(len(whole.output)))
    assert [plain(event.item) for event in done] == [plain(item) for item in whole.output]
    held: dict[Any, str] = {}
    for event in events:
        kind, _, phase = event.type.rpartition(".")
        place = (
            kind,
            getattr(event, "output_index", None),
            getattr(event, "content_index", None),
            getattr(event, "summary_index", None),
        )
        if phase == "delta":
            held[place] = held.get(place, "") + event.delta
        elif phase == "done" and kind.rpartition(".")[2] in (
            "output_text",
            "refusal",
            "reasoning_text",
            "reasoning_summary_text",
            "function_call_arguments",
            "custom_tool_call_input",
        ):
            fields = ("text", "refusal", "arguments", "input")
            full = next(getattr(event, name) for name in fields if hasattr(event, name))
            assert held.pop(place) == full
    assert held == {}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_sync_sdk_rebuilds_from_the_stream_what_it_reads_as_json(name: str) -> None:
    with serving(DIALECT, stored(ANSWERS[name])) as url, client(url) as sdk:
        whole = sdk.responses.create(**ASK)
        with sdk.responses.stream(**ASK) as stream:
            assert plain(stream.get_final_response()) == plain(whole)
        check_events(list(sdk.responses.create(**ASK, stream=True)), whole)


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_async_sdk_rebuilds_from_the_stream_what_it_reads_as_json(name: str) -> None:
    with serving(DIALECT, stored(ANSWERS[name])) as url:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as sdk:
            whole = await sdk.responses.create(**ASK)
            async with sdk.responses.stream(**ASK) as stream:
                assert plain(await stream.get_final_response()) == plain(whole)
            events = [event async for event in await sdk.responses.create(**ASK, stream=True)]
    check_events(events, whole)


def test_pieces_of_one_byte_change_nothing() -> None:
    with serving(DIALECT, stored(ANSWERS["tools"]), piece=1) as url, client(url) as sdk:
        whole = sdk.responses.create(**ASK)
        with sdk.responses.stream(**ASK) as stream:
            assert plain(stream.get_final_response()) == plain(whole)


class Wanted(BaseModel):
    a: int


def test_the_sdk_parses_the_final_answer_of_a_structured_stream() -> None:
    answer = stored(ANSWERS["phases"])
    with (
        serving(DIALECT, answer) as url,
        client(url) as sdk,
        sdk.responses.stream(**ASK, text_format=Wanted) as stream,
    ):
        assert stream.get_final_response().output_parsed == Wanted(a=1)


def test_the_sdk_follows_tool_arguments_as_they_grow() -> None:
    answer = stored(ANSWERS["tools"])
    with (
        serving(DIALECT, answer) as url,
        client(url) as sdk,
        sdk.responses.stream(**ASK) as stream,
    ):
        grown = [
            event.snapshot
            for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
    assert len(grown) > 2
    assert grown[-1] == CALL["arguments"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_recorded_stream_is_the_json_answer(name: str) -> None:
    body = orjson.dumps(ANSWERS[name])
    answer = recorded(DIALECT, REQUEST, body)
    assert answer.body == body
    stream = DIALECT.render_stream(answer, REQUEST)
    assert recorded_stream(DIALECT, REQUEST, stream) == answer


def test_both_forms_carry_the_echo_of_the_current_request() -> None:
    first = ASK | {
        "metadata": {"turn": "1"},
        "user": "ann",
        "service_tier": "flex",
        "prompt_cache_options": {"mode": "explicit"},
    }
    echo: Any = {
        "metadata": {"turn": "2"},
        "prompt_cache_key": "k",
        "safety_identifier": "bob",
        "prompt_cache_options": {"ttl": "12h"},
    }
    answer = recorded(
        DIALECT,
        DIALECT.decode(orjson.dumps(first), {}),
        orjson.dumps(
            ANSWERS["text"]
            | {"metadata": {"turn": "1"}, "user": "ann", "service_tier": "flex"}
            | {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}
        ),
    )
    held: Any = echo | {
        "user": None,
        "service_tier": "default",
        "prompt_cache_options": {
            "mode": "implicit",
            "ttl": "12h",
            "comparison_response_id": None,
        },
    }
    with serving(DIALECT, answer) as url, client(url) as sdk:
        whole = sdk.responses.create(**ASK, **echo)
        assert {field: plain(whole)[field] for field in held} == held
        events = list(sdk.responses.create(**ASK, **echo, stream=True))
    check_events(events, whole)
    assert {field: plain(events[0].response)[field] for field in held} == held
