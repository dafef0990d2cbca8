"""Anthropic's async SDK with the cache in this process, under a policy.

    trivet upstream --port 9000
    ANTHROPIC_BASE_URL=http://127.0.0.1:9000 ANTHROPIC_API_KEY=any \
        python examples/anthropic_client.py

Requests of this API sample, so that they are cached only where a policy says so.
"""

import asyncio
import tempfile
from pathlib import Path

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from trivet import AsyncTrivetTransport

POLICY = """\
tenant: support
credentials: [{gateway: support}]  # the app says which tenant asks
exact: {sampled: cache, ttl: 1h}
"""


async def ask(policies: Path) -> None:
    transport = AsyncTrivetTransport(tenant="support", policies=policies)
    async with AsyncAnthropic(http_client=DefaultAsyncHttpxClient(transport=transport)) as client:
        for _ in range(2):
            reply = await client.messages.with_raw_response.create(
                model="claude-sonnet-5",
                max_tokens=200,
                messages=[{"role": "user", "content": "What is a trivet?"}],
            )
            print(reply.headers["cache-status"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "support.yaml").write_text(POLICY)
        asyncio.run(ask(Path(folder)))


if __name__ == "__main__":
    main()
