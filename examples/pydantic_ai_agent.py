"""Pydantic AI by the transport.

trivet upstream --port 9000
OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_API_KEY=any python examples/pydantic_ai_agent.py
"""

import asyncio

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from trivet import AsyncTrivetTransport


async def ask() -> None:
    http = DefaultAsyncHttpxClient(transport=AsyncTrivetTransport())
    async with AsyncOpenAI(http_client=http) as client:
        model = OpenAIChatModel("gpt-4.1-mini", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, model_settings={"temperature": 0})
        for _ in range(2):
            print((await agent.run("What is a trivet?")).output)


def main() -> None:
    asyncio.run(ask())


if __name__ == "__main__":
    main()
