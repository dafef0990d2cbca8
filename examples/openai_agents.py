"""The OpenAI Agents SDK by the transport.

trivet upstream --port 9000
OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_API_KEY=any python examples/openai_agents.py
"""

import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from trivet import AsyncTrivetTransport


async def ask() -> None:
    set_tracing_disabled(True)
    http = DefaultAsyncHttpxClient(transport=AsyncTrivetTransport())
    async with AsyncOpenAI(http_client=http) as client:
        agent = Agent(
            name="Support",
            instructions="Answer in one sentence.",
            model=OpenAIChatCompletionsModel(model="gpt-4.1-mini", openai_client=client),
            model_settings=ModelSettings(temperature=0),
        )
        for _ in range(2):
            print((await Runner.run(agent, "What is a trivet?")).final_output)


def main() -> None:
    asyncio.run(ask())


if __name__ == "__main__":
    main()
