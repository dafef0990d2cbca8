"""Starts the product as users do: `trivet serve` as a process, in front of the mock upstream."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running
from trivet.middleware.status import parse

START_S = 30.0


def free_port() -> int:
    """A port that was free a moment ago.

    Not one of those that connections get by themselves (32768 and up on Linux): between two
    processes that start, one of them would be taken now and then.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Reply:
    """An HTTP reply, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def exact(self) -> dict[str, str | int | bool]:
        """What the exact tier says in `Cache-Status`."""
        return parse(self.headers["cache-status"])["trivet-exact"]


@dataclass
class Proxy:
    """A running proxy."""

    url: str
    admin: str
    process: subprocess.Popen[bytes]
    log: Path
    mock: MockUpstream | None = None
    key: str = "sk-test"
    extra: dict[str, str] = field(default_factory=dict)

    def post(
        self,
        path: str,
        body: Any,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        **headers: str,
    ) -> Reply:
        """POST JSON (or raw bytes). Header names are written with underscores."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("content-type", "application/json")
        named.setdefault("authorization", f"Bearer {self.key if key is None else key}")
        return request("POST", self.url + path, data, named, timeout)

    def chat(self, text: str = "Hello", **options: Any) -> Reply:
        """A chat request at temperature 0; keyword arguments with `x_` go into headers."""
        headers = {
            name: options.pop(name)
            for name in list(options)
            if name.startswith(("x_", "trivet_", "cache_control"))
            or name in ("baggage", "key", "timeout")
        }
        return self.post("/v1/chat/completions", chat_body(text, **options), **headers)

    def get(self, path: str, *, admin: bool = False, **headers: str) -> Reply:
        """GET from the data port or from the admin port."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request("GET", (self.admin if admin else self.url) + path, None, named, 30.0)

    def lines(self) -> list[str]:
        """What the proxy has logged."""
        return self.log.read_text().splitlines()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


def chat_body(text: str = "Hello", **options: Any) -> dict[str, Any]:
    """A chat request body at temperature 0."""
    return {
        "model": "mock",
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
        **options,
    }


def request(
    method: str, url: str, data: bytes | None, headers: dict[str, str], timeout: float
) -> Reply:
    """One HTTP exchange; an error status is a reply like any other."""
    asked = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return Reply(answer.status, _lower(answer.headers), answer.read())
    except urllib.error.HTTPError as answer:
        with answer:
            return Reply(answer.code, _lower(answer.headers), answer.read())


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def serving(
    upstream: str | None = None,
    *arguments: str,
    store: str = "memory",
    config: str | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[Proxy]:
    """`trivet serve` on free ports; without an upstream URL, in front of a mock of its own.

    `config` is the text of a server config file (YAML).
    """
    with tempfile.TemporaryDirectory(prefix="trivet-test-") as folder:
        if upstream is None and config is None:
            with (
                running() as (url, mock),
                _process(url, arguments, store, config, env, folder) as up,
            ):
                up.mock = mock
                yield up
        else:
            with _process(upstream, arguments, store, config, env, folder) as up:
                yield up


@contextmanager
def _process(
    upstream: str | None,
    arguments: tuple[str, ...],
    store: str,
    config: str | None,
    env: dict[str, str] | None,
    folder: str,
) -> Iterator[Proxy]:
    port, admin = free_port(), free_port()
    command = [sys.executable, "-m", "trivet.cli", "serve", "--port", str(port)]
    command += ["--admin-port", str(admin), "--store", store, *arguments]
    if upstream is not None:
        command += ["--upstream", upstream]
    if config is not None:
        file = Path(folder) / "server.yaml"
        file.write_text(config)
        command += ["--config", str(file)]
    log = Path(folder) / "log"
    environment = {**os.environ, "XDG_STATE_HOME": folder, **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out, stdout=out, env=environment)
    proxy = Proxy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}", process, log)
    try:
        _await_ready(proxy)
        yield proxy
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_ready(proxy: Proxy) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if proxy.process.poll() is not None:
            break
        try:
            if proxy.get("/readyz", admin=True).status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("the proxy did not start:\n" + proxy.log.read_text())
