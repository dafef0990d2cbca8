"""The base URLs that `trivet upstream` names, each with the SDK that it is named for."""

from __future__ import annotations

from typing import Any

import anthropic
import boto3
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai import types

from trivet.middleware.mock_upstream.run import running
from trivet.middleware.mock_upstream.simulators import base_urls

HI: Any = [{"role": "user", "content": "hi"}]


def _openai(url: str, model: str) -> str | None:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        answer = client.chat.completions.create(model=model, messages=HI)
        return answer.choices[0].message.content


def _anthropic(url: str, model: str) -> str:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        answer: Any = client.messages.create(model=model, messages=HI, max_tokens=9)
        return str(answer.content[0].text)


def _genai(url: str, model: str) -> str | None:
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
    return client.models.generate_content(model=model, contents="hi").text


def _boto3(url: str, model: str) -> str:
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="s",
        config=Config(retries={"max_attempts": 1, "mode": "standard"}),
    )
    answer = client.converse(
        modelId=model, messages=[{"role": "user", "content": [{"text": "hi"}]}]
    )
    return str(answer["output"]["message"]["content"][0]["text"])


ASK = {
    "OpenAI's SDK": _openai,
    "Anthropic's SDK": _anthropic,
    "google-genai": _genai,
    "boto3 (endpoint_url)": _boto3,
}
MODELS = {
    None: "mock",
    "anthropic": "claude-opus-5",
    "openai": "gpt-5.4",
    "gemini": "gemini-2.5-pro",
    "bedrock": "anthropic.claude-opus-5-v1:0",
    "deepseek": "deepseek-chat",
}


@pytest.mark.parametrize("provider", MODELS, ids=str)
def test_an_sdk_gets_an_answer_at_the_url_that_is_named_for_it(provider: str | None) -> None:
    with running(provider=provider) as (url, _):
        named = base_urls(url, provider)
        answers = {sdk: ASK[sdk](one, MODELS[provider]) for sdk, one in named.items()}
        assert named
        assert all(answers.values())
