"""What an engine of our own is told of the tenant."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.errors import ConfigError, RequestError
from trivet.middleware.arrival.headers import RequestHeaders, to_upstream
from trivet.middleware.prefix_tier.signed_tenant import NAME, TenantSigner, tenant_header
from trivet.middleware.running.config import UpstreamConfig, server_config
from trivet.prefix.engine.tenants import caller_of

SECRET = "s" * 32
NOW = 1_800_000_000.0


def upstream(**more: Any) -> UpstreamConfig:
    return UpstreamConfig(name="engine", base_url="http://127.0.0.1:9100", **more)


ENGINE = upstream(engine_secret_env="E")
SIGNER = TenantSigner(
    [ENGINE, upstream().model_copy(update={"name": "x"})], {"E": SECRET}, lambda: NOW
)


def told(headers: Any, body: object = b"{}") -> str:
    (value,) = (value for name, value in SIGNER.signed(ENGINE, headers, body) if name == NAME)
    return str(value.decode())


@pytest.mark.parametrize("tenant", ["acme", "anon-1f", "Ärger; GmbH", "a" * 300])
def test_the_engine_reads_the_tenant_that_was_signed(tenant: str) -> None:
    header = told(tenant_header(ENGINE, tenant))
    assert caller_of(header, None, b"{}", SECRET.encode(), NOW).tenant == tenant


def test_a_request_of_the_proxy_itself_is_no_tenants() -> None:
    assert caller_of(told([]), None, b"{}", SECRET.encode(), NOW).tenant == "(proxy)"


def test_a_body_that_is_still_coming_is_not_signed_for() -> None:
    header = told(tenant_header(ENGINE, "acme"), iter([b"{}"]))
    with pytest.raises(RequestError):
        caller_of(header, None, b"{}", SECRET.encode(), NOW)


def test_other_headers_stay_and_other_upstreams_are_told_nothing() -> None:
    other = upstream().model_copy(update={"name": "x"})
    assert tenant_header(other, "acme") == []
    headers = [(b"a", b"1")]
    assert SIGNER.signed(other, headers, b"") is headers
    assert SIGNER.signed(ENGINE, headers, b"")[0] == (b"a", b"1")


def test_what_a_caller_says_of_its_tenant_goes_nowhere() -> None:
    sent = RequestHeaders([(NAME, b"1;2;3;4;victim"), (b"a", b"1")])
    assert to_upstream(sent, None, frozenset(), plain=False) == [(b"a", b"1")]


@pytest.mark.parametrize("env", [{}, {"E": ""}, {"E": "short"}])
def test_a_secret_that_is_not_there_is_said(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"E: .*'engine'"):
        TenantSigner([ENGINE], env)


class TestOwnUpstream:
    own = UpstreamConfig(name="engine", base_url="http://127.0.0.1", models=("tiny",))

    def test_alone_it_is_asked_for_every_model(self) -> None:
        (only,) = server_config(None, {}, self.own).upstreams
        assert (only.name, only.models) == ("engine", ("*",))

    def test_beside_others_it_is_asked_first_for_its_own(self) -> None:
        others = [{"name": "a", "base_url": "http://a"}]
        found = server_config(None, {"upstreams": others}, self.own).upstreams
        assert [(one.name, one.models) for one in found] == [("engine", ("tiny",)), ("a", ("*",))]

    def test_another_of_its_name_is_refused(self) -> None:
        others = [{"name": "engine", "base_url": "http://a"}]
        with pytest.raises(ConfigError, match="--engine"):
            server_config(None, {"upstreams": others}, self.own)
