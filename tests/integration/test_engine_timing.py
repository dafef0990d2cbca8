"""What a tenant has cached does not show in the times of another one's answers (law 6)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial

import httpx2
import pytest
import tiny_models
import torch
import uvicorn
from engine_rig import tokenizer
from law6_rig import memory
from paired_times import Difference, Probe, difference, measured, shortened

from trivet.prefix.engine.engine import Engine, EngineSettings
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.loading import adopt
from trivet.prefix.engine.prompts import Prompts
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.server import EngineApp, Serving
from trivet.prefix.engine.tenants import sign
from trivet.prefix.pool.hashing import tenant_salt

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PREFIX, TAIL = 480, 16
SECRET = b"0123456789abcdef0123456789abcdef"
CHANCE = random.Random(4)


@cache
def model() -> LoadedModel:
    """Large enough that computing a prefix takes most of a request's time."""
    torch.set_num_threads(1)
    words = tokenizer()
    sizes = {"hidden_size": 192, "intermediate_size": 512, "vocab_size": len(words),
             "max_position_embeddings": 1024}  # fmt: skip
    return adopt("timed", tiny_models.made("llama", **sizes), words)


@asynccontextmanager
async def started() -> AsyncIterator[Engine]:
    """An engine whose pool is full, so that each request evicts."""
    engine = Engine(model(), EngineSettings(memory(model(), 320)))
    engine.start()
    try:
        for _ in range(12):
            await asked(engine, "first", tokens(PREFIX))
        yield engine
    finally:
        await engine.close()


def tokens(count: int) -> list[int]:
    return CHANCE.choices(range(model().facts.vocabulary), k=count)


async def asked(engine: Engine, salt: str, prompt: Sequence[int]) -> float:
    """Seconds to the first token."""
    began = time.perf_counter()
    params = SamplingParams(1, temperature=0, ignore_eos=True)
    async for part in engine.submit([*prompt], params, tenant=salt, salt=salt):
        assert part.finish == "length"
    return time.perf_counter() - began


Ask = Callable[[Sequence[int]], Awaitable[float]]


async def warmed_or_not(warming: Ask, probing: Ask) -> tuple[Probe, Probe]:
    """Probes with a prefix that was warmed just now, and with one that nobody has sent before."""
    warm, cold = tokens(PREFIX), tokens(PREFIX)
    await warming(warm + tokens(TAIL))
    return partial(probing, warm + tokens(TAIL)), partial(probing, cold + tokens(TAIL))


def assert_5_percent_would_show(times: list[tuple[float, float]]) -> None:
    """The same times, the first of each pair 5 % shorter, are told apart."""
    planted = difference(shortened(times))
    assert planted.p < 1e-3, planted
    assert planted.high < 0, planted


def assert_alike(found: Difference, times: list[tuple[float, float]]) -> None:
    assert found.is_excluded, found
    assert_5_percent_would_show(times)


async def test_another_tenants_warm_prefixes_do_not_show() -> None:
    async with started() as engine:
        one, other = (partial(asked, engine, salt) for salt in ("one", "other"))
        found, times = await measured(lambda: warmed_or_not(one, other))
    assert_alike(found, times)


async def test_a_tenants_own_warm_prefixes_show() -> None:
    async with started() as engine:
        one = partial(asked, engine, "one")
        found, _ = await measured(lambda: warmed_or_not(one, one))
    assert found.is_seen, found
    assert found.high < -0.5, found


async def while_computed(engine: Engine, own: str, other: str) -> tuple[Probe, Probe]:
    """Probes that come while `own` computes the prefix that they have, and while it computes
    another one."""

    async def probe(computed: list[int], probed: list[int]) -> float:
        meanwhile = asyncio.create_task(asked(engine, own, computed + tokens(TAIL)))
        await asyncio.sleep(0)
        taken = await asked(engine, other, probed + tokens(TAIL))
        await meanwhile
        return taken

    same, one, another = tokens(PREFIX), tokens(PREFIX), tokens(PREFIX)
    return partial(probe, same, same), partial(probe, one, another)


async def test_what_another_tenant_computes_just_now_does_not_show() -> None:
    async with started() as engine:
        found, times = await measured(lambda: while_computed(engine, "one", "other"))
    assert_alike(found, times)


async def test_what_a_tenant_computes_itself_just_now_shows() -> None:
    async with started() as engine:
        found, _ = await measured(lambda: while_computed(engine, "one", "one"))
    assert found.is_seen, found


# Through the server.


@dataclass
class Caller:
    """One who asks over HTTP; `tenant` is what a proxy signs, if one does."""

    client: httpx2.AsyncClient
    salt: str | None
    tenant: str | None = None

    async def __call__(self, prompt: Sequence[int]) -> float:
        """Seconds to the answer of one token."""
        sent = {"model": "timed", "prompt": [*prompt], "max_tokens": 1, "temperature": 0}
        body = json.dumps(sent | ({} if self.salt is None else {"cache_salt": self.salt})).encode()
        headers = {"content-type": "application/json"}
        if self.tenant is not None:
            headers["x-trivet-tenant"] = sign(SECRET, self.tenant, time.time(), body)
        began = time.perf_counter()
        answer = await self.client.post("/v1/completions", content=body, headers=headers)
        taken = time.perf_counter() - began
        assert answer.status_code == 200, answer.text
        return taken


@asynccontextmanager
async def served() -> AsyncIterator[httpx2.AsyncClient]:
    async with started() as engine:
        facts = model().facts
        prompts = Prompts(tokenizer(), facts.context, facts.vocabulary)
        serving = Serving(engine, prompts, ("timed",), secret=SECRET)
        config = uvicorn.Config(EngineApp(serving), port=0, lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                yield client
        finally:
            server.should_exit = True
            await asyncio.to_thread(thread.join)


@pytest.mark.parametrize(
    ("salt", "tenant"),
    [("ours", None), (tenant_salt(SECRET, "acme"), None), ("ours", "beta")],
    ids=["unsigned, its cache_salt", "unsigned, its own salt", "another tenant, its cache_salt"],
)
async def test_who_names_a_tenants_salt_does_not_see_what_it_has_warmed(
    salt: str, tenant: str | None
) -> None:
    async with served() as client:
        acme, prober = Caller(client, "ours", "acme"), Caller(client, salt, tenant)
        found, times = await measured(lambda: warmed_or_not(acme, prober))
    assert_alike(found, times)


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_who_shares_a_salt_sees_by_time_what_is_warm(tenant: str | None) -> None:
    async with served() as client:
        caller = Caller(client, "ours", tenant)
        found, _ = await measured(lambda: warmed_or_not(caller, caller))
    assert found.is_seen, found
    assert found.high < -0.5, found
