"""The official OpenAI SDK reads what the chat and completions dialects replay."""

from __future__ import annotations

from itertools import chain
from typing import Any

import openai
import orjson
import pytest
from openai.lib.streaming._deltas import accumulate_delta
from openai_answers import CHATS, COMPLETIONS, UNHELPED
from replay_server import plain, recorded, recorded_stream, serving

from trivet.messages import Answer
from trivet.middleware.dialects.base import Dialect
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.completions import CompletionsDialect

CHAT, LEGACY = ChatDialect(), CompletionsDialect()
USAGE: Any = {"include_usage": True}


def ask(value: dict[str, Any]) -> Any:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": "m", "messages": messages, "n": len(value["choices"])}


def answer_to(dialect: Dialect, value: dict[str, Any], asked: dict[str, Any]) -> Answer:
    """The answer recorded as JSON."""
    return recorded(dialect, dialect.decode(orjson.dumps(asked), {}), orjson.dumps(value))


def streamed(dialect: Dialect, answer: Answer, asked: dict[str, Any]) -> Answer:
    """The answer recorded from its own stream, which arrives byte by byte."""
    body = orjson.dumps({**asked, "stream": True, "stream_options": USAGE})
    request = dialect.decode(body, {})
    return recorded_stream(dialect, request, dialect.render_stream(answer, request), piece=1)


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)


def accumulated(events: list[Any]) -> Any:
    """A chat completion out of raw chunks, by the SDK's own delta rules."""
    whole: Any = None
    for event in events:
        chunk = event.to_dict()
        if whole is None:
            whole = {**chunk, "object": "chat.completion", "choices": []}
        for choice in chunk["choices"]:
            if choice["index"] == len(whole["choices"]):
                whole["choices"].append({**choice, "message": {}})
            held = whole["choices"][choice["index"]]
            accumulate_delta(held["message"], choice["delta"])
            held["finish_reason"] = choice["finish_reason"]
            if choice.get("logprobs"):
                held["logprobs"] = accumulate_lists(held.get("logprobs"), choice["logprobs"])
            held.pop("delta", None)
        whole["usage"] = chunk.get("usage")
    for choice in whole["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            del call["index"]
    return whole


def accumulate_lists(held: Any, new: Any) -> Any:
    if held is None:
        return new
    return {name: (held[name] or []) + (new[name] or []) or None for name in held}


def normal(model: Any) -> Any:
    """A completion of the SDK without the index that its accumulator leaves in tool calls."""
    value = plain(model)
    for choice in value["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            call.pop("index", None)
    return value


def as_model(value: Any) -> Any:
    return plain(openai.types.chat.ChatCompletion.construct(**value))


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("way", ["json", "stream"])
def test_the_sync_sdk_reads_one_answer_whichever_way_it_is_recorded_and_replayed(
    name: str, way: str
) -> None:
    value = CHATS[name]
    asked = ask(value)
    answer = answer_to(CHAT, value, asked)
    if way == "stream":
        answer = streamed(CHAT, answer, asked)
        assert orjson.loads(answer.body) == value
    with serving(CHAT, answer) as url, client(url) as sdk:
        whole = sdk.chat.completions.create(**asked)
        assert normal(whole) == as_model(value)
        with sdk.chat.completions.stream(**asked, stream_options=USAGE) as stream:
            rebuilt = stream.get_final_completion()
        assert normal(rebuilt) == normal(whole)
        events = list(sdk.chat.completions.create(**asked, stream=True, stream_options=USAGE))
        assert as_model(accumulated(events)) == normal(whole)
        assert {event.id for event in events} == {value["id"]}
        quiet = list(sdk.chat.completions.create(**asked, stream=True))
        assert all("usage" not in event.to_dict() for event in quiet)
        assert all(event.choices for event in quiet)


@pytest.mark.parametrize("name", UNHELPED)
def test_raw_chunks_amount_to_the_answer_where_the_stream_helper_cannot(name: str) -> None:
    value = UNHELPED[name]
    asked = ask(value)
    answer = answer_to(CHAT, value, asked)
    assert orjson.loads(streamed(CHAT, answer, asked).body) == value
    with serving(CHAT, answer) as url, client(url) as sdk:
        whole = sdk.chat.completions.create(**asked)
        events = list(sdk.chat.completions.create(**asked, stream=True, stream_options=USAGE))
    assert normal(whole) == as_model(value)
    assert as_model(accumulated(events)) == normal(whole)


@pytest.mark.parametrize("name", CHATS)
async def test_the_async_sdk_reads_one_answer_as_json_and_as_a_stream(name: str) -> None:
    value = CHATS[name]
    asked = ask(value)
    with serving(CHAT, answer_to(CHAT, value, asked)) as url:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as sdk:
            whole = await sdk.chat.completions.create(**asked)
            async with sdk.chat.completions.stream(**asked, stream_options=USAGE) as stream:
                rebuilt = await stream.get_final_completion()
            stream = await sdk.chat.completions.create(**asked, stream=True, stream_options=USAGE)
            events = [event async for event in stream]
    assert normal(whole) == as_model(value)
    assert normal(rebuilt) == normal(whole)
    assert as_model(accumulated(events)) == normal(whole)


@pytest.mark.parametrize("name", ["text", "parallel tools", "logprobs of three"])
def test_network_pieces_of_one_byte_change_nothing(name: str) -> None:
    asked = ask(CHATS[name])
    with serving(CHAT, answer_to(CHAT, CHATS[name], asked), piece=1) as url, client(url) as sdk:
        whole = sdk.chat.completions.create(**asked)
        with sdk.chat.completions.stream(**asked, stream_options=USAGE) as stream:
            assert normal(stream.get_final_completion()) == normal(whole)


def test_the_stream_helper_says_when_texts_and_arguments_are_done() -> None:
    value = CHATS["parallel tools"]
    asked = ask(value)
    with (
        serving(CHAT, answer_to(CHAT, value, asked)) as url,
        client(url) as sdk,
        sdk.chat.completions.stream(**asked) as stream,
    ):
        kinds = [event.type for event in stream]
    assert kinds.count("content.done") == 1
    assert kinds.count("tool_calls.function.arguments.done") == 3


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_legacy_completion_is_read_whichever_way_it_is_recorded_and_replayed(name: str) -> None:
    value = COMPLETIONS[name]
    asked: Any = {"model": "m", "prompt": "Once", "n": len(value["choices"])}
    answer = answer_to(LEGACY, value, asked)
    again = streamed(LEGACY, answer, asked)
    assert orjson.loads(again.body) == value
    for one in (answer, again):
        with serving(LEGACY, one, piece=7) as url, client(url) as sdk:
            whole = sdk.completions.create(**asked)
            events = list(sdk.completions.create(**asked, stream=True, stream_options=USAGE))
        assert plain(whole) == plain(openai.types.Completion.construct(**value))
        assert events[-1].usage == whole.usage
        for choice in whole.choices:
            parts = [one for event in events for one in event.choices if one.index == choice.index]
            assert "".join(part.text for part in parts) == choice.text
            assert parts[-1].finish_reason == choice.finish_reason
            spoken = [part.logprobs for part in parts if part.logprobs]
            for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                lists = [getattr(one, field) for one in spoken]
                assert list(chain(*lists)) == (
                    getattr(choice.logprobs, field) if choice.logprobs else []
                )
