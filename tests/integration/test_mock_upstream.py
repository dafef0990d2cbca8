"""The built-in upstream, judged by the official SDKs and, for its failures, by a plain client."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import httpx2
import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel

from trivet.errors import ConfigError
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import run, running
from trivet.middleware.mock_upstream.schema import example

Body = dict[str, Any]

TOOL_SCHEMA: Body = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 2},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, MockUpstream]]:
    with running() as served:
        yield served


@pytest.fixture
def url(upstream: tuple[str, MockUpstream]) -> str:
    upstream[1].calls.reset()
    return upstream[0]


@pytest.fixture
def oai(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=20) as client:
        yield client


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=20) as client:
        yield client


def chat_body(text: str = "Hello", **more: Any) -> Body:
    messages = [{"role": "user", "content": text}]
    return {"model": "mock", "messages": messages, "temperature": 0, **more}


def chat_tool(name: str) -> Body:
    return {"type": "function", "function": {"name": name, "parameters": TOOL_SCHEMA}}


def told(commands: str) -> dict[str, str]:
    return {"x-mock": commands}


def chat_both(client: Any, body: Body, commands: str = "") -> tuple[Body, Body]:
    """The same request as JSON and as a stream put together by the SDK's own accumulator."""
    plain = client.chat.completions.create(**body, extra_headers=told(commands))
    more = {"stream_options": {"include_usage": True}, "extra_headers": told(commands)}
    with client.chat.completions.stream(**body, **more) as stream:
        streamed = stream.get_final_completion()
    return plain.to_dict(), streamed.to_dict()


def comparable(value: Any) -> Any:
    """Without ids and times, and without nulls, empties and SDK additions."""
    left_out = {"id", "call_id", "created", "created_at", "completed_at", "item_id", "parsed"}
    left_out |= {"parsed_arguments", "object", "index", "sequence_number"}
    if isinstance(value, dict):
        return {
            key: comparable(inner)
            for key, inner in value.items()
            if key not in left_out and inner not in (None, [], {})
        }
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    return value


# --- chat completions


@pytest.mark.parametrize(
    ("more", "commands"),
    [
        ({}, ""),
        ({"n": 3}, ""),
        ({"logprobs": True, "top_logprobs": 2}, ""),
        ({"tools": [chat_tool("weather")], "tool_choice": "required"}, ""),
        ({}, "refusal"),
        ({}, "empty"),
        ({}, "tokens=40; cached=7"),
        ({}, "bytes=100000"),
    ],
)
def test_a_chat_stream_accumulates_to_the_json_answer(oai: Any, more: Body, commands: str) -> None:
    plain, streamed = chat_both(oai, chat_body(**more), commands)
    assert comparable(streamed) == comparable(plain)
    assert plain["id"] != streamed["id"]


@pytest.mark.parametrize(
    ("command", "reason"), [("length", "length"), ("filter", "content_filter")]
)
def test_an_unfinished_chat_says_why_in_both_forms(oai: Any, command: str, reason: str) -> None:
    body = chat_body(extra_headers=told(command))
    plain = oai.chat.completions.create(**body)
    last = list(oai.chat.completions.create(**body, stream=True))[-1]
    assert plain.choices[0].finish_reason == last.choices[0].finish_reason == reason


def test_the_answer_says_that_it_is_no_model(oai: Any) -> None:
    raw = oai.chat.completions.with_raw_response.create(**chat_body())
    assert raw.headers["x-trivet-mock"] == "not-a-model"
    text = raw.parse().choices[0].message.content
    assert text is not None
    assert "not a model" in text
    assert "for mock" in text
    assert raw.headers["x-request-id"].startswith("req_")


def test_the_answer_is_a_function_of_the_request(oai: Any) -> None:
    def text(body: Body) -> Any:
        return oai.chat.completions.create(**body).choices[0].message.content

    assert text(chat_body()) == text(chat_body())
    assert text(chat_body(user="somebody")) == text(chat_body())
    assert text(chat_body(max_tokens=9)) != text(chat_body())
    assert text(chat_body("Hello ")) != text(chat_body())


def test_a_sampled_answer_differs_from_call_to_call(oai: Any) -> None:
    def text(**more: Any) -> Any:
        return oai.chat.completions.create(**chat_body(**more)).choices[0].message.content

    assert text(temperature=0.5) != text(temperature=0.5)
    assert text(temperature=0.5, seed=7) == text(temperature=0.5, seed=7)


