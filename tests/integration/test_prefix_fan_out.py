"""Twenty requests at once by the official SDK: one writes the prefix that all have, or all do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import httpx2
import pytest
from proxy import Proxy, serving

from trivet.middleware.mock_upstream.run import running
from trivet.policies.keygen import key_hash

RULES = "Answer in one word. " * 1_000


@contextmanager
def deployment(folder: Path, wait: float, provider: str = "anthropic") -> Iterator[Proxy]:
    folder.mkdir(exist_ok=True)
    for name in ("acme", "globex"):
        (folder / f"{name}.yaml").write_text(
            f"tenant: {name}\ncredentials:\n  - sha256: {key_hash(f'sk-{name}')}\n"
            f"prefix: {{fan_out: {{wait: {wait}}}}}\n"
        )
    with running(provider=provider) as (url, _):
        upstream = {"name": "claude", "base_url": url, "cache": provider}
        config = json.dumps({"upstreams": [upstream]})
        with serving(None, "--policies", str(folder), config=config) as proxy:
            yield proxy


async def at_once(proxy: Proxy, *keys: str) -> list[tuple[int, int]]:
    """Read and written tokens of a request by each of the keys, all sent together."""

    async def one(number: int, key: str) -> tuple[int, int]:
        async with anthropic.AsyncAnthropic(
            api_key=key, base_url=proxy.url, max_retries=0
        ) as client:
            usage = (
                await client.messages.create(
                    model="claude-sonnet-4-6",
                    max_tokens=9,
                    system=RULES,
                    messages=[{"role": "user", "content": f"question {number}"}],
                    extra_headers={"x-mock": "delay=400"},
                )
            ).usage
        return usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0

    return await asyncio.gather(*(one(number, key) for number, key in enumerate(keys)))


@pytest.mark.parametrize(("wait", "writes"), [(0, 8), (10, 1)])
def test_the_first_request_of_a_new_prefix_writes_it_for_all(
    tmp_path: Path, wait: float, writes: int
) -> None:
    with deployment(tmp_path / "policies", wait) as proxy:
        found = asyncio.run(at_once(proxy, *["sk-acme"] * 8))
    assert sum(written > 0 for _, written in found) == writes
    assert sum(read > 0 for read, _ in found) == 8 - writes


def test_tenants_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each of the two writes: with the upstream's own keys they share nothing."""
    with deployment(tmp_path / "policies", 10) as proxy:
        found = asyncio.run(at_once(proxy, *["sk-acme", "sk-globex"] * 3))
    assert sum(written > 0 for _, written in found) == 2


@pytest.mark.parametrize(("wait", "writes"), [(0, 6), (10, 1)])
def test_it_holds_on_bedrocks_own_api_too(tmp_path: Path, wait: float, writes: int) -> None:
    async def one(client: httpx2.AsyncClient, number: int) -> int:
        body = {
            "system": [{"text": RULES}],
            "messages": [{"role": "user", "content": [{"text": f"question {number}"}]}],
        }
        reply = await client.post(
            "/model/anthropic.claude-opus-5-v1:0/converse",
            json=body,
            headers={"authorization": "Bearer sk-acme", "x-mock": "delay=300"},
        )
        return int(reply.json()["usage"]["cacheWriteInputTokens"])

    async def together(url: str) -> list[int]:
        async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
            return await asyncio.gather(*(one(client, number) for number in range(6)))

    with deployment(tmp_path / "p", wait, "bedrock") as proxy:
        written = asyncio.run(together(proxy.url))
    assert sum(map(bool, written)) == writes
