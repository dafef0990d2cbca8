"""`trivet serve --engine`: a proxy and its engine as two processes, started by one command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import psutil
import pytest
from engine_folder import write_model
from proxy import Proxy, free_port

from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.run import _engine_port
from trivet.policies.keygen import key_hash

PATIENCE_S = 100.0
SECRET = "s" * 40
PROMPT = "All requests of this test begin with these words, and some end otherwise: "


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="trivet-model-") as folder:
        place = Path(folder) / "tiny"
        write_model(str(place))
        yield str(place)


@contextmanager
def started(model: str, *arguments: str) -> Iterator[Proxy]:
    """`trivet serve --engine`, ready or not yet."""
    port, admin, engine = free_port(), free_port(), free_port()
    command = [sys.executable, "-m", "trivet.cli", "serve", "--engine", model, "--store", "memory"]
    ports = ["--port", str(port), "--admin-port", str(admin), "--engine-port", str(engine)]
    options = ["--engine-options", "--kv-memory 8MiB --threads 1"]
    with tempfile.TemporaryDirectory(prefix="trivet-test-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *ports, *options, *arguments],
                stdout=out,
                stderr=out,
                env={**os.environ, "XDG_STATE_HOME": folder, "TRIVET_ENGINE_SECRET": SECRET},
            )
        proxy = Proxy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}", process, log)
        proxy.extra["engine"] = f"http://127.0.0.1:{engine}"
        try:
            yield proxy
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def until(true: Callable[[], bool], proxy: Proxy) -> None:
    """Wait for it; what was logged is shown where it does not come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError):
            if true():
                return
        time.sleep(0.05)
    raise AssertionError(proxy.log.read_text())


def engine_state(proxy: Proxy) -> str:
    """What readiness says of the engine."""
    told = proxy.get("/readyz", admin=True)
    (engine,) = (one for one in told.json["components"] if one["name"] == "engine")
    assert (told.status == 200) == (engine["state"] == "up")
    return str(engine["state"])


def engine_of(proxy: Proxy) -> psutil.Process:
    """The engine's process."""
    children = psutil.Process(proxy.process.pid).children(recursive=True)
    (engine,) = (child for child in children if "engine" in child.cmdline())
    return engine


def metrics(proxy: Proxy) -> httpx2.Response:
    """The engine's figures, as its operator gets them."""
    secret = {"authorization": f"Bearer {SECRET}"}
    return httpx2.get(proxy.extra["engine"] + "/metrics", headers=secret)


def ready(proxy: Proxy) -> None:
    until(lambda: engine_state(proxy) == "up", proxy)


