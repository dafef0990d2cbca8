"""One process of the proxy, opened and closed as a whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from asgi_driver import Exchange, request

from trivet.errors import ConfigError
from trivet.exact.hub import HubServer
from trivet.exact.memory import MemoryStore
from trivet.middleware.running.config import GatewayConfig, ServerConfig
from trivet.middleware.running.service import (
    Service,
    gateway_trust,
    open_service,
    policy_source,
    server_secret,
)

SECRET = b"s" * 32


def config(**fields: Any) -> ServerConfig:
    # Port 1 of this machine: nobody listens there.
    upstreams = [{"name": "main", "base_url": "http://127.0.0.1:1"}]
    return ServerConfig.model_validate(
        {"upstreams": upstreams, "store": {"url": "memory"}, **fields}
    )


async def chat(service: Service, *headers: tuple[str, str]) -> Exchange:
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "x"}]}
    asked = request("/v1/chat/completions", body, *headers)
    await service.app(asked.scope, asked.receive, asked.send)
    return asked


class TestOpen:
    @pytest.mark.parametrize("store", ["memory", "sqlite"])
    async def test_it_answers_and_lets_go_of_everything(self, tmp_path: Path, store: str) -> None:
        url = store if store == "memory" else f"sqlite:{tmp_path / 'cache.sqlite'}"
        service = await open_service(config(store={"url": url}), SECRET)
        try:
            assert (await chat(service)).status == 502
            ready = await service.operations.ready()
            assert ready.ok
            assert [part.state for part in ready.components] == ["up"] * 3
            assert b"trivet_requests_total" in await service.operations.metrics()
        finally:
            await service.close()
        await service.close()

    async def test_a_worker_serves_though_its_hub_is_not_there(self, tmp_path: Path) -> None:
        service = await open_service(config(drain=0), SECRET, tmp_path / "hub" / "socket")
        try:
            assert (await chat(service)).status == 502
        finally:
            await service.close()

    async def test_a_worker_answers_its_supervisor_over_the_hub(self, tmp_path: Path) -> None:
        hub = HubServer(tmp_path / "hub" / "socket")
        await hub.start()
        service = await open_service(config(), SECRET, tmp_path / "hub" / "socket")
        try:
            asked = await chat(service)
            assert (asked.status, asked.json["error"]["code"]) == (502, "upstream-refused")
            (answer,) = await hub.call_all("ready", b"null", 5)
            assert b'"ok":true' in answer
        finally:
            await service.close()
            await hub.close()

    async def test_a_declared_gateway_names_the_tenant_and_its_headers_stay_here(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GATEWAY_SECRET", "g" * 20)
        gateway = {"header": "X-Tenant", "secret_header": "X-S", "secret_env": "GATEWAY_SECRET"}
        service = await open_service(config(gateway=gateway), SECRET)
        try:
            assert (await chat(service, ("x-tenant", "acme"), ("x-s", "g" * 20))).status == 502
            assert b'tenant="acme"' in await service.operations.metrics()
        finally:
            await service.close()

    @pytest.mark.parametrize(
        "fields",
        [
            {"policies": "/nonexistent"},
            {"upstreams": [{"name": "a", "base_url": "http://a", "credential_env": "NOT_SET"}]},
            {"gateway": {"header": "X-Tenant"}},
        ],
    )
    async def test_a_config_that_cannot_be_used_opens_nothing(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            await open_service(config(**fields), SECRET)

    async def test_a_reload_checks_what_the_start_checks(self, tmp_path: Path) -> None:
        policy = tmp_path / "acme.yaml"
        policy.write_text("tenant: acme\nupstreams: [main]\n")
        source = policy_source(config(policies=str(tmp_path)), SECRET)
        policy.write_text("tenant: acme\nupstreams: [mian]\n")
        result = source.reload()
        assert (result.ok, result.problems) == (False, 1)
        assert source.current.tenants["acme"].upstreams == ("main",)

    async def test_a_step_that_fails_closes_what_was_opened_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed: list[str] = []

        class Seen(MemoryStore):
            async def close(self) -> None:
                closed.append("store")
                await super().close()

        async def failing(*_: object) -> None:
            raise OSError("no sockets left")

        monkeypatch.setattr("trivet.middleware.running.service.store_of", lambda *_: Seen())
        monkeypatch.setattr("trivet.middleware.running.service.fleet_of", failing)
        with pytest.raises(OSError, match="no sockets left"):
            await open_service(config(), SECRET)
        assert closed == ["store"]


class TestSecret:
    def test_it_is_made_once_and_read_again(self, tmp_path: Path) -> None:
        env = {"XDG_STATE_HOME": str(tmp_path)}
        first = server_secret(config(), env)
        assert server_secret(config(), env) == first
        assert ((tmp_path / "trivet" / "secret").stat().st_mode & 0o077) == 0

    def test_a_file_may_be_named(self, tmp_path: Path) -> None:
        made = config(store={"url": "memory", "secret_file": str(tmp_path / "own")})
        server_secret(made, {})
        assert (tmp_path / "own").exists()


class TestGateway:
    def test_none_is_declared_by_default(self) -> None:
        assert gateway_trust(None) is None

    @pytest.mark.parametrize("secret", ["plain", "sch\xfcssel", "\udcff"])
    def test_its_secret_is_kept_as_a_digest_only(self, secret: str) -> None:
        declared = GatewayConfig(header="X-T", secret_header="X-S", secret_env="S")
        trust = gateway_trust(declared, {"S": f" {secret}\n"})
        assert trust is not None
        raw = secret.encode("utf-8", "surrogateescape")
        assert trust.secret_sha256 == hashlib.sha256(raw).hexdigest()
        assert secret not in repr(trust)

    @pytest.mark.parametrize("env", [{}, {"S": " "}])
    def test_a_secret_that_is_not_set_stops_the_start(self, env: dict[str, str]) -> None:
        declared = GatewayConfig(header="X-T", secret_header="X-S", secret_env="S")
        with pytest.raises(ConfigError) as caught:
            gateway_trust(declared, env)
        assert "environment: S: " in str(caught.value)

    def test_an_address_is_enough(self) -> None:
        trust = gateway_trust(GatewayConfig(header="X-T", peers=("10.0.0.0/8",)), {})
        assert trust is not None
        assert trust.named([(b"x-t", b"acme")], "10.1.2.3") == "acme"
        assert trust.named([(b"x-t", b"acme")], "192.0.2.1") is None
