"""From the credential to the tenant, and never from anything a caller can set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.policies.header_names import API_KEY_HEADERS
from trivet.policies.keygen import key_hash
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import (
    UNDECLARED,
    GatewayTrust,
    Identified,
    PolicySet,
    TenantDirectory,
)

SECRET = b"s" * 32
Raw = tuple[tuple[bytes, bytes], ...]

IDENTITY_HEADERS = frozenset(
    (
        b"apikey",
        b"cf-access-jwt-assertion",
        b"cf-aig-authorization",
        b"cookie",
        b"helicone-auth",
        b"ocp-apim-subscription-key",
        b"private-token",
        b"proxy-authorization",
        b"remote-user",
        b"tailscale-user-login",
        b"x-access-token",
        b"x-amz-security-token",
        b"x-amzn-oidc-data",
        b"x-api-token",
        b"x-auth-key",
        b"x-auth-request-email",
        b"x-auth-token",
        b"x-forwarded-client-cert",
        b"x-forwarded-email",
        b"x-forwarded-user",
        b"x-goog-authenticated-user-email",
        b"x-goog-iap-jwt-assertion",
        b"x-litellm-api-key",
        b"x-ms-client-principal-id",
        b"x-portkey-api-key",
        b"x-rapidapi-key",
    )
)


def raw(**headers: str) -> Raw:
    return tuple(
        (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
    )


def declared(**keys: str) -> PolicySet:
    """A set with one tenant for each name, and its API key."""
    policies = {name: TenantPolicy(tenant=name) for name in keys}
    return PolicySet(
        "v1",
        True,
        policies,
        {key_hash(key): policies[name] for name, key in keys.items()},
        {f"gw-{name}": policies[name] for name in keys},
    )


def directory(policies: PolicySet = UNDECLARED, **fields: Any) -> TenantDirectory:
    return TenantDirectory(policies, SECRET, **fields)


def tenant(found: Identified | None) -> str | None:
    return None if found is None else found.tenant


class TestDeclared:
    def test_a_key_names_its_tenant_in_each_of_the_headers(self) -> None:
        known = directory(declared(acme="k1", other="k2"))
        assert tenant(known.identify(raw(authorization="Bearer k1"))) == "acme"
        assert tenant(known.identify(raw(authorization="bearer  k1 "))) == "acme"
        assert tenant(known.identify(raw(x_api_key="k1"))) == "acme"
        assert tenant(known.identify(raw(api_key="k2"))) == "other"
        assert tenant(known.identify(raw(x_goog_api_key="k2"))) == "other"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"authorization": "Bearer nobody"},
            {"authorization": "k1"},
            {"authorization": "Basic k1"},
            {"authorization": "Bearer"},
            {"authorization": "Bearer "},
            {"authorization": ""},
            {"x_api_key": ""},
            {"cookie": "k1"},
            {"x_trivet_tenant": "acme"},
            {"trivet_tenant": "acme"},
        ],
    )
    def test_anything_else_is_turned_away(self, headers: dict[str, str]) -> None:
        assert directory(declared(acme="k1")).identify(raw(**headers)) is None

    def test_an_empty_key_is_nobodys_even_if_its_hash_is_listed(self) -> None:
        known = directory(declared(acme=""))
        assert known.identify(raw(x_api_key=" ")) is None
        assert known.identify(raw(authorization="Basic eDp5")) is None

    def test_the_upstreams_own_key_may_travel_beside_ours(self) -> None:
        known = directory(declared(acme="k1"))
        asked = raw(authorization="Bearer sk-upstream", x_api_key="k1")
        assert tenant(known.identify(asked)) == "acme"

    def test_keys_of_two_tenants_in_one_request_are_turned_away(self) -> None:
        known = directory(declared(acme="k1", other="k2"))
        assert known.identify(raw(authorization="Bearer k1", x_api_key="k2")) is None
        repeated = ((b"x-api-key", b"k1"), (b"x-api-key", b"k2"))
        assert known.identify(repeated) is None

    def test_the_same_tenant_twice_is_fine(self) -> None:
        known = directory(declared(acme="k1"))
        assert tenant(known.identify(raw(authorization="Bearer k1", x_api_key="k1"))) == "acme"

    def test_a_cookie_makes_another_caller_of_the_same_tenant(self) -> None:
        known = directory(declared(acme="k1"))
        one = known.identify(raw(x_api_key="k1", cookie="a"))
        two = known.identify(raw(x_api_key="k1", cookie="b"))
        assert one is not None
        assert two is not None
        assert one.tenant == two.tenant
        assert one.credential != two.credential
        assert one.others != two.others

    def test_an_operator_can_choose_a_declared_tenant(self) -> None:
        known = directory(declared(acme="k1"))
        found = known.chosen("acme")
        assert found is not None
        assert (found.tenant, found.how) == ("acme", "chosen")
        assert known.chosen("nobody") is None


class TestUndeclared:
    def test_each_credential_is_its_own_tenant(self) -> None:
        known = directory()
        names = {tenant(known.identify(raw(authorization=f"Bearer {n}"))) for n in range(50)}
        assert len(names) == 50
        assert all(str(name).startswith("key-") and len(str(name)) == 36 for name in names)

    def test_the_same_credential_is_the_same_tenant_whatever_else_is_sent(self) -> None:
        one = directory().identify(raw(accept="*/*", authorization="Bearer a"))
        two = directory().identify(raw(authorization="Bearer a", user_agent="x"))
        assert one == two

    @pytest.mark.parametrize("name", sorted(API_KEY_HEADERS | IDENTITY_HEADERS))
    def test_everything_that_may_tell_callers_apart_does(self, name: bytes) -> None:
        known = directory()
        found = {
            tenant(known.identify(headers))
            for headers in (
                (),
                ((name, b"a"),),
                ((name, b"b"),),
                ((b"authorization", b"z"), (name, b"a")),
            )
        }
        assert len(found) == 4

    def test_no_credential_is_anonymous(self) -> None:
        found = directory().identify(raw(accept="*/*"))
        assert found is not None
        assert (found.tenant, found.how) == ("anonymous", "anonymous")

    def test_an_empty_credential_is_not_anonymous(self) -> None:
        assert tenant(directory().identify(raw(authorization=""))) != "anonymous"

    def test_a_value_does_not_slide_into_the_next_header(self) -> None:
        known = directory()
        one = known.identify(((b"api-key", b"ab"), (b"cookie", b"c")))
        two = known.identify(((b"api-key", b"a"), (b"cookie", b"bc")))
        three = known.identify(((b"api-key", b"c"), (b"cookie", b"ab")))
        assert len({tenant(one), tenant(two), tenant(three)}) == 3

    def test_the_order_of_different_headers_makes_no_difference(self) -> None:
        pairs = raw(authorization="a", cookie="b", x_api_key="c")
        assert directory().identify(pairs) == directory().identify(pairs[::-1])

    def test_names_need_the_deployments_secret(self) -> None:
        asked = raw(authorization="Bearer a")
        other = TenantDirectory(UNDECLARED, b"t" * 32)
        assert tenant(directory().identify(asked)) != tenant(other.identify(asked))

    def test_values_that_are_not_text_are_taken(self) -> None:
        assert directory().identify(((b"authorization", b"\xff\x00\xfe"),)) is not None


class TestCredentialScope:
    def test_it_tells_the_api_keys_of_one_tenant_apart(self) -> None:
        policies = declared(acme="k1")
        by_key = {**policies.by_key, key_hash("k2"): policies.tenants["acme"]}
        known = directory(PolicySet("v", True, policies.tenants, by_key, {}))
        found = [known.identify(raw(x_api_key=key)) for key in ("k1", "k2")]
        assert [tenant(one) for one in found] == ["acme", "acme"]
        assert len({one.credential for one in found if one}) == 2

    def test_a_session_changes_it(self) -> None:
        known = directory()
        one = known.identify(raw(x_api_key="k", cookie="a"))
        two = known.identify(raw(x_api_key="k", cookie="b"))
        assert one is not None
        assert two is not None
        assert one.credential != two.credential
        assert one.tenant != two.tenant

    def test_a_key_of_our_own_making_goes_no_further_and_does_not_count(self) -> None:
        known = directory(declared(acme="tvt_one"))
        one = known.identify(raw(authorization="Bearer tvt_one"))
        two = known.identify(raw(authorization="Bearer tvt_one", x_api_key="tvt_other"))
        assert one is not None
        assert two is not None
        assert one.credential == two.credential


class TestMemory:
    def test_a_caller_is_remembered(self) -> None:
        known = directory()
        asked = raw(authorization="Bearer a")
        assert known.identify(asked) is known.identify(asked)

    def test_strangers_are_not_remembered(self) -> None:
        known = directory(declared(acme="k1"))
        known.identify(raw(x_api_key="wrong"))
        assert known._memo == {}

    def test_what_is_remembered_is_bounded(self) -> None:
        known = directory()
        for number in range(1500):
            known.identify(raw(authorization=str(number)))
        assert len(known._memo) == 1024
        known = directory()
        known.identify(raw(authorization="x" * 5000))
        known.identify([(b"x-auth-" + b"x" * 5000, b"")])
        known.identify([(b"auth", b"")] * 100)
        assert known._memo == {}

    def test_a_new_set_forgets_a_revoked_key(self) -> None:
        asked = raw(x_api_key="k1")
        assert directory(declared(acme="k1")).identify(asked) is not None
        assert directory(declared(acme="k2")).identify(asked) is None


class TestGateway:
    PEERS = GatewayTrust("X-Tenant", peers=("10.0.0.0/8", "fd00::1"))
    SECRET = GatewayTrust(
        "X-Tenant", secret_header="X-Secret", secret_sha256=key_hash("open sesame")
    )

    @pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"])
    def test_a_trusted_peer_names_the_tenant(self, peer: str) -> None:
        known = directory(declared(acme="k1"), gateway=self.PEERS)
        found = known.identify(raw(x_tenant="gw-acme"), peer)
        assert found is not None
        assert (found.tenant, found.how) == ("acme", "gateway")

    @given(name=st.text(st.characters(min_codepoint=33, max_codepoint=255), min_size=1))
    def test_no_two_names_are_one(self, name: str) -> None:
        asked = ((b"x-tenant", b" " + name.encode("latin-1") + b"\t"),)
        assert self.PEERS.named(asked, "10.0.0.1") == name

    @pytest.mark.parametrize("peer", ["11.0.0.1", "fd00::2", None, "", "unix:", "10.0.0.1.evil"])
    def test_from_anybody_else_the_header_is_ignored(self, peer: str | None) -> None:
        known = directory(declared(acme="k1"), gateway=self.PEERS)
        assert known.identify(raw(x_tenant="gw-acme"), peer) is None
        asked = raw(x_tenant="gw-other", x_api_key="k1")
        assert tenant(known.identify(asked, peer)) == "acme"

    def test_a_secret_proves_the_gateway(self) -> None:
        known = directory(declared(acme="k1"), gateway=self.SECRET)
        assert tenant(known.identify(raw(x_tenant="gw-acme", x_secret="open sesame"))) == "acme"
        assert known.identify(raw(x_tenant="gw-acme", x_secret="open barley")) is None
        assert known.identify(raw(x_tenant="gw-acme")) is None

    def test_both_proofs_are_needed_where_both_are_declared(self) -> None:
        both = GatewayTrust("x-tenant", "x-secret", key_hash("s"), ("10.0.0.1",))
        known = directory(declared(acme="k1"), gateway=both)
        asked = raw(x_tenant="gw-acme", x_secret="s")
        assert known.identify(asked, "10.0.0.1") is not None
        assert known.identify(asked, "10.0.0.2") is None
        assert known.identify(raw(x_tenant="gw-acme"), "10.0.0.1") is None

    def test_a_trusted_gateways_unknown_tenant_is_turned_away_even_with_a_key(self) -> None:
        known = directory(declared(acme="k1"), gateway=self.PEERS)
        assert known.identify(raw(x_tenant="gw-nobody", x_api_key="k1"), "10.0.0.1") is None

    def test_a_second_header_beside_the_gateways_gains_nothing(self) -> None:
        known = directory(declared(acme="k1", other="k2"), gateway=self.PEERS)
        twice = ((b"x-tenant", b"gw-acme"), (b"x-tenant", b"gw-other"))
        assert known.identify(twice, "10.0.0.1") is None

    def test_without_the_header_the_credential_counts(self) -> None:
        known = directory(declared(acme="k1"), gateway=self.PEERS)
        assert tenant(known.identify(raw(x_api_key="k1"), "10.0.0.1")) == "acme"

    def test_without_policies_the_gateways_name_is_the_tenant(self) -> None:
        known = directory(gateway=self.PEERS)
        assert tenant(known.identify(raw(x_tenant="acme"), "10.0.0.1")) == "acme"

    @pytest.mark.parametrize("name", ["anonymous", "key-00", "gateway-1", "a b", "", "x" * 65])
    def test_without_policies_other_names_become_labels(self, name: str) -> None:
        found = tenant(directory(gateway=self.PEERS).identify(raw(x_tenant=name), "10.0.0.1"))
        assert str(found).startswith("gateway-")
        assert found != name

    def test_whom_the_gateway_names_is_told_of_nobody_else(self) -> None:
        made = directory(gateway=self.PEERS)
        assert made.named_by_gateway(raw(x_tenant="a"), "10.0.0.1") == "a"
        assert made.named_by_gateway(raw(x_tenant="a"), "11.0.0.1") is None
        assert directory().named_by_gateway(raw(x_tenant="a"), "10.0.0.1") is None

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"secret_header": "x-secret"},
            {"secret_sha256": "0" * 64},
            {"peers": ("10.0.0.1",), "secret_header": "x-secret"},
            {"peers": ("nowhere",)},
        ],
    )
    def test_a_gateway_that_proves_nothing_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="The declared gateway cannot be used"):
            GatewayTrust("x-tenant", **fields)