def test_tool_calls_come_on_request_and_satisfy_their_schema(oai: Any) -> None:
    tools = [chat_tool("weather"), chat_tool("tides")]
    plain, streamed = chat_both(oai, chat_body("Please use every tool.", tools=tools))
    for answer in (plain, streamed):
        calls = answer["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in calls] == ["weather", "tides"]
        assert len({call["id"] for call in calls}) == 2
        for call in calls:
            jsonschema_rs.validate(TOOL_SCHEMA, json.loads(call["function"]["arguments"]))
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
    named = {"type": "function", "function": {"name": "tides"}}
    one = oai.chat.completions.create(**chat_body(tools=tools, tool_choice=named))
    assert [call.function.name for call in one.choices[0].message.tool_calls or []] == ["tides"]
    none = oai.chat.completions.create(**chat_body("Hello", tools=tools))
    assert none.choices[0].message.tool_calls is None


def test_a_tool_result_is_answered_with_text(oai: Any) -> None:
    body = chat_body("call a tool", tools=[chat_tool("weather")])
    call = oai.chat.completions.create(**body).choices[0].message
    body["messages"] += [call.to_dict()]
    assert call.tool_calls is not None
    body["messages"] += [{"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "4"}]
    assert oai.chat.completions.create(**body).choices[0].finish_reason == "stop"


class Place(BaseModel):
    name: str
    inhabitants: int
    quarters: list[str]


def test_a_json_answer_satisfies_its_schema(oai: Any) -> None:
    parsed = oai.chat.completions.parse(**chat_body(), response_format=Place)
    assert isinstance(parsed.choices[0].message.parsed, Place)
    form = {"type": "json_object"}
    plain, streamed = chat_both(oai, chat_body(response_format=form))
    assert json.loads(plain["choices"][0]["message"]["content"])
    assert comparable(plain) == comparable(streamed)


def test_usage_streams_only_when_asked_for(oai: Any) -> None:
    bare = list(oai.chat.completions.create(**chat_body(), stream=True))
    assert all("usage" not in chunk.to_dict() for chunk in bare)
    options = {"include_usage": True}
    chunks = list(oai.chat.completions.create(**chat_body(), stream=True, stream_options=options))
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(
        [chunk for chunk in bare if chunk.choices[0].delta.content]
    )
    assert all(chunk.to_dict()["usage"] is None for chunk in chunks[:-1])


def test_reasoning_and_annotations_reach_both_forms(oai: Any) -> None:
    commands = "reasoning; annotations"
    plain, streamed = chat_both(oai, chat_body(), commands)
    for answer in (plain, streamed):
        message = answer["choices"][0]["message"]
        assert message["reasoning_content"].startswith("The mock upstream made no thought")
        assert message["annotations"][0]["url_citation"]["url"] == "https://example.com/mock"


def test_a_legacy_function_call_is_answered(oai: Any) -> None:
    functions = [{"name": "weather", "parameters": TOOL_SCHEMA}]
    body = chat_body(functions=functions, function_call={"name": "weather"})
    plain = oai.chat.completions.create(**body)
    assert plain.choices[0].finish_reason == "function_call"
    chunks = list(oai.chat.completions.create(**body, stream=True))
    pieces = [chunk.choices[0].delta.function_call for chunk in chunks]
    arguments = "".join(piece.arguments or "" for piece in pieces if piece)
    assert plain.choices[0].message.function_call is not None
    assert arguments == plain.choices[0].message.function_call.arguments


async def test_the_async_clients_read_every_streaming_api(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as opened:
        oai: Any = opened
        plain = await oai.chat.completions.create(**chat_body())
        async with oai.chat.completions.stream(**chat_body()) as chat:
            final = await chat.get_final_completion()
        assert final.choices[0].message.content == plain.choices[0].message.content
        text = ""
        request: Body = {"model": "mock", "prompt": "Hi", "temperature": 0}
        async for chunk in await oai.completions.create(**request, stream=True):
            text += chunk.choices[0].text
        assert text == (await oai.completions.create(**request)).choices[0].text
        ask: Body = {"model": "mock", "input": "Hi", "temperature": 0}
        async with oai.responses.stream(**ask) as stream:
            response = await stream.get_final_response()
        assert response.output_text == (await oai.responses.create(**ask)).output_text
        vectors = await oai.embeddings.create(model="mock", input=["a", "b"])
        assert len(vectors.data[1].embedding) == 256
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as second:
        claude: Any = second
        body = claude_body()
        message = await claude.messages.create(**body)
        async with claude.messages.stream(**body) as events:
            assert await events.get_final_text() == message.content[0].text


# --- completions


@pytest.mark.parametrize(
    "more", [{}, {"n": 2}, {"prompt": ["a", "b"]}, {"logprobs": 2}, {"echo": True}]
)
def test_a_completions_stream_accumulates_to_the_json_answer(oai: Any, more: Body) -> None:
    body: Body = {"model": "mock", "prompt": "Once upon", "temperature": 0, **more}
    plain = oai.completions.create(**body)
    texts: dict[int, str] = {}
    tokens: dict[int, list[str]] = {}
    finished: dict[int, str] = {}
    for chunk in oai.completions.create(**body, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] = texts.get(choice.index, "") + choice.text
        if choice.logprobs:
            tokens.setdefault(choice.index, []).extend(choice.logprobs.tokens or [])
        if choice.finish_reason:
            finished[choice.index] = choice.finish_reason
    assert [choice.text for choice in plain.choices] == [texts[at] for at in sorted(texts)]
    assert [choice.finish_reason for choice in plain.choices] == list(finished.values())
    if "logprobs" in more:
        assert plain.choices[0].logprobs is not None
        assert plain.choices[0].logprobs.tokens == tokens[0]
    if "echo" in more:
        assert plain.choices[0].text.startswith("Once upon")


# --- responses


def response_tool(name: str) -> Body:
    return {"type": "function", "name": name, "parameters": TOOL_SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("more", "commands"),
    [
        ({}, ""),
        ({"tools": [response_tool("weather")], "tool_choice": "required"}, ""),
        ({"tools": [{"type": "custom", "name": "shout"}], "input": "call a tool"}, ""),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, ""),
        ({"reasoning": {}, "include": ["reasoning.encrypted_content"]}, "reasoning"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 1}, ""),
        ({}, "refusal"),
        ({}, "annotations"),
    ],
)
def test_a_responses_stream_accumulates_to_the_json_answer(
    oai: Any, more: Body, commands: str
) -> None:
    body: Body = {"model": "mock", "input": "Hello", "temperature": 0, **more}
    plain = oai.responses.create(**body, extra_headers=told(commands))
    with oai.responses.stream(**body, extra_headers=told(commands)) as stream:
        seen = [event.type for event in stream]
        streamed = stream.get_final_response()
    assert comparable(streamed.to_dict()) == comparable(plain.to_dict())
    assert seen[0] == "response.created"
    assert seen[-1] == "response.completed"


def test_a_response_that_is_cut_short_is_incomplete(oai: Any) -> None:
    body: Body = {"model": "mock", "input": "Hello", "extra_headers": told("length")}
    plain = oai.responses.create(**body)
    assert plain.status == "incomplete"
    assert plain.incomplete_details is not None
    assert plain.incomplete_details.reason == "max_output_tokens"
    last = list(oai.responses.create(**body, stream=True))[-1]
    assert last.type == "response.incomplete"


def test_a_response_echoes_and_can_be_fetched_and_continued(oai: Any) -> None:
    first = oai.responses.create(model="mock", input="Hello", metadata={"a": "b"}, user="u")
    assert (first.metadata, first.user) == ({"a": "b"}, "u")
    assert oai.responses.retrieve(first.id).output_text == first.output_text
    oai.responses.create(model="mock", input="More", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        oai.responses.create(model="mock", input="More", previous_response_id="resp_other")
    assert caught.value.code == "previous_response_not_found"
    unkept = oai.responses.create(model="mock", input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(unkept.id)


# --- embeddings


def test_embeddings_are_unit_vectors_of_model_and_item(oai: Any) -> None:
    both = oai.embeddings.create(model="mock", input=["a", "b"], encoding_format="float")
    assert [item.index for item in both.data] == [0, 1]
    vector = both.data[1].embedding
    assert math.isclose(math.hypot(*vector), 1, rel_tol=1e-5)
    assert vector != both.data[0].embedding
    base64_asked = oai.embeddings.create(model="mock", input="b")
    assert base64_asked.data[0].embedding == pytest.approx(vector, rel=1e-7)
    other = oai.embeddings.create(model="mock-large", input="b", encoding_format="float")
    assert other.data[0].embedding != vector


def test_embeddings_take_token_arrays_and_dimensions(oai: Any) -> None:
    made = oai.embeddings.create(model="mock", input=[[1, 2], [3]], dimensions=8)
    assert [len(item.embedding) for item in made.data] == [8, 8]
    one = oai.embeddings.create(model="mock", input=[1, 2], dimensions=8)
    assert one.data[0].embedding == made.data[0].embedding
    wrongs: tuple[Body, ...] = ({"input": []}, {"input": ""}, {"input": "a", "dimensions": 0.5})
    for wrong in wrongs:
        with pytest.raises(openai.BadRequestError):
            oai.embeddings.create(model="mock", **wrong)


# --- messages


def claude_body(text: Any = "Hello", **more: Any) -> Body:
    messages = [{"role": "user", "content": text}]
    zero = {"temperature": 0}
    return {"model": "mock", "max_tokens": 99, "messages": messages, "extra_body": zero, **more}


def claude_tool(name: str) -> Body:
    return {"name": name, "input_schema": TOOL_SCHEMA}


@pytest.mark.parametrize(
    ("more", "commands"),
    [
        ({}, ""),
        ({"tools": [claude_tool("weather")], "tool_choice": {"type": "any"}}, ""),
        ({"tools": [claude_tool("a"), claude_tool("b")], "text": "use all tools"}, ""),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, ""),
        ({"thinking": {"type": "adaptive"}, "text": "be redacted"}, ""),
        ({}, "annotations; cached=5"),
        ({}, "refusal"),
        ({}, "length"),
        ({}, "empty"),
        ({"output_config": {"format": {"type": "json_schema", "schema": TOOL_SCHEMA}}}, ""),
    ],
)
def test_a_messages_stream_accumulates_to_the_json_answer(
    claude: Any, more: Body, commands: str
) -> None:
    more = dict(more)
    body = claude_body(more.pop("text", "Hello"), **more)
    plain = claude.messages.create(**body, extra_headers=told(commands))
    with claude.messages.stream(**body, extra_headers=told(commands)) as stream:
        streamed = stream.get_final_message()
    assert comparable(streamed.to_dict()) == comparable(plain.to_dict())


def test_thinking_carries_its_signature(claude: Any) -> None:
    body = claude_body("be redacted", thinking={"type": "adaptive"})
    with claude.messages.stream(**body) as stream:
        blocks = stream.get_final_message().content
    assert [block.type for block in blocks] == ["thinking", "redacted_thinking", "text"]
    assert blocks[0].signature.startswith("mock")


def test_documents_with_citations_are_cited(claude: Any) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "mock"}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    content = [document, {"type": "text", "text": "Hello"}]
    made = claude.messages.create(**claude_body(content))
    assert made.content[0].citations[0].cited_text == "mock"


def test_cache_marks_do_not_change_the_answer(claude: Any) -> None:
    part: Body = {"type": "text", "text": "Hello"}
    bare = claude.messages.create(**claude_body([part]))
    part["cache_control"] = {"type": "ephemeral"}
    assert comparable(claude.messages.create(**claude_body([part])).to_dict()["content"]) == (
        comparable(bare.to_dict()["content"])
    )


def test_a_prewarm_is_answered_empty(claude: Any) -> None:
    made = claude.messages.create(**claude_body(max_tokens=0))
    assert (made.content, made.stop_reason) == ([], "max_tokens")


def test_tokens_are_counted(claude: Any) -> None:
    few = claude.messages.count_tokens(model="mock", messages=claude_body()["messages"])
    many = claude.messages.count_tokens(
        model="mock", messages=claude_body("word " * 99)["messages"]
    )
    assert 0 < few.input_tokens < many.input_tokens


def test_models_are_listed_in_each_dialect(oai: Any, claude: Any) -> None:
    assert next(iter(oai.models.list())).id == "mock"
    assert next(iter(claude.models.list())).id == "mock"
    assert "not a model" in claude.models.retrieve("mock").display_name


# --- commands


def test_a_status_is_answered_in_the_callers_dialect(oai: Any, claude: Any) -> None:
    commands = told("status=429; retry-after=2")
    with pytest.raises(openai.RateLimitError) as limited:
        oai.chat.completions.create(**chat_body(), extra_headers=commands)
    assert limited.value.response.headers["retry-after"] == "2"
    assert limited.value.request_id is not None
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        claude.messages.create(**claude_body(), extra_headers=told("status=529"))
    assert overloaded.value.response.json()["error"]["type"] == "overloaded_error"


def test_a_model_suffix_commands_too_and_the_header_wins(oai: Any) -> None:
    with pytest.raises(openai.InternalServerError):
        oai.chat.completions.create(**chat_body(model="mock+status=503,retry-after=1"))
    with pytest.raises(openai.RateLimitError):
        oai.chat.completions.create(
            **chat_body(model="mock+status=503"), extra_headers=told("status=429")
        )


@pytest.mark.parametrize("commands", ["dealy=3", "cut=x", "length=5", "status"])
def test_an_unknown_command_is_refused(oai: Any, commands: str) -> None:
    with pytest.raises(openai.BadRequestError):
        oai.chat.completions.create(**chat_body(), extra_headers=told(commands))


def raw_stream(url: str, commands: str, got: list[bytes] | None = None) -> list[bytes]:
    """The parts of a stream, also put into `got`; raises what the client raises on a cut."""
    parts: list[bytes] = [] if got is None else got
    target, body = f"{url}/v1/chat/completions", chat_body(stream=True)
    with httpx2.stream("POST", target, json=body, headers=told(commands), timeout=5) as response:
        parts.extend(response.iter_bytes())
    return b"".join(parts).split(b"\n\n")[:-1]


def test_a_cut_closes_the_socket_without_an_end(url: str) -> None:
    got: list[bytes] = []
    with pytest.raises(httpx2.RemoteProtocolError):
        raw_stream(url, "cut=3", got)
    assert b"".join(got).count(b"\n\n") == 3
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.post(f"{url}/v1/chat/completions", json=chat_body(), headers=told("cut"))


def test_an_end_closes_the_stream_properly_without_a_terminal_event(url: str) -> None:
    events = raw_stream(url, "end=2")
    assert len(events) == 2
    assert b'finish_reason":null' in events[-1]


def test_garbage_is_no_json(url: str) -> None:
    assert raw_stream(url, "garbage=1")[1] == b'data: {"choices": [\xff'
    response = httpx2.post(f"{url}/v1/chat/completions", json=chat_body(), headers=told("garbage"))
    assert response.status_code == 200
    with pytest.raises(ValueError):
        response.json()


def test_an_error_event_is_raised_by_the_sdks(oai: Any, claude: Any) -> None:
    commands = told("error-event=2")
    with pytest.raises(openai.APIError, match="told to fail"):
        list(oai.chat.completions.create(**chat_body(), stream=True, extra_headers=commands))
    with pytest.raises(anthropic.APIStatusError, match="told to fail"):
        list(claude.messages.create(**claude_body(), stream=True, extra_headers=commands))
    body: Body = {"model": "mock", "input": "x", "stream": True, "extra_headers": commands}
    assert [event.type for event in oai.responses.create(**body)][-1] == "error"


def test_a_hang_says_nothing_and_ends_with_its_caller(
    upstream: tuple[str, MockUpstream], url: str
) -> None:
    for commands in ("hang", "hang=2"):
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(
                f"{url}/v1/chat/completions",
                json=chat_body(stream=True),
                headers=told(commands),
                timeout=0.3,
            )
    calls = upstream[1].calls
    wait_until(lambda: calls.open == 0)
    assert calls.disconnects == 2


def wait_until(true: Any) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_delays_are_kept(oai: Any) -> None:
    start = time.monotonic()
    oai.chat.completions.create(**chat_body(), extra_headers=told("delay=120"))
    assert time.monotonic() - start >= 0.12
    start = time.monotonic()
    commands = told("slow-chunks=20; tokens=5")
    chunks = list(oai.chat.completions.create(**chat_body(), stream=True, extra_headers=commands))
    assert time.monotonic() - start >= 0.02 * (len(chunks) - 1)


def test_further_commands_shape_the_answer(oai: Any) -> None:
    def create(commands: str, **more: Any) -> Any:
        made = oai.chat.completions.with_raw_response.create(
            **chat_body("Say it.", **more), extra_headers=told(commands)
        )
        return made.parse(), made.headers

    assert create("echo")[0].choices[0].message.content == "Say it."
    assert create("no-usage")[0].usage is None
    assert create("served=other")[0].model == "other"
    assert create("finish=abort")[0].choices[0].finish_reason == "abort"
    assert len(create("bytes=1000")[0].choices[0].message.content) == 1000
    assert create("tokens=7")[0].usage.completion_tokens == 7
    assert create("cached=3")[0].usage.prompt_tokens_details.cached_tokens == 3
    assert create("header=set-cookie:a=b")[1]["set-cookie"] == "a=b"
    answer, headers = create("gzip")
    assert headers["content-encoding"] == "gzip"
    assert answer.choices[0].finish_reason == "stop"
    stream = oai.chat.completions.create(**chat_body(), stream=True, extra_headers=told("gzip"))
    assert list(stream)[-1].choices[0].finish_reason == "stop"
    plain = httpx2.post(
        f"{oai.base_url}chat/completions", json=chat_body(stream=True), headers=told("as-json")
    )
    assert plain.json()["object"] == "chat.completion"


# --- bad input


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"messages": []}', 400),
        ("/v1/chat/completions", b'{"model": "mock"}', 400),
        (
            "/v1/chat/completions",
            b'{"model": "mock", "messages": [{"role": 1}], "tools": [5]}',
            400,
        ),
        ("/v1/chat/completions", b'{"model": "no-such-model", "messages": [{}]}', 404),
        ("/v1/messages", b'{"model": "mock", "messages": [{}]}', 400),
        ("/v1/elsewhere", b"{}", 404),
    ],
)
def test_bad_input_is_an_error_in_the_right_shape(
    url: str, path: str, body: bytes, status: int
) -> None:
    response = httpx2.post(f"{url}{path}", content=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert (response.json().get("type") == "error") is path.endswith("messages")


def test_a_wrong_method_is_refused(url: str) -> None:
    response = httpx2.get(f"{url}/v1/chat/completions")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


# --- counting and load


def test_calls_are_counted_with_and_without_the_prefix(url: str) -> None:
    body = json.dumps(chat_body()).encode()
    for path in ("/v1/chat/completions", "/chat/completions"):
        httpx2.post(f"{url}{path}", content=body, headers={"x-seen": "yes"})
    calls = httpx2.get(f"{url}/_mock/calls").json()
    assert calls["total"] == 2
    assert calls["by_path"] == {"/v1/chat/completions": 2}
    assert list(calls["by_body"].values()) == [2]
    assert calls["last"][0]["body"].encode() == body
    assert ["x-seen", "yes"] in calls["last"][1]["headers"]
    assert httpx2.post(f"{url}/_mock/reset").json() == {"reset": True}
    assert httpx2.get(f"{url}/_mock/calls").json()["total"] == 0


def test_echo_streams_a_body_back(url: str) -> None:
    sent = b"\x00\xff" * 100_000
    response = httpx2.post(
        f"{url}/v1/_mock/echo?x=1", content=iter([sent, b"end"]), headers={"content-type": "a/b"}
    )
    assert response.content == sent + b"end"
    assert response.headers["content-type"] == "a/b"


async def test_two_thousand_streams_are_served_at_once(
    upstream: tuple[str, MockUpstream], url: str
) -> None:
    port = int(url.rsplit(":", 1)[1])
    body = json.dumps(chat_body(stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    request = head.encode() + b"x-mock: slow-chunks=150; delay=300\r\nconnection: close\r\n\r\n"

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + body)
        got = await reader.read()
        writer.close()
        return got

    answers = await asyncio.gather(*(one() for _ in range(2000)))
    assert all(answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for answer in answers)
    assert upstream[1].calls.peak_open == 2000


def test_a_taken_port_is_said_in_one_sentence() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            run("127.0.0.1", port, 0)


# --- the schema filler


@pytest.mark.parametrize(
    "schema",
    [
        TOOL_SCHEMA,
        {"type": ["string", "null"], "minLength": 60},
        {"anyOf": [{"type": "integer", "exclusiveMinimum": 3}, {"type": "null"}]},
        {"type": "number", "maximum": -2, "multipleOf": 2},
        {"type": "array", "minItems": 3, "items": {"type": "string", "maxLength": 2}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"const": [1]}}},
        {
            "$ref": "#/$defs/tree",
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {
                        "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                        "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                    },
                    "required": ["left", "kids"],
                }
            },
        },
        {"allOf": [{"properties": {"a": {"type": "string", "format": "date"}}, "type": "object"}]},
        {},
    ],
)
def test_an_example_satisfies_its_schema(schema: Body) -> None:
    jsonschema_rs.validate(schema, example(schema, "text"))
