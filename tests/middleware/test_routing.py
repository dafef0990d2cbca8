"""Which upstream a request goes to."""

from __future__ import annotations

import pytest

from trivet.errors import ConfigError, RequestError
from trivet.middleware.arrival.routing import Routing, keyless_upstreams
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import Credential, TenantPolicy


def upstream(name: str, **fields: object) -> UpstreamConfig:
    return UpstreamConfig.model_validate({"name": name, "base_url": f"http://{name}", **fields})


ACME = TenantPolicy(tenant="acme")


class TestChoose:
    def test_the_first_upstream_that_serves_the_model_wins(self) -> None:
        routing = Routing([upstream("a", models=["gpt-*"]), upstream("b"), upstream("c")])
        assert routing.choose(ACME, "openai", "gpt-9", None).config.name == "a"
        assert routing.choose(ACME, "openai", "other", None).config.name == "b"

    def test_an_upstream_of_another_family_is_passed_over(self) -> None:
        routing = Routing([upstream("a", dialects=["openai"]), upstream("b")])
        assert routing.choose(ACME, "anthropic", "m", None).config.name == "b"

    def test_an_upstream_that_the_tenant_may_not_use_is_passed_over(self) -> None:
        routing = Routing([upstream("a"), upstream("b")])
        limited = TenantPolicy(tenant="acme", upstreams=("b",))
        assert routing.choose(limited, "openai", "m", None).config.name == "b"

    def test_a_model_that_the_tenant_may_not_name_is_a_403(self) -> None:
        limited = TenantPolicy(tenant="acme", models=("gpt-*",))
        with pytest.raises(RequestError) as caught:
            Routing([upstream("a")]).choose(limited, "openai", "m", None)
        assert (caught.value.status, caught.value.field) == (403, "model")

    def test_a_model_that_nobody_serves_is_a_404(self) -> None:
        with pytest.raises(RequestError) as caught:
            Routing([upstream("a", models=["x"])]).choose(ACME, "openai", "\ud800", None)
        assert (caught.value.status, caught.value.field) == (404, "model")
        assert caught.value.message.isascii()

    def test_a_named_upstream_is_the_only_one_asked(self) -> None:
        routing = Routing([upstream("a"), upstream("b", prefix="/b", models=["x"])])
        named = routing.by_prefix("/b/v1/models")
        with pytest.raises(RequestError):
            routing.choose(ACME, "openai", "m", named)
        assert routing.choose(ACME, "openai", "x", named).config.name == "b"


class TestByPrefix:
    def test_a_prefix_is_whole_segments(self) -> None:
        routing = Routing([upstream("a", prefix="/azure/")])
        found = routing.by_prefix("/azure/v1/models")
        assert found is not None
        assert found.config.name == "a"
        assert routing.by_prefix("/azurefoo/v1/models") is None
        assert routing.by_prefix("/azure") is None

    def test_upstreams_without_a_prefix_are_never_named(self) -> None:
        assert Routing([upstream("a")]).by_prefix("/v1/models") is None


class TestKeyless:
    KNOWN = TenantPolicy(tenant="acme", credentials=(Credential(sha256="0" * 64),))

    def test_an_upstream_that_gets_no_key_is_named_with_what_to_do(self) -> None:
        (found,) = keyless_upstreams({"acme": self.KNOWN}, [upstream("main")])
        assert (found.file, found.field) == ("upstream main", "credential_env")
        assert found.message == (
            "is not set, so callers of acme with a key of `trivet keygen` reach it without any "
            "key; fine if it needs none."
        )

    def test_one_sentence_names_no_more_than_three_tenants(self) -> None:
        tenants = {name: self.KNOWN.model_copy(update={"tenant": name}) for name in "dcba"}
        (found,) = keyless_upstreams(tenants, [upstream("main")])
        assert "callers of a, b, c, ... with" in found.message

    @pytest.mark.parametrize(
        ("policy", "fields"),
        [
            (KNOWN, {"credential_env": "KEY"}),
            (KNOWN.model_copy(update={"upstreams": ("other",)}), {}),
            (TenantPolicy(tenant="acme", credentials=(Credential(gateway="acme"),)), {}),
            (TenantPolicy(tenant="acme"), {}),
        ],
    )
    def test_other_upstreams_and_tenants_are_not(
        self, policy: TenantPolicy, fields: dict[str, str]
    ) -> None:
        assert keyless_upstreams({"acme": policy}, [upstream("main", **fields)]) == []


class TestFirst:
    def test_the_first_of_the_family_that_the_tenant_may_use(self) -> None:
        routing = Routing([upstream("a", dialects=["anthropic"]), upstream("b"), upstream("c")])
        limited = TenantPolicy(tenant="acme", upstreams=("c",))
        assert routing.first(ACME, "openai", None).config.name == "b"
        assert routing.first(limited, "openai", None).config.name == "c"

    def test_a_tenant_without_an_upstream_is_a_403(self) -> None:
        nothing = TenantPolicy(tenant="acme", upstreams=())
        with pytest.raises(RequestError) as caught:
            Routing([upstream("a")]).first(nothing, "openai", None)
        assert caught.value.status == 403


class TestCredential:
    def test_it_is_read_from_the_environment_once(self) -> None:
        env = {"KEY": " sk-1\n"}
        routing = Routing([upstream("a", credential_env="KEY")], env)
        env["KEY"] = "sk-2"
        assert routing.first(ACME, "openai", None).credential == b"sk-1"

    @pytest.mark.parametrize(
        "value", [None, "", "  ", "sk\r\nx: y", "schl\xfcssel", "sk-\U0001f511"]
    )
    def test_one_that_no_header_can_carry_stops_the_start_and_is_not_shown(
        self, value: str | None
    ) -> None:
        env = {} if value is None else {"KEY": value}
        with pytest.raises(ConfigError) as caught:
            Routing([upstream("a", credential_env="KEY")], env)
        assert "KEY" in str(caught.value)
        assert value is None or not value.strip() or value not in str(caught.value)
