"""Frameworks that take the SDK's client: OpenAI Agents SDK and Pydantic AI by the transport."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import agents
import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from trivet import AsyncTrivetTransport
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, MockUpstream]]:
    with running() as up:
        yield up


def client(url: str) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(transport=AsyncTrivetTransport(store="memory"))
    return openai.AsyncOpenAI(api_key="k", base_url=url + "/v1", http_client=http)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def test_an_agent_of_the_openai_sdk_is_answered_from_the_cache(
    upstream: tuple[str, MockUpstream],
) -> None:
    url, mock = upstream
    agents.set_tracing_disabled(True)
    async with client(url) as one:
        model = agents.OpenAIChatCompletionsModel(model="mock", openai_client=one)
        settings = agents.ModelSettings(temperature=0)
        agent = agents.Agent(name="a", model=model, model_settings=settings)
        before = mock.calls.total
        results = [await agents.Runner.run(agent, "hello") for _ in range(2)]
        streamed = agents.Runner.run_streamed(agent, "hello")
        async for _ in streamed.stream_events():
            pass
    outputs = {result.final_output for result in (*results, streamed)}
    assert len(outputs) == 1
    assert mock.calls.total == before + 1


async def test_a_pydantic_ai_agent_is_answered_from_the_cache(
    upstream: tuple[str, MockUpstream],
) -> None:
    url, mock = upstream
    async with client(url) as one:
        model = OpenAIChatModel("mock", provider=OpenAIProvider(openai_client=one))
        agent = Agent(model, model_settings={"temperature": 0})
        before = mock.calls.total
        outputs = [(await agent.run("hello")).output for _ in range(2)]
        async with agent.run_stream("hello") as streamed:
            outputs.append(await streamed.get_output())
    assert len(set(outputs)) == 1
    assert mock.calls.total == before + 1
