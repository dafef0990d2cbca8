"""`python -m bench.routing`: what routing by prefix is worth, and what a decision costs.

Three parts: two real replicas of our engine beside their simulation; the simulation at 64 replicas
and 10,000 conversations; the time of one decision. `--only PART` runs one of them, `--quick` fewer
conversations.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import orjson

from bench.engine_servers import Server
from bench.fleet_sim import Engine, Oracle, Outcome, Proxies, Router, Simulation, Trivet
from bench.fleet_trace import Shape, Span, Turn, best_share, trace
from bench.peers.sglang_policy import CacheAware
from bench.processes import free_port
from bench.report import Row, line, summary, write
from trivet.messages import Api
from trivet.middleware.fleets.fleets import Fleets
from trivet.middleware.fleets.replicas import ReplicaSet
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.pool.hashing import tenant_salt
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import KNOWN, Steps, steps_of

RESULTS = Path(__file__).with_name("results_routing.json")
_REPLICAS = 64
_FLEET = Shape(conversations=10_000, tenants=200, rate=30.0)
_SMALL = Shape(
    10, 3, 0.4, system=450, asked=60, answered=60, turns=4.0, gap_s=4.0, seed=11
)  # fmt: skip
_ANSWER = 4
_BLOCKS = 360
_KV_MEMORY = "256MiB"
"""About 360 blocks of SmolLM2: each replica holds a part of the small trace."""
_WORDS = ("sky", "sea", "tea", "cat", "dog", "sun", "map", "box", "car", "red")
"""Four bytes a token with the space, as the router estimates."""
Make = Callable[[Simulation], Router]


def _policies(replicas: int) -> dict[str, Make]:
    return {
        "affinity": partial(Trivet, policy="affinity"),
        "4 proxies that share nothing": partial(Proxies, count=4),
        "an oracle that knows every block": Oracle,
        "SGLang's cache_aware rule": lambda sim: CacheAware(replicas, sim.clock),
        "least load": partial(Trivet, policy="least-load"),
        "round robin": partial(Trivet, policy="round-robin"),
    }


def fleet(quick: bool) -> Iterator[Row]:
    """64 replicas, simulated."""
    shape = replace(_FLEET, conversations=1_000, rate=3.0) if quick else _FLEET
    replicas = 8 if quick else _REPLICAS
    turns = trace(shape)
    section = (
        f"simulated: {replicas} replicas, {shape.conversations:,} conversations, "
        f"{len(turns):,} requests of {mean(turn.tokens for turn in turns):,.0f} tokens"
    )
    best = best_share(turns, Engine().block)
    yield Row(section, "cached share of one cache without end", 100 * best, "%")
    found: dict[str, Outcome] = {}
    for name, make in _policies(replicas).items():
        simulation = Simulation(Engine(), replicas)
        outcome = found[name] = simulation.run(turns, make(simulation))
        yield Row(section, f"{name}: cached tokens", 100 * outcome.share, "%")
        yield Row(section, f"{name}: first token, p50", 1e3 * outcome.percentile(50), "ms")
        yield Row(section, f"{name}: first token, p99", 1e3 * outcome.percentile(99), "ms")
        yield Row(section, f"{name}: busiest over mean, computed", outcome.imbalance, "x")
    ours, oracle, around = (
        found[name] for name in ("affinity", "an oracle that knows every block", "round robin")
    )
    theirs = found["SGLang's cache_aware rule"]
    yield Row(section, "cached share over the oracle's", ours.share / oracle.share, "x", ">=", 0.95)
    won = (ours.share - around.share) / (best - around.share)
    yield Row(section, "of what round robin leaves, won", 100 * won, "%", ">=", 90)
    apart = found["4 proxies that share nothing"].share / oracle.share
    yield Row(section, "the same of 4 proxies that share nothing", apart, "x", ">=", 0.9)
    for of in (50, 99):
        ratio = ours.percentile(of) / theirs.percentile(of)
        yield Row(section, f"first token, p{of}, over SGLang's rule", ratio, "x", "<=", 1.0)


def decision(quick: bool) -> Iterator[Row]:
    """One choice among 64 replicas with 100,000 known prefixes."""
    section = f"one decision, {_REPLICAS} replicas, {KNOWN:,} known prefixes"
    urls = [f"http://replica-{at}:8000" for at in range(_REPLICAS)]
    config = UpstreamConfig.model_validate(
        {"name": "sim", "base_url": urls[0], "replicas": urls[1:]}
    )
    replicas = ReplicaSet(config)
    asked = 500 if quick else 5_000
    took: list[float] = []
    seed = 1
    while len(took) < asked:
        seed += 1
        for turn in trace(replace(_FLEET, conversations=1_000, seed=seed)):
            way = Way(turn.steps())
            began = time.perf_counter()
            choice = replicas.choose(way)
            spent = time.perf_counter() - began
            cost = replicas.began(choice, way)
            replicas.computed(choice.replica, cost)
            replicas.ended(choice.replica)
            if len(replicas._affinity) >= KNOWN:
                took.append(spent)
    yield Row(section, "p50", 1e6 * median(took), "us", "<=", 200)
    yield Row(section, "p99", 1e6 * quantiles(took, n=100)[98], "us")
    text = "All of this stands in front of every question. " * 3_400
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    outline = outline_of(Api.CHAT, body)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        steps_of(outline, b"salt")
        times.append(time.perf_counter() - began)
    yield Row(section, "steps of a prompt of 40,000 tokens, p50", 1e6 * median(times), "us")


@dataclass
class _Real:
    """Two replicas of our engine, asked as the proxy asks them."""

    urls: Sequence[str]
    model: str

    async def run(self, turns: Sequence[Turn], policy: str) -> Outcome:
        """Send the trace in its own time, under a salt of this run."""
        config = UpstreamConfig.model_validate(
            {
                "name": "pool",
                "base_url": self.urls[0],
                "replicas": self.urls[1:],
                "routing": policy,
            }
        )
        fleets = Fleets([config])
        client = UpstreamClient(None, fleets)
        fleets.start()
        outcome = Outcome()
        salt = tenant_salt(b"bench", policy)
        began = time.perf_counter()

        async def one(turn: Turn) -> None:
            await asyncio.sleep(max(0.0, turn.at - (time.perf_counter() - began)))
            await self._ask(client, config, turn, salt, outcome)

        await asyncio.gather(*map(one, turns))
        await client.close()
        await fleets.close()
        return outcome

    def body(self, turn: Turn, salt: str) -> dict[str, Any]:
        """The request of a turn."""
        messages = [{"role": "system", "content": _text(turn.spans[0])}]
        for at, span in enumerate(turn.spans[1:]):
            messages.append({"role": ("user", "assistant")[at % 2], "content": _text(span)})
        return {
            "model": self.model,
            "messages": messages,
            "max_tokens": _ANSWER,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_salt": salt,
        }

    def steps(self, turn: Turn, policy: str) -> Steps:
        """What the router sees of it."""
        salt = tenant_salt(b"bench", policy)
        return steps_of(outline_of(Api.CHAT, self.body(turn, salt)), salt.encode())

    async def _ask(
        self,
        client: UpstreamClient,
        config: UpstreamConfig,
        turn: Turn,
        salt: str,
        outcome: Outcome,
    ) -> None:
        body = self.body(turn, salt)
        way = Way(steps_of(outline_of(Api.CHAT, body), salt.encode()))
        headers = [(b"content-type", b"application/json")]
        began = time.perf_counter()
        response = await client.send(
            config, "POST", "/v1/chat/completions", headers, orjson.dumps(body), way
        )
        first, events = 0.0, b""
        async for chunk in response.chunks():
            events += chunk
            if not first and b'"content":"' in events.replace(b'"content":""', b""):
                first = time.perf_counter() - began
        response.close()
        usage = next(
            orjson.loads(event[6:])["usage"]
            for event in events.split(b"\n\n")
            if b'"usage":{' in event
        )
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        client.told(config, way, cached)
        outcome.cached += cached
        outcome.total += usage["prompt_tokens"]
        outcome.first_token_s.append(first or time.perf_counter() - began)


def _text(span: Span) -> str:
    """One word a token, about."""
    draw = random.Random(span.name)
    return " ".join(draw.choices(_WORDS, k=span.tokens))


async def real(quick: bool) -> AsyncIterator[Row]:
    """Two replicas of our engine on SmolLM2, and the same in the simulation."""
    turns = trace(replace(_SMALL, conversations=5) if quick else _SMALL)
    section = f"2 real replicas of our engine (SmolLM2), {len(turns)} requests"
    with ExitStack() as stack, tempfile.TemporaryDirectory() as logs:
        servers = []
        for at in range(2):
            port = free_port()
            command = [sys.executable, "-m", "trivet.cli", "engine", "serve", "--model", "smollm2"]
            command += ["--port", str(port), "--threads", "1", "--kv-memory", _KV_MEMORY]
            server = Server(f"replica {at}", command, port, Path(logs) / f"{at}.log", {})
            stack.callback(server.stop)
            servers.append((server, f"http://127.0.0.1:{port}"))
        speed = await _speed([server for server, _ in servers])
        made = _Real([url for _, url in servers], "smollm2")
        for policy in ("affinity", "least-load", "round-robin"):
            outcome = await made.run(turns, policy)
            simulation = Simulation(
                Engine(prefill=speed, decode_s=0.003, blocks=_BLOCKS, slowed=0.3), 2
            )
            steps = partial(made.steps, policy=policy)
            guessed = simulation.run(turns, Trivet(simulation, policy, made.urls, steps))
            if policy == "affinity":
                yield Row(section, "prompt tokens a second, each", speed, "tok")
            yield Row(section, f"{policy}: cached tokens", 100 * outcome.share, "%")
            yield Row(section, f"{policy}: simulated", 100 * guessed.share, "%")
            off = 100 * abs(outcome.share - guessed.share)
            yield Row(section, f"{policy}: points between them", off, "", "<=", 5)
            yield Row(section, f"{policy}: first token, mean", mean(outcome.first_token_s), "s")
            yield Row(section, f"{policy}: simulated", mean(guessed.first_token_s), "s")


async def _speed(servers: Sequence[Server]) -> float:
    """Prompt tokens a second while both compute: the best of some, as the first are slow."""
    draw = random.Random(3)
    count, took = 600, list[float]()
    for _ in range(4):
        prompts = [[draw.randrange(1000, 40_000) for _ in range(count)] for _ in servers]
        pairs = zip(servers, prompts, strict=True)
        answers = await asyncio.gather(*(asyncio.to_thread(one.ask, asked) for one, asked in pairs))
        took.append(mean(seconds for seconds, _ in answers))
    return count / min(took)


async def _rows(only: Sequence[str], quick: bool) -> list[Row]:
    rows: list[Row] = []

    def told(row: Row) -> None:
        if not rows or rows[-1].section != row.section:
            print(row.section, flush=True)
        print(line(row), flush=True)
        rows.append(row)

    if "real" in only:
        async for row in real(quick):
            told(row)
    for name, part in (("decision", decision), ("fleet", fleet)):
        if name in only:
            for row in part(quick):
                told(row)
    return rows


def main() -> int:
    """Exit code 1 if a target is missed."""
    parts = ("real", "decision", "fleet")
    parser = argparse.ArgumentParser(prog="python -m bench.routing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Fewer conversations.")
    parser.add_argument("--only", choices=parts, action="append", help="Only these parts.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Where the JSON goes.")
    asked = parser.parse_args()
    rows = asyncio.run(_rows(asked.only or parts, asked.quick))
    write(rows, asked.output, quick=asked.quick)
    print(f"\n{summary(rows)}\nwritten to {asked.output}")
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
