"""The simulators of Gemini and Bedrock, judged by google-genai and boto3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import botocore.exceptions
import httpx2
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai import errors, types

from trivet.middleware.mock_upstream.run import running

LONG = "Rules of the house. " * 1000
"""5,000 tokens."""
Body = dict[str, Any]


@pytest.fixture(scope="module")
def gemini_url() -> Iterator[str]:
    with running(provider="gemini") as (url, _):
        yield url


def client_of(url: str, key: str = "key-one") -> genai.Client:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url))


@pytest.fixture
def gemini(gemini_url: str) -> Iterator[genai.Client]:
    httpx2.post(f"{gemini_url}/_mock/reset")
    with client_of(gemini_url) as client:
        yield client


def ask(client: genai.Client, text: str, model: str = "gemini-2.5-pro", **config: Any) -> Any:
    made = client.models.generate_content(
        model=model, contents=text, config=types.GenerateContentConfig(**config)
    )
    assert made.usage_metadata is not None
    return made.usage_metadata


def at(seconds: float) -> types.HttpOptions:
    return types.HttpOptions(headers={"x-mock": f"at={seconds}"})


class TestGemini:
    def test_a_beginning_seen_before_is_read(self, gemini: genai.Client) -> None:
        first, second = (ask(gemini, name, system_instruction=LONG) for name in ("one", "two"))
        assert first.cached_content_token_count is None
        assert 4900 < second.cached_content_token_count < second.prompt_token_count
        assert second.cache_tokens_details[0].token_count == second.cached_content_token_count

    def test_a_stream_ends_with_the_usage(self, gemini: genai.Client) -> None:
        ask(gemini, LONG)
        chunks = list(gemini.models.generate_content_stream(model="gemini-2.5-pro", contents=LONG))
        assert "not a model" in "".join(chunk.text or "" for chunk in chunks)
        assert chunks[-1].usage_metadata is not None
        assert chunks[-1].usage_metadata.cached_content_token_count
        assert chunks[-1].candidates is not None
        assert chunks[-1].candidates[0].finish_reason == "STOP"

    def test_projects_share_nothing(self, gemini: genai.Client, gemini_url: str) -> None:
        ask(gemini, LONG)
        with client_of(gemini_url, "key-two") as other:
            assert ask(other, LONG).cached_content_token_count is None

    def test_a_content_is_made_named_read_renewed_and_deleted(self, gemini: genai.Client) -> None:
        made = gemini.caches.create(
            model="gemini-2.5-pro",
            config=types.CreateCachedContentConfig(system_instruction=LONG, ttl="600s"),
        )
        assert made.name is not None
        assert made.usage_metadata is not None
        found = ask(gemini, "q", cached_content=made.name)
        assert found.cached_content_token_count == made.usage_metadata.total_token_count
        assert found.prompt_token_count > found.cached_content_token_count
        longer = types.UpdateCachedContentConfig(ttl="7200s")
        assert gemini.caches.update(name=made.name, config=longer).expire_time is not None
        assert [one.name for one in gemini.caches.list()] == [made.name]
        gemini.caches.delete(name=made.name)
        with pytest.raises(errors.ClientError) as failed:
            gemini.caches.get(name=made.name)
        assert (failed.value.code, failed.value.status) == (403, "PERMISSION_DENIED")

    def test_a_content_ends_with_its_time(self, gemini: genai.Client) -> None:
        made = gemini.caches.create(
            model="gemini-2.5-pro",
            config=types.CreateCachedContentConfig(
                system_instruction=LONG, ttl="600s", http_options=at(0)
            ),
        )
        assert ask(gemini, "q", cached_content=made.name, http_options=at(599))
        with pytest.raises(errors.ClientError):
            ask(gemini, "q", cached_content=made.name, http_options=at(600))

    def test_what_is_in_the_content_is_not_repeated(self, gemini: genai.Client) -> None:
        made = gemini.caches.create(
            model="gemini-2.5-pro",
            config=types.CreateCachedContentConfig(system_instruction=LONG),
        )
        with pytest.raises(errors.ClientError) as failed:
            ask(gemini, "q", cached_content=made.name, system_instruction=LONG)
        assert (failed.value.code, failed.value.status) == (400, "INVALID_ARGUMENT")

    def test_gemini_4_takes_no_contents(self, gemini: genai.Client) -> None:
        config = types.CreateCachedContentConfig(system_instruction=LONG)
        with pytest.raises(errors.ClientError):
            gemini.caches.create(model="gemini-4-argon", config=config)

    def test_a_field_that_is_not_known_is_refused(self, gemini_url: str) -> None:
        body = {"contents": [{"parts": [{"text": "q"}]}], "cache_salt": "abc"}
        url = f"{gemini_url}/v1beta/models/gemini-2.5-pro:generateContent"
        found = httpx2.post(url, json=body)
        assert found.status_code == 400
        assert found.json()["error"]["status"] == "INVALID_ARGUMENT"

    def test_the_openai_shape_reports_cached_tokens(self, gemini_url: str) -> None:
        httpx2.post(f"{gemini_url}/_mock/reset")
        with openai.OpenAI(
            base_url=f"{gemini_url}/v1beta/openai", api_key="k", max_retries=0, timeout=20
        ) as client:
            turn: Any = {"role": "user", "content": LONG}
            for _ in range(2):
                made = client.chat.completions.create(model="gemini-2.5-pro", messages=[turn])
        assert made.usage is not None
        assert made.usage.prompt_tokens_details is not None
        assert (made.usage.prompt_tokens_details.cached_tokens or 0) > 4900


CLAUDE = "us.anthropic.claude-opus-5-5-v1:0"
POINT: Body = {"cachePoint": {"type": "default"}}
HOUR: Body = {"cachePoint": {"type": "default", "ttl": "1h"}}


@pytest.fixture(scope="module")
def bedrock_url() -> Iterator[str]:
    with running(provider="bedrock") as (url, _):
        yield url


def runtime(url: str, key: str = "AKONE") -> Any:
    return boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def bedrock(bedrock_url: str) -> Iterator[Any]:
    httpx2.post(f"{bedrock_url}/_mock/reset")
    client = runtime(bedrock_url)
    yield client
    client.close()


def turn(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks)}


class TestBedrock:
    @staticmethod
    def usage(client: Any, *system: Body, question: str = "q") -> Any:
        made = client.converse(
            modelId=CLAUDE, system=list(system), messages=[turn({"text": question})]
        )
        assert "not a model" in made["output"]["message"]["content"][0]["text"]
        return made["usage"]

    def test_a_cache_point_writes_then_reads(self, bedrock: Any) -> None:
        first = self.usage(bedrock, {"text": LONG}, POINT)
        again = self.usage(bedrock, {"text": LONG}, POINT, question="other")
        assert first["cacheDetails"] == [
            {"ttl": "5m", "inputTokens": first["cacheWriteInputTokens"]}
        ]
        assert again["cacheReadInputTokens"] == first["cacheWriteInputTokens"] > 4900
        assert again["cacheWriteInputTokens"] == 0
        parts = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        assert again["totalTokens"] == sum(again[name] for name in parts)

    def test_both_lifetimes_are_reported_apart(self, bedrock: Any) -> None:
        found = self.usage(bedrock, {"text": LONG}, HOUR, {"text": LONG}, POINT)
        assert [one["ttl"] for one in found["cacheDetails"]] == ["1h", "5m"]

    def test_a_stream_ends_with_the_usage(self, bedrock: Any) -> None:
        asked: Body = {"modelId": CLAUDE, "system": [{"text": LONG}, POINT]}
        asked["messages"] = [turn({"text": "q"})]
        whole = bedrock.converse(**asked)
        events = list(bedrock.converse_stream(**asked)["stream"])
        assert next(iter(events[0])) == "messageStart"
        text = "".join(
            one["contentBlockDelta"]["delta"]["text"]
            for one in events
            if "contentBlockDelta" in one
        )
        assert text.split(".")[0] == whole["output"]["message"]["content"][0]["text"].split(".")[0]
        assert events[-1]["metadata"]["usage"]["cacheReadInputTokens"] > 4900

    def test_a_stream_that_breaks_raises_in_the_sdk(self, bedrock_url: str) -> None:
        client = runtime(bedrock_url)
        stream = client.converse_stream(
            modelId=f"{CLAUDE}+error-event=2", messages=[turn({"text": "q"})]
        )["stream"]
        with pytest.raises(botocore.exceptions.EventStreamError):
            list(stream)
        stream.close()
        client.close()

    def test_accounts_share_nothing(self, bedrock: Any, bedrock_url: str) -> None:
        self.usage(bedrock, {"text": LONG}, POINT)
        other = runtime(bedrock_url, "AKTWO")
        assert self.usage(other, {"text": LONG}, POINT)["cacheReadInputTokens"] == 0
        other.close()

    @pytest.mark.parametrize(
        "system", [[{"text": LONG}, POINT] * 5, [{"text": LONG}, POINT, {"text": LONG}, HOUR]]
    )
    def test_what_the_provider_rejects_is_a_validation_error(
        self, bedrock: Any, system: list[Body]
    ) -> None:
        with pytest.raises(bedrock.exceptions.ValidationException):
            self.usage(bedrock, *system)

    def test_a_tool_call_comes_back_whole(self, bedrock: Any) -> None:
        schema = {"json": {"type": "object", "properties": {"city": {"type": "string"}}}}
        tools = {"tools": [{"toolSpec": {"name": "look", "inputSchema": schema}}, POINT]}
        asked: Body = {"modelId": CLAUDE, "toolConfig": tools}
        asked["messages"] = [turn({"text": "Please call a tool."})]
        made = bedrock.converse(**asked)
        assert made["stopReason"] == "tool_use"
        assert made["output"]["message"]["content"][0]["toolUse"]["input"]["city"]
        names = [next(iter(one)) for one in bedrock.converse_stream(**asked)["stream"]]
        assert names.count("contentBlockDelta") == 2
