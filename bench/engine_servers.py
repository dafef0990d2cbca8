"""Trivet's engine, vLLM and llama.cpp as servers, over HTTP, with the same model and prompts.

One server is asked at a time, by turns in each round. Prompts go as token ids, so all compute the
same; each server has all threads. A server that is not at hand is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import BenchError
from bench.processes import CORES, Process, free_port
from bench.report import Row
from trivet.prefix.engine.benchmark import Benchmark

_START_S = 300.0
_CONTEXT = 4096
_SLOTS = 16
Commands = dict[str, tuple[list[str], dict[str, str]]]


class Server:
    """One engine behind `/v1/completions`."""

    def __init__(
        self, name: str, command: Sequence[str], port: int, log: Path, env: dict[str, str]
    ) -> None:
        self.name = name
        self._port = port
        url = f"http://127.0.0.1:{port}"
        self._process = Process(command, url, log, set(CORES), env)
        self._wait(f"{url}/health", log)
        models = json.load(urllib.request.urlopen(f"{url}/v1/models"))
        self._model = models["data"][0]["id"]

    def _wait(self, url: str, log: Path) -> None:
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise BenchError(f"{self.name} did not start:\n{log.read_text('utf-8', 'replace')[-2000:]}")

    def ask(self, prompt: Sequence[int], answer: int = 1) -> tuple[float, int]:
        """Seconds for one greedy answer, and how many prompt tokens it says were cached."""
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": answer,
            "temperature": 0,
            "ignore_eos": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_START_S)
        began = time.perf_counter()
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
        )
        response = connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
        took = time.perf_counter() - began
        connection.close()
        if response.status != 200:
            raise BenchError(f"{self.name} answered {response.status}: {found}")
        details = found["usage"].get("prompt_tokens_details") or {}
        return took, details.get("cached_tokens") or 0

    async def all(self, prompts: Sequence[Sequence[int]], answer: int = 1) -> tuple[float, int]:
        """Seconds until all answers are there, asked for at once; cached tokens of all."""
        began = time.perf_counter()
        asked = (asyncio.to_thread(self.ask, prompt, answer) for prompt in prompts)
        found = await asyncio.gather(*asked)
        return time.perf_counter() - began, sum(cached for _, cached in found)

    def stop(self) -> None:
        """End it."""
        self._process.stop()


def _commands(folder: str, asked: argparse.Namespace, port: int) -> Commands:
    threads = asked.threads
    trivet = (
        f"{sys.executable} -m trivet.cli engine serve --model {folder} --port {port}"
        f" --kv-memory 1GiB --dtype fp32 --threads {threads}"
    )
    vllm = (
        f"{asked.vllm}/bin/python -m vllm.entrypoints.openai.api_server --model {folder}"
        f" --port {port} --max-model-len {_CONTEXT} --enforce-eager --dtype float32"
        " --block-size 32 --enable-prompt-tokens-details"
    )
    vllm_env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    }
    llama = (
        f"{asked.llama_server} -m {asked.gguf} --port {port} -t {threads} --no-webui"
        f" -c {_CONTEXT * _SLOTS} -np {_SLOTS}"
    )
    found: Commands = {"Trivet": (trivet.split(), {})}
    if asked.vllm:
        found["vLLM"] = (vllm.split(), vllm_env)
    if asked.llama_server and asked.gguf:
        found["llama.cpp"] = (llama.split(), {})
    return found


async def side_by_side(
    benchmark: Benchmark, folder: str, asked: argparse.Namespace
) -> AsyncIterator[Row]:
    """Rows without targets: what each says, in its own words for what was cached."""
    here = _commands(folder, asked, 0)
    for name, option in (("vLLM", "--vllm"), ("llama.cpp", "--llama-server and --gguf")):
        if name not in here:
            yield Row("servers", f"{name}: left out", 0, "", detail=f"give {option}")
    with ExitStack() as stack, tempfile.TemporaryDirectory() as logs:
        servers = []
        for name in here:
            port = free_port()
            command, env = _commands(folder, asked, port)[name]
            log = Path(logs) / f"{name}.log"
            server = Server(name, command, port, log, {**os.environ, **env})
            stack.callback(server.stop)
            servers.append(server)
        async for row in _compared(benchmark, servers):
            yield row


async def _compared(benchmark: Benchmark, servers: Sequence[Server]) -> AsyncIterator[Row]:
    shape = benchmark.shape
    found: dict[str, dict[str, list[float]]] = {server.name: {} for server in servers}
    for turn in range(shape.rounds):
        for server in servers if turn % 2 == 0 else servers[::-1]:
            for name, value in (await _measured(benchmark, server)).items():
                found[server.name].setdefault(name, []).append(value)
    for name in found[servers[0].name]:
        for server in servers:
            value = median(found[server.name][name])
            what, _, unit = name.partition(" | ")
            yield Row(f"servers: {what}", server.name, value, unit)


async def _measured(benchmark: Benchmark, server: Server) -> dict[str, float]:
    shape = benchmark.shape
    prefix = benchmark.tokens(shape.prefix)
    server.ask(benchmark.tokens(shape.tail))
    cold, _ = server.ask(prefix + benchmark.tokens(shape.tail))
    warm = [server.ask(prefix + benchmark.tokens(shape.tail)) for _ in range(3)]
    one, _ = await server.all([benchmark.tokens(shape.prompt)], shape.answer)
    many, _ = await server.all(
        [benchmark.tokens(shape.prompt) for _ in range(shape.batch)], shape.answer
    )
    took, cached, count = 0.0, 0, 0
    for prompts in benchmark.trace():
        seconds, hits = await server.all(prompts)
        took, cached, count = took + seconds, cached + hits, count + sum(map(len, prompts))
    return {
        f"{shape.prefix} + {shape.tail} tokens, cold | ms": cold * 1e3,
        f"{shape.prefix} + {shape.tail} tokens, prefix cached | ms": median(
            seconds for seconds, _ in warm
        )
        * 1e3,
        "prefix tokens that it says were cached | tok": median(hits for _, hits in warm),
        "1 answer, generated | tok/s": shape.answer / one,
        f"{shape.batch} answers at once, generated | tok/s": shape.batch * shape.answer / many,
        "chat trace, prompt tokens | tok/s": count / took,
        "chat trace, prompt tokens that it says were cached | %": cached / count * 100,
    }
