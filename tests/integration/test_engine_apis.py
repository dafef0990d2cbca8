"""The engine's APIs with a scripted engine, judged by the official SDKs."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest
from engine_rig import (
    PROMPT,
    ScriptedEngine,
    anthropic_client,
    body,
    openai_client,
    post,
    served,
    tokenizer,
)

from trivet.errors import RequestError
from trivet.prefix.engine.sampling_params import SamplingParams

SECRET = b"s" * 40
LONG = "x" * 40
BEGUN: Any = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "}]
"""A chat whose last message is not finished."""


class TestChat:
    def test_it_answers_as_json_and_as_a_stream(self) -> None:
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            plain = client.chat.completions.create(**body())
            usage = {"include_usage": True}
            with client.chat.completions.stream(**body(), stream_options=usage) as stream:
                streamed = stream.get_final_completion()
        for answer in (plain, streamed):
            assert answer.model == "scripted"
            assert answer.choices[0].message.content == "OneTwoThreeFour"
            assert answer.choices[0].finish_reason == "stop"
            told = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
            assert told == (PROMPT, 4)
            assert answer.usage.prompt_tokens_details.cached_tokens == 0

    async def test_the_async_sdk_reads_it_too(self) -> None:
        with served(ScriptedEngine()) as url:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as opened:
                client: Any = opened
                plain = await client.chat.completions.create(**body())
                text = ""
                async for chunk in await client.chat.completions.create(**body(), stream=True):
                    text += chunk.choices[0].delta.content or ""
        assert plain.choices[0].message.content == text == "OneTwoThreeFour"

    def test_cached_tokens_are_told_and_kept_apart_by_salt(self) -> None:
        asked = body(messages=[{"role": "user", "content": LONG}])
        with served(ScriptedEngine()) as url, openai_client(url) as client:

            def cached(**more: Any) -> int:
                answer = client.chat.completions.create(**asked, **more)
                return int(answer.usage.prompt_tokens_details.cached_tokens)

            salt = {"extra_body": {"cache_salt": "a"}}
            found = [cached(), cached(), cached(**salt), cached(**salt)]
        assert found == [0, 32, 0, 32]

    def test_several_choices_come_interleaved_and_whole(self) -> None:
        engine = ScriptedEngine()
        with served(engine) as url, openai_client(url) as client:
            plain = client.chat.completions.create(**body(n=3, seed=7))
            with client.chat.completions.stream(**body(n=3)) as stream:
                streamed = stream.get_final_completion()
        for answer in (plain, streamed):
            assert [choice.index for choice in answer.choices] == [0, 1, 2]
            assert {choice.message.content for choice in answer.choices} == {"OneTwoThreeFour"}
        assert (plain.usage.prompt_tokens, plain.usage.completion_tokens) == (PROMPT, 12)
        assert [asked.params.seed for asked in engine.asked[:3]] == [7, 8, 9]

    def test_log_probabilities_have_the_sdks_shape(self) -> None:
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            told = client.chat.completions.create(**body(logprobs=True, top_logprobs=3))
            with client.chat.completions.stream(**body(logprobs=True)) as stream:
                streamed = stream.get_final_completion()
        content = told.choices[0].logprobs.content
        assert [one.token for one in content] == ["One", "Two", "Three", "Four"]
        assert (content[0].logprob, bytes(content[0].bytes)) == (-0.25, b"One")
        assert [top.logprob for top in content[0].top_logprobs] == [-0.25, -1.5, -9999.0]
        assert len(streamed.choices[0].logprobs.content) == 4
        assert streamed.choices[0].logprobs.content[0].top_logprobs == []

    def test_the_request_decides_how_tokens_are_drawn(self) -> None:
        engine = ScriptedEngine()
        wish = body(temperature=0, top_p=0.5, seed=7, stop=["x"], max_completion_tokens=3)
        more = {"top_k": 40, "min_p": 0.1, "ignore_eos": True}
        with served(engine) as url, openai_client(url) as client:
            client.chat.completions.create(**wish, extra_body=more)
        wanted = SamplingParams(3, 0, 0.5, 40, 0.1, 7, ("x",), True)
        assert engine.asked[0].params == wanted

    def test_without_a_bound_the_context_is_one(self) -> None:
        engine = ScriptedEngine()
        with served(engine, context=100) as url, openai_client(url) as client:
            client.chat.completions.create(**body())
            client.chat.completions.create(**body(max_tokens=5000))
        assert [asked.params.max_tokens for asked in engine.asked] == [100 - PROMPT] * 2

    def test_json_forms_become_a_schema(self) -> None:
        engine = ScriptedEngine()
        schema = {"type": "object", "properties": {"b": {}, "a": {}}}
        named = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        with served(engine) as url, openai_client(url) as client:
            client.chat.completions.create(**body(response_format={"type": "json_object"}))
            client.chat.completions.create(**body(response_format=named))
        assert [asked.params.json_schema for asked in engine.asked] == [
            '{"type":"object"}',
            '{"type":"object","properties":{"b":{},"a":{}}}',
        ]

    def test_the_template_takes_the_callers_options(self) -> None:
        engine = ScriptedEngine()
        with served(engine) as url, openai_client(url) as client:
            client.chat.completions.create(
                **body(), extra_body={"chat_template_kwargs": {"shout": True}}
            )
        assert tokenizer().decode(engine.asked[0].prompt) == "user:Count.|SHOUTassistant:"

    @pytest.mark.parametrize(
        ("more", "prompt"),
        [
            ({}, "user:Count.|assistant:One, |assistant:"),
            ({"add_generation_prompt": False}, "user:Count.|assistant:One, |"),
            (
                {"add_generation_prompt": False, "continue_final_message": True},
                "user:Count.|assistant:One, ",
            ),
        ],
    )
    def test_a_last_message_of_the_assistant_is_gone_on_with_where_asked(
        self, more: dict[str, Any], prompt: str
    ) -> None:
        engine = ScriptedEngine()
        with served(engine) as url:
            post(url, "/v1/chat/completions", body(messages=BEGUN, **more))
            told = post(url, "/tokenize", body(messages=BEGUN, **more)).json()
        assert tokenizer().decode(engine.asked[0].prompt) == prompt
        assert told["tokens"] == engine.asked[0].prompt

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"n": 0}, "n"),
            ({"continue_final_message": True}, "continue_final_message"),
            ({"add_generation_prompt": 1}, "add_generation_prompt"),
            ({"n": 1.5}, "n"),
            ({"tools": [{}]}, "tools"),
            ({"temperature": "hot"}, "temperature"),
            ({"temperature": True}, "temperature"),
            ({"temperature": 2.5}, "temperature"),
            ({"top_p": 0}, "top_p"),
            ({"top_p": 1.1}, "top_p"),
            ({"min_p": -1}, "min_p"),
            ({"seed": "x"}, "seed"),
            ({"max_tokens": 0.5}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"stop": 5}, "stop"),
            ({"stop": [""]}, "stop"),
            ({"stream": "yes"}, "stream"),
            ({"stream_options": 1}, "stream_options"),
            ({"logprobs": 3}, "logprobs"),
            ({"top_logprobs": 3}, "top_logprobs"),
            ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
            ({"presence_penalty": 0.5}, "presence_penalty"),
            ({"logit_bias": {"5": 1}}, "logit_bias"),
            ({"messages": []}, "messages"),
            ({"messages": "hi"}, "messages"),
            ({"messages": [7]}, "messages[0].role"),
            ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
            ({"messages": [{"role": ["user"], "content": ""}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
            (
                {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
                "messages[0].content",
            ),
            ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
            (
                {"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": ""}]},
                "messages",
            ),
            ({"response_format": {"type": "xml"}}, "response_format.type"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
            ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
            ({"chat_template": "x"}, "chat_template"),
            ({"cache_salt": "a/b"}, "cache_salt"),
            ({"lora": "mine"}, "lora"),
            ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
        ],
    )
    def test_what_the_engine_cannot_do_is_refused_by_name(
        self, more: dict[str, Any], field: str
    ) -> None:
        with served(ScriptedEngine()) as url:
            response = post(url, "/v1/chat/completions", body(**more))
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == field

    @pytest.mark.parametrize(
        "more",
        [
            {"tools": []},
            {"presence_penalty": 0},
            {"logit_bias": {}},
            {"temperature": None},
            {"top_k": -1},
            {"response_format": {"type": "text"}},
            {"messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]},
            {"user": "u", "metadata": {"a": "b"}, "store": False, "parallel_tool_calls": True},
        ],
    )
    def test_what_changes_nothing_is_taken(self, more: dict[str, Any]) -> None:
        with served(ScriptedEngine()) as url:
            assert post(url, "/v1/chat/completions", body(**more)).status_code == 200


class TestCompletions:
    def test_texts_and_token_ids_are_prompts(self) -> None:
        engine = ScriptedEngine()
        with served(engine) as url, openai_client(url) as client:
            for prompt in ("One.", [256, 13], ["One.", "Two."], [[256, 13], [9]]):
                answer = client.completions.create(model="scripted", prompt=prompt)
        assert [asked.prompt for asked in engine.asked] == [
            *([256, 13], [256, 13]),
            *([256, 13], [257, 13]),
            *([256, 13], [9]),
        ]
        assert [choice.text for choice in answer.choices] == ["OneTwoThreeFour"] * 2
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 8)

    def test_the_stream_has_the_same_text_and_usage(self) -> None:
        asked: dict[str, Any] = {"model": "scripted", "prompt": ["One", "Two"], "n": 2}
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            texts = [""] * 4
            last = None
            for chunk in client.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            ):
                for choice in chunk.choices:
                    texts[choice.index] += choice.text
                last = chunk.usage
        assert texts == ["OneTwoThreeFour"] * 4
        assert last is not None
        assert (last.prompt_tokens, last.completion_tokens) == (2, 16)

    def test_the_prompt_is_echoed(self) -> None:
        asked: dict[str, Any] = {"model": "scripted", "prompt": "Say ", "echo": True}
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            plain = client.completions.create(**asked).choices[0].text
            stream = client.completions.create(**asked, stream=True)
            streamed = "".join(chunk.choices[0].text for chunk in stream)
        assert plain == streamed == "Say OneTwoThreeFour"

    def test_log_probabilities_have_this_apis_shape(self) -> None:
        asked: dict[str, Any] = {"model": "scripted", "prompt": "x", "logprobs": 2}
        with served(ScriptedEngine()) as url, openai_client(url) as client:
            told = client.completions.create(**asked).choices[0].logprobs
            offsets = []
            for chunk in client.completions.create(**asked, stream=True):
                offsets += chunk.choices[0].logprobs.text_offset
        assert told.tokens == ["One", "Two", "Three", "Four"]
        assert told.token_logprobs == [-0.25] * 4
        assert told.top_logprobs[0] == {"One": -0.25, "Two": -1.5}
        assert told.text_offset == offsets == [0, 3, 6, 11]

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"prompt": None}, "prompt"),
            ({"prompt": []}, "prompt"),
            ({"prompt": ""}, "prompt"),
            ({"prompt": [1, "x"]}, "prompt"),
            ({"prompt": [1, True]}, "prompt"),
            ({"prompt": [99999]}, "prompt"),
            ({"prompt": [-1]}, "prompt"),
            ({"prompt": [[1], "x", 5]}, "prompt"),
            ({"prompt": "x" * 600}, "prompt"),
            ({"prompt": ["x"] * 129}, "n"),
            ({"suffix": "end"}, "suffix"),
            ({"best_of": 3}, "best_of"),
            ({"echo": True, "logprobs": 1}, "echo"),
            ({"logprobs": True}, "logprobs"),
        ],
    )
    def test_a_wrong_field_is_named(self, more: dict[str, Any], field: str) -> None:
        with served(ScriptedEngine()) as url:
            sent = {"model": "scripted", "prompt": "x", **more}
            response = post(url, "/v1/completions", sent)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == field


class TestMessages:
    def test_they_answer_as_json_and_as_a_stream(self) -> None:
        engine = ScriptedEngine()
        with served(engine) as url, anthropic_client(url) as client:
            asked = body(max_tokens=2, system=[{"type": "text", "text": "Be brief."}])
            plain = client.messages.create(**asked)
            with client.messages.stream(**asked) as stream:
                streamed = stream.get_final_message()
        for answer in (plain, streamed):
            assert answer.content[0].text == "OneTwo"
            assert answer.stop_reason == "max_tokens"
            assert answer.usage.output_tokens == 2
        text = "system:Be brief.|user:Count.|assistant:"
        assert tokenizer().decode(engine.asked[0].prompt) == text

    async def test_the_async_sdk_reads_it_too(self) -> None:
        with served(ScriptedEngine()) as url:
            async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as opened:
                client: Any = opened
                async with client.messages.stream(**body(max_tokens=9)) as stream:
                    answer = await stream.get_final_message()
        assert (answer.content[0].text, answer.stop_reason) == ("OneTwoThreeFour", "end_turn")

    def test_its_three_kinds_of_input_sum_up_to_the_prompt(self) -> None:
        engine = ScriptedEngine()
        asked = body(max_tokens=9, messages=[{"role": "user", "content": LONG}])
        with served(engine) as url, anthropic_client(url) as client:
            first, second = (client.messages.create(**asked).usage for _ in range(2))
            with client.messages.stream(**asked) as stream:
                third = stream.get_final_message().usage
        prompt = len(engine.asked[0].prompt)
        assert prompt == 45
        read = (first.cache_read_input_tokens, first.cache_creation_input_tokens)
        assert read == (0, 32)
        assert first.input_tokens == 13
        for warm in (second, third):
            assert (warm.cache_read_input_tokens, warm.cache_creation_input_tokens) == (32, 0)
            assert warm.input_tokens == 13

    def test_a_stop_sequence_is_named(self) -> None:
        engine = ScriptedEngine(stopped_by="Five")
        with served(engine) as url, anthropic_client(url) as client:
            answer = client.messages.create(**body(max_tokens=9, stop_sequences=["Five"]))
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "Five")
        assert engine.asked[0].params.stop == ("Five",)

    def test_tokens_are_counted(self) -> None:
        with served(ScriptedEngine()) as url, anthropic_client(url) as client:
            assert client.messages.count_tokens(**body()).input_tokens == PROMPT

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"max_tokens": None}, "max_tokens"),
            ({"tools": [{}]}, "tools"),
            ({"thinking": {"type": "enabled"}}, "thinking"),
            ({"stop_sequences": "x" * 3, "system": 5}, "system"),
            ({"output_config": {"format": {"type": "x"}}}, "output_config"),
        ],
    )
    def test_an_error_names_its_field_as_anthropic_does(
        self, more: dict[str, Any], field: str
    ) -> None:
        with served(ScriptedEngine()) as url:
            response = post(url, "/v1/messages", body(**{"max_tokens": 5, **more}))
        told = response.json()
        assert (response.status_code, told["type"]) == (400, "error")
        assert told["error"]["type"] == "invalid_request_error"
        assert told["error"]["message"].startswith(field)

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"max_tokens": None}, "max_tokens: Field required"),
            ({"tools": [{}]}, "tools: is not supported by this engine; leave it out."),
            ({"temperature": 3}, "temperature: is a number from 0 to 2."),
            ({"model": "other"}, "The model 'other' is not served here; scripted is."),
        ],
    )
    def test_an_error_names_its_field_once(self, more: dict[str, Any], message: str) -> None:
        with served(ScriptedEngine()) as url:
            response = post(url, "/v1/messages", body(**{"max_tokens": 5, **more}))
        assert response.json()["error"]["message"] == message

    def test_a_schema_that_cannot_be_used_is_told_by_its_place_here(self) -> None:
        refuses = RequestError(400, "It is bad.", field="response_format")
        with served(ScriptedEngine(refuses=refuses, most=0)) as url:
            response = post(url, "/v1/messages", body(max_tokens=5))
        assert response.json()["error"]["message"] == "output_config.format: It is bad."

    def test_a_last_message_of_the_assistant_is_gone_on_with(self) -> None:
        engine = ScriptedEngine()
        begun = body(max_tokens=5, messages=BEGUN)
        with served(engine) as url, anthropic_client(url) as client:
            client.messages.create(**begun)
            counted = client.messages.count_tokens(model="scripted", messages=BEGUN)
        assert tokenizer().decode(engine.asked[0].prompt) == "user:Count.|assistant:One, "
        assert counted.input_tokens == len(engine.asked[0].prompt)


class TestTokens:
    def test_tokenize_and_detokenize_are_inverse(self) -> None:
        with served(ScriptedEngine()) as url:
            sent = {"prompt": "One x", "return_token_strs": True}
            told = post(url, "/tokenize", sent).json()
            back = post(url, "/detokenize", {"tokens": told["tokens"]}).json()
        assert (told["count"], told["max_model_len"]) == (3, 512)
        assert told["token_strs"] == ["One", "\u0120", "x"]
        assert back == {"prompt": "One x"}

    def test_messages_are_tokenized_through_the_template(self) -> None:
        with served(ScriptedEngine()) as url:
            told = post(url, "/tokenize", body(add_generation_prompt=False)).json()
        assert tokenizer().decode(told["tokens"]) == "user:Count.|"
        assert told["token_strs"] is None

    def test_what_is_too_long_to_answer_can_be_counted(self) -> None:
        with served(ScriptedEngine(), context=16) as url:
            assert post(url, "/tokenize", {"prompt": "x" * 20}).json()["count"] == 20
            assert post(url, "/tokenize", {"prompt": ""}).json()["count"] == 0
            assert post(url, "/tokenize", {"prompt": "x" * 16 * 20}).status_code == 400
            long = body(messages=[{"role": "user", "content": LONG}])
            assert post(url, "/v1/messages/count_tokens", long).json() == {"input_tokens": 45}

    @pytest.mark.parametrize(
        ("path", "sent", "field"),
        [
            ("/tokenize", {}, "prompt"),
            ("/tokenize", {"prompt": ["x"]}, "prompt"),
            ("/detokenize", {}, "tokens"),
            ("/detokenize", {"tokens": ["x"]}, "tokens"),
        ],
    )
    def test_a_wrong_field_is_named(self, path: str, sent: dict[str, Any], field: str) -> None:
        with served(ScriptedEngine()) as url:
            response = post(url, path, sent)
        assert (response.status_code, response.json()["error"]["param"]) == (400, field)