def body(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": PROMPT + text}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 4, **more}


def cached(proxy: Proxy, text: str, key: str, **more: Any) -> int:
    """Ask, and return the prompt's tokens that came out of the prefix cache."""
    headers = {name: more.pop(name) for name in list(more) if name.startswith("x_")}
    told = proxy.post("/v1/chat/completions", body(text, **more), key=key, **headers)
    assert told.status == 200, told.body
    return int(told.json["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture(scope="module")
def together(model: str) -> Iterator[Proxy]:
    with started(model) as proxy:
        ready(proxy)
        yield proxy


def test_its_lines_are_shown_behind_its_name(together: Proxy) -> None:
    lines = [line for line in together.lines() if line.startswith("engine  ")]
    assert any("loading" in line for line in lines)
    assert any("tenants are told signed" in line for line in lines)


def test_a_prefix_is_shared_within_a_tenant_and_never_across(together: Proxy) -> None:
    asked = [("one", "a"), ("two", "a"), ("two", "b"), ("three", "b")]
    found = [cached(together, text, key) for text, key in asked]
    assert found[0] == found[2] == 0
    assert found[1] == found[3] >= 64


def test_a_caller_reaches_no_other_space_by_what_it_sends(together: Proxy) -> None:
    assert cached(together, "one", "victim") == 0
    tenant = metrics(together).text.split('tenant="')[1]
    for number, more in enumerate(
        (
            {"cache_salt": "default"},
            {"x_trivet_tenant": tenant.split('"')[0]},
            {"x_trivet_tenant": "victim", "cache_salt": "victim"},
        )
    ):
        assert cached(together, "one", f"thief-{number}", **more) == 0


def test_a_tenants_own_salt_divides_its_space(together: Proxy) -> None:
    asked = [("1", "x"), ("2", "x"), ("3", "y"), ("4", "y")]
    found = [cached(together, text, "divided", cache_salt=salt) for text, salt in asked]
    assert found[0] == found[2] == 0
    assert found[1] == found[3] >= 64


def test_the_exact_tier_answers_before_it(together: Proxy) -> None:
    first, second = (together.post("/v1/chat/completions", body("stop")) for _ in range(2))
    # An answer that was cut by its length is not stored.
    assert (first.exact.get("hit"), second.exact.get("hit")) == (None, None)
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked = body("json", response_format=form, max_tokens=400)
    first, second = (together.post("/v1/chat/completions", asked) for _ in range(2))
    assert first.json["choices"][0]["finish_reason"] == "stop"
    assert (first.exact.get("hit"), second.exact.get("hit")) == (None, True)
    assert second.json["choices"] == first.json["choices"]


def test_both_apis_and_token_counts_come_through(together: Proxy) -> None:
    sent = body("messages")
    assert together.post("/v1/messages", sent).json["type"] == "message"
    counted = together.post("/v1/messages/count_tokens", sent).json["input_tokens"]
    assert counted == together.post("/tokenize", sent).json["count"]
    assert together.get("/v1/models", authorization="Bearer k").json["data"][0]["id"] == "tiny"


def test_the_engines_metrics_name_tenants_and_are_not_for_them(together: Proxy) -> None:
    assert "trivet_engine_prefix_cache_hits_total" in metrics(together).text
    assert httpx2.get(together.extra["engine"] + "/metrics").status_code == 401
    assert together.get("/metrics", authorization="Bearer k").status == 404


def test_errors_of_the_engine_are_the_callers_to_read(together: Proxy) -> None:
    unknown = together.post("/v1/chat/completions", {**body("x"), "model": "lora-7"})
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
    long = together.post("/v1/chat/completions", body("x" * 2000))
    assert long.json["error"]["code"] == "context_length_exceeded"


def test_who_asks_the_engine_itself_is_refused(together: Proxy) -> None:
    cached(together, "one", "direct")
    url = together.extra["engine"] + "/v1/chat/completions"
    assert httpx2.post(url, json=body("one"), timeout=30).status_code == 401
    forged = httpx2.post(url, json=body("one"), headers={"x-trivet-tenant": "direct"})
    assert forged.status_code == 401


def test_a_kill_in_mid_stream_is_an_upstream_failure_and_the_engine_comes_back(
    together: Proxy,
) -> None:
    asked = body("killed", stream=True, max_tokens=900)
    url = together.url + "/v1/chat/completions"
    headers = {"authorization": "Bearer k"}
    seen: list[bytes] = []
    with httpx2.stream("POST", url, json=asked, headers=headers, timeout=60) as answer:
        parts = answer.iter_raw()
        seen.append(next(parts))
        engine_of(together).send_signal(signal.SIGKILL)
        with pytest.raises(httpx2.RemoteProtocolError):
            seen.extend(parts)
    assert b"[DONE]" not in b"".join(seen)
    until(lambda: engine_state(together) != "up", together)
    # Nobody else can listen at the engine's port while it is away, so requests wait there.
    port = int(together.extra["engine"].rpartition(":")[2])
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            thief.bind(("127.0.0.1", port))
    waited = together.post("/v1/chat/completions", body("meanwhile"))
    assert waited.status == 200
    ready(together)
    assert any("starting again" in line for line in together.lines())
    again = together.post("/v1/chat/completions", {**asked, "stream": False, "max_tokens": 4})
    assert (again.status, again.exact.get("hit")) == (200, None)
    # A new engine has nothing cached, and the same tenants.
    assert cached(together, "five", "a") == 0
    assert cached(together, "six", "a") >= 64


def test_both_end_together(together: Proxy) -> None:
    ready(together)
    engine = engine_of(together)
    assert together.stop(timeout=60) == 0
    assert not engine.is_running()
    assert "engine        stopped" in together.lines()


def test_several_workers_share_one_engine_and_its_secret(model: str) -> None:
    with started(model, "--workers", "2") as proxy:
        ready(proxy)
        found = [cached(proxy, f"{number}", "a") for number in range(6)]
        assert found[0] == 0
        assert all(count >= 64 for count in found[1:])
        engine = engine_of(proxy)
        assert proxy.stop(signal.SIGINT, timeout=60) == 0
        assert not engine.is_running()


def test_with_json_logs_the_engines_lines_are_json(model: str) -> None:
    with started(model, "--log-format", "json") as proxy:
        ready(proxy)
        engine_of(proxy).kill()
        until(lambda: "engine-ended" in proxy.log.read_text(), proxy)
        ready(proxy)
        assert proxy.stop(timeout=60) == 0
        told = proxy.lines()
    assert not [line for line in told if line.startswith(("engine", "trivet engine"))]
    lines = [json.loads(line) for line in told if line.startswith("{")]
    events = [line["event"] for line in lines if line["event"].startswith("engine-")]
    up = ["engine-loading", "engine-loaded", "engine-ready"]
    assert events == [*up, "engine-ended", *up, "engine-stopped"]
    assert all(line["timestamp"] and line["level"] for line in lines)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_purge_of_a_tenant_reaches_its_prefixes(model: str, tmp_path: Path, workers: str) -> None:
    for name in ("acme", "other"):
        told = f"tenant: {name}\ncredentials:\n  - sha256: {key_hash(name)}\n"
        (tmp_path / f"{name}.yaml").write_text(told)
    with started(model, "--policies", str(tmp_path), "--workers", workers) as proxy:
        ready(proxy)
        for tenant in ("acme", "other"):
            assert cached(proxy, "one", tenant) == 0
            assert cached(proxy, "two", tenant) >= 64
        done = httpx2.post(f"{proxy.admin}/trivet/purge", json={"tenant": "acme"}, timeout=30)
        assert done.status_code == 200, done.text
        assert cached(proxy, "three", "acme") == 0
        assert cached(proxy, "four", "acme") >= 64
        assert cached(proxy, "three", "other") >= 64


def test_an_engine_outlives_no_proxy_that_was_killed(model: str) -> None:
    with started(model) as proxy:
        until(lambda: engine_state(proxy) == "loading", proxy)
        engine = engine_of(proxy)
        proxy.stop(signal.SIGKILL)
        until(lambda: not engine.is_running() or engine.status() == "zombie", proxy)


@pytest.mark.parametrize(
    ("model", "told"),
    [("/nowhere/at/all", "/nowhere/at/all"), (".", "config.json")],
)
def test_a_model_that_is_not_there_ends_both_with_its_reason(model: str, told: str) -> None:
    with started(model) as proxy:
        assert proxy.process.wait(PATIENCE_S) == 2
        lines = proxy.lines()
        assert any(line.startswith("engine  ") and told in line for line in lines), lines
        assert any(line.startswith("error: trivet serve: --engine") for line in lines)


def test_wrong_options_of_the_engine_end_both(model: str) -> None:
    with started(model, "--engine-options", "--block-size none") as proxy:
        assert proxy.process.wait(PATIENCE_S) == 2
        assert "--block-size" in proxy.log.read_text()


def test_other_upstreams_are_asked_for_other_models(model: str) -> None:
    with started(model, "--upstream", "http://127.0.0.1:9") as proxy:
        ready(proxy)
        assert proxy.post("/v1/chat/completions", body("mine")).status == 200
        other = proxy.post("/v1/chat/completions", {**body("x"), "model": "gpt"})
        assert (other.status, json.loads(other.body)["error"]["type"]) == (502, "server_error")


@pytest.mark.parametrize(
    ("port", "admin", "wanted"),
    [(8080, 8081, 8082), (8080, 8082, 8083), (65535, 40000, 65534), (65534, 65535, 65533)],
)
def test_the_engines_port_is_the_same_each_time(port: int, admin: int, wanted: int) -> None:
    def at(number: int) -> Any:
        return SimpleNamespace(getsockname=lambda: ("127.0.0.1", number))

    config = cast(ServerConfig, SimpleNamespace(port=port))
    assert _engine_port(config, at(port), at(admin)) == wanted
