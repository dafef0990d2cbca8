"""Sockets, signals and what is said at the start."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from dataclasses import replace
from typing import Any, cast

import pytest
import uvicorn

from trivet.errors import ConfigError
from trivet.listening import listen, url_of
from trivet.middleware.observe.logs import configure
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.server import (
    announce,
    serve_until_signal,
    uvicorn_server,
    warn,
)
from trivet.policies.model import Credential, TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.policies.tenants import UNDECLARED, PolicySet


def config(**fields: Any) -> ServerConfig:
    upstreams = [{"name": "main", "base_url": "http://127.0.0.1:9000"}]
    return ServerConfig.model_validate({"upstreams": upstreams, **fields})


def policies(tenants: dict[str, TenantPolicy]) -> PolicySet:
    return replace(UNDECLARED, tenants=tenants)


class TestListen:
    def test_a_free_port_is_listened_on(self) -> None:
        with listen("127.0.0.1", 0, "--port") as made:
            host, port = made.getsockname()
            assert url_of(made) == f"http://{host}:{port}"
            with socket.create_connection((host, port), timeout=5):
                pass

    def test_ipv6_has_brackets(self) -> None:
        with listen("::1", 0, "--port") as made:
            assert url_of(made).startswith("http://[::1]:")

    def test_a_port_in_use_is_named_with_its_flag(self) -> None:
        with listen("127.0.0.1", 0, "--port") as made:
            port = made.getsockname()[1]
            with pytest.raises(ConfigError) as caught:
                listen("127.0.0.1", port, "--admin-port")
        said = str(caught.value)
        assert said.startswith(f"command line: --admin-port: cannot listen on 127.0.0.1:{port} (")
        assert "choose another port" in said

    def test_an_address_of_another_machine_is_told(self) -> None:
        with pytest.raises(ConfigError) as caught:
            listen("192.0.2.1", 0, "--port")
        assert "choose an address of this machine" in str(caught.value)

    def test_a_privileged_port_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(socket.socket, "bind", refuse)
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", 80, "--port")
        assert "choose a port from 1024 on" in str(caught.value)


class TestUvicorn:
    def test_it_adds_nothing_to_what_the_app_says_and_trusts_no_forwarding(self) -> None:
        made = uvicorn_server(lambda *_: None, config(drain=7, header_timeout=3))
        assert not made.config.date_header
        assert not made.config.server_header
        assert not made.config.proxy_headers
        assert made.config.timeout_graceful_shutdown == 7
        assert cast(Any, made.config.http).header_timeout == 3

    def test_draining_is_never_endless(self) -> None:
        made = uvicorn_server(lambda *_: None, config(drain=0))
        assert made.config.timeout_graceful_shutdown == 1

    def test_breaking_off_on_purpose_is_no_error_in_the_log(self) -> None:
        uvicorn_server(lambda *_: None, config())
        logger = logging.getLogger("uvicorn.error")
        said = "ASGI callable returned without completing response."
        for message, passes in ((said, False), ("Something else.", True)):
            record = logger.makeRecord("x", logging.ERROR, "f", 1, message, (), None)
            assert bool(logger.filter(record)) is passes

    def test_it_handles_no_signals_itself(self) -> None:
        made = uvicorn_server(lambda *_: None, config())
        before = signal.getsignal(signal.SIGTERM)
        with made.capture_signals():
            assert signal.getsignal(signal.SIGTERM) is before


class Server:
    """Serves until it should exit, or for ever until it is forced."""

    def __init__(self, stubborn: bool) -> None:
        self.should_exit = self.force_exit = False
        self.stubborn = stubborn

    async def serve(self, sockets: list[socket.socket]) -> None:
        while not (self.force_exit if self.stubborn else self.should_exit):
            await asyncio.sleep(0.001)


class Control:
    draining = False


async def until_signal(*servers: Server) -> Control:
    control = Control()
    made = [socket.socket() for _ in servers]
    try:
        loop = asyncio.get_running_loop()
        loop.call_later(0.02, signal.raise_signal, signal.SIGTERM)
        if any(server.stubborn for server in servers):
            loop.call_later(0.05, signal.raise_signal, signal.SIGINT)
        serving = serve_until_signal(
            cast(tuple[uvicorn.Server, ...], servers), tuple(made), control
        )
        await asyncio.wait_for(serving, 5)
    finally:
        for one in made:
            one.close()
    return control


class TestSignals:
    async def test_the_first_one_drains_every_server(self) -> None:
        servers = Server(False), Server(False)
        assert (await until_signal(*servers)).draining
        assert [server.force_exit for server in servers] == [False, False]

    async def test_a_second_one_ends_them_at_once(self) -> None:
        server = Server(True)
        assert (await until_signal(server)).draining
        assert server.force_exit


class TestAnnounce:
    def test_it_says_where_everything_is_and_no_password(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with listen("127.0.0.1", 0, "a") as data, listen("127.0.0.1", 0, "b") as admin:
            made = config(store={"url": "redis://user:secret@127.0.0.1:6379/0"})
            announce(made, data, admin)
            said = capsys.readouterr().err
            assert f"{url_of(data)}/v1" in said
            assert url_of(admin) in said
        assert "main (http://127.0.0.1:9000)" in said
        assert "each credential is its own tenant" in said
        assert "secret" not in said

    def test_a_log_in_json_has_no_line_that_is_not(
        self, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        hashed = TenantPolicy(tenant="acme", credentials=(Credential(sha256="0" * 64),))
        made = config(log_format="json", store={"url": "redis://user:secret@127.0.0.1:6379/0"})
        configure("info", "json", stream=sys.stderr.buffer)
        with listen("127.0.0.1", 0, "a") as data, listen("127.0.0.1", 0, "b") as admin:
            announce(made, data, admin)
            warn(made, policies({"acme": hashed}))
            proxy, port = url_of(data), url_of(admin)
        where, warned = map(json.loads, capsysbinary.readouterr().err.splitlines())
        del where["timestamp"], warned["timestamp"]
        assert where == {
            "level": "info",
            "event": "serving",
            "proxy": proxy,
            "openai_base_url": f"{proxy}/v1",
            "admin": port,
            "upstreams": {"main": "http://127.0.0.1:9000"},
            "store": "redis://127.0.0.1:6379/0",
            "policies": None,
        }
        assert (warned["level"], warned["event"]) == ("warning", "config-warning")
        assert warned["detail"].startswith("upstream main: credential_env: is not set")

    def test_an_upstream_that_gets_no_key_is_warned_of(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hashed = TenantPolicy(tenant="acme", credentials=(Credential(sha256="0" * 64),))
        warn(config(), policies({"acme": hashed}))
        said = capsys.readouterr().err
        assert said.startswith("warning: upstream main: credential_env: is not set, so callers of")
        assert said.count("\n") == 1
        warn(config(), policies({}))
        assert capsys.readouterr().err == ""

    def test_writers_that_a_caller_can_name_are_warned_of(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        by_gateway = (Credential(gateway="acme"),)
        trusting = TenantPolicy(
            tenant="acme", credentials=by_gateway, semantic=SemanticPolicy(writers=("bot",))
        )
        warn(config(gateway={"header": "x-tenant"}), policies({"acme": trusting}))
        said = capsys.readouterr().err
        assert said.startswith("warning: policy of acme: semantic.writers: goes by the end user")
        assert said.count("\n") == 1

    def test_a_tenant_that_nobody_can_be_is_warned_of(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        warn(config(), policies({"acme": TenantPolicy(tenant="acme")}))
        said = capsys.readouterr().err
        assert said.startswith("warning: policy of acme: credentials: names none, so nobody can")

    @pytest.mark.parametrize(
        ("workers", "store", "warned"),
        [(2, "memory", True), (1, "memory", False), (2, "sqlite:/x/cache.db", False)],
    )
    def test_workers_that_share_no_store_are_warned_of(
        self, capsys: pytest.CaptureFixture[str], workers: int, store: str, warned: bool
    ) -> None:
        warn(config(workers=workers, store={"url": store}), UNDECLARED)
        said = capsys.readouterr().err
        assert said.startswith("warning: store memory: workers: each of the 2 has") is warned
        assert ("--store sqlite:PATH" in said) is warned
