"""LiteLLM's proxy with its in-memory cache, against the same floor and beside Trivet."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from bench.bodies import chat_body, post
from bench.hits import serve_config
from bench.load import Job
from bench.measure import Effort, NewJob, Subject, compare, warm
from bench.processes import CLIENT_CORES, SERVER_CORES, Bench, Process, free_port
from bench.report import Row

_COMMAND = Path(__file__).with_name(".venv-litellm") / "bin" / "litellm"

_CONFIG = """\
model_list:
  - model_name: gpt-4o-mini
    litellm_params: {{model: openai/gpt-4o-mini, api_base: {url}/v1, api_key: none}}
litellm_settings:
  cache: true
  cache_params: {{type: local}}
  telemetry: false
"""


async def beside(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Hits at c=1 and c=16. There is no target: the row is there to compare with."""
    command = Path(os.environ.get("TRIVET_BENCH_LITELLM", _COMMAND))
    if not command.exists():
        print("LiteLLM is not installed beside this: see bench/peers/README.md")
        return
    upstream = bench.app("upstream", cores=CLIENT_CORES)
    floor = bench.app("floor")
    trivet = bench.trivet(serve_config(upstream.url, "memory"))
    # It refuses to start without a key of its own: one for this run.
    key = f"sk-{secrets.token_hex(32)}"
    peer = _start(bench, command, upstream.url, key)
    request = post(chat_body(), key=key)
    servers = {"floor": floor, "trivet": trivet, "litellm": peer}
    for process in servers.values():
        await warm(process.url, itertools.repeat(request), 20)
    for connections in (1, 16):
        subjects = {
            name: Subject(process, _job(process, request, connections))
            for name, process in servers.items()
        }
        found = await compare(subjects, effort)
        for name in ("litellm", "trivet"):
            where = f"{name}, one request, c={connections}"
            rate = found.ratio(name, "floor", "rps")
            yield Row("peers", f"{where}: throughput", rate, "x", detail=found.say(name))
            yield Row("peers", f"{where}: CPU", found.ratio(name, "floor", "cpu"), "x")
    resident = peer.resident_bytes() / 1e6
    yield Row("peers", "litellm: resident", resident, "MB", detail=f"start {peer.ready_s:.1f} s")
    for process in (peer, trivet, floor, upstream):
        process.stop()


def _job(process: Process, request: bytes, connections: int) -> NewJob:
    return lambda: Job(process.url, itertools.repeat(request), connections)


def _start(bench: Bench, command: Path, upstream: str, key: str) -> Process:
    port = free_port()
    file = bench.folder / "litellm.yaml"
    file.write_text(_CONFIG.format(url=upstream))
    arguments = [str(command), "--config", str(file), "--port", str(port), "--num_workers", "1"]
    url = f"http://127.0.0.1:{port}"
    peer = bench.start(arguments, url, "litellm", SERVER_CORES, {"LITELLM_MASTER_KEY": key})
    peer.wait_for(f"{url}/health/liveliness")
    return peer
