"""What a header is for, told by its name: what is not known as transport counts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trivet.policies.header_names import (
    API_KEY_HEADERS,
    HOP_BY_HOP,
    TRANSPORT,
    is_identity,
    is_keyed,
    is_steering,
    is_transport,
)

TELLING = """
    x-tenant-id x-org-id x-organization-id x-workspace-id x-project-id x-customer-id x-client-id
    x-client-dn ssl-client-subject-dn x-ssl-client-s-dn x-ssl-client-verify x-forwarded-groups
    x-roles x-scopes x-permissions x-on-behalf-of from x-impersonate x-actor x-subject x-sub x-uid
    x-person-id x-employee-id x-device-id x-login x-member-id x-owner x-name x-company x-group
    x-role x-team x-consumer-id x-consumer-username x-forwarded-preferred-username
    x-goog-iap-jwt-assertion x-amzn-oidc-data x-amzn-mtls-clientcert-subject
    x-ms-client-principal-name tailscale-user-login x-credential x-passport x-bearer x-signature
    x-api-secret x-hmac x-sso x-saml x-kerberos x-visitor x-guest x-persona x-context x-realm
    x-claims x-department x-region accept-language x-locale x-account x-forwarded-host
    x-original-url x-envoy-original-dst-host cf-access-client-id cf-ipcountry fly-region
    l5d-client-id x-codex-turn-state http-referer x-title if-none-match range
"""

TRAVELLING = """
    accept accept-encoding content-length content-type date expect host origin referer user-agent
    via forwarded x-forwarded-for x-forwarded-proto x-forwarded-port x-real-ip true-client-ip
    cf-connecting-ip cf-ray cdn-loop x-amz-cf-id cloudfront-is-mobile-viewer
    cloudfront-viewer-address traceparent tracestate baggage b3 x-b3-traceid x-b3-spanid
    sentry-trace uber-trace-id newrelic x-newrelic-id x-datadog-trace-id x-datadog-parent-id
    x-datadog-sampling-priority x-instana-t x-amzn-trace-id x-amzn-requestid x-cloud-trace-context
    x-request-id x-requestid request-id x-client-request-id x-ms-client-request-id
    x-correlation-id correlationid x-trace-id helicone-request-id x-portkey-trace-id
    fly-request-id x-railway-request-id x-appgw-trace-id x-vercel-id x-azure-ref x-arr-log-id
    x-request-start x-queue-start x-envoy-external-address x-envoy-attempt-count
    x-envoy-expected-rq-timeout-ms l5d-reqid langsmith-trace idempotency-key x-idempotency-key
    x-session-affinity x-stainless-lang x-stainless-os x-stainless-retry-count x-stainless-timeout
    sec-ch-ua sec-ch-ua-platform sec-fetch-mode sec-gpc dnt priority
    anthropic-dangerous-direct-browser-access x-goog-api-client
"""


@pytest.mark.parametrize("name", TELLING.split())
def test_what_may_tell_callers_or_answers_apart_is_in_the_key(name: str) -> None:
    assert is_keyed(name.encode()) or is_identity(name.encode())
    assert not is_transport(name.encode())


@pytest.mark.parametrize("name", TRAVELLING.split())
def test_how_a_request_travels_is_in_no_key_and_names_nobody(name: str) -> None:
    assert is_transport(name.encode())
    assert not is_keyed(name.encode())
    assert not is_identity(name.encode())


@pytest.mark.parametrize(
    "name",
    [
        b"x-datadog-tenant",
        b"x-stainless-project",
        b"x-b3-user",
        b"x-instana-role",
        b"sec-ch-user-group",
        b"x-customer-request-id",
        b"x-auth-request-id",
    ],
)
def test_a_family_of_transport_takes_in_no_name_that_tells_of_more(name: bytes) -> None:
    assert is_keyed(name) or is_identity(name)
    assert not is_transport(name)


@pytest.mark.parametrize(
    "name",
    [*sorted(HOP_BY_HOP), b"cache-control", b"pragma", b"trivet-tag", b"trivet-route"],
)
def test_what_ends_here_or_steers_caches_is_in_no_key(name: bytes) -> None:
    assert not is_keyed(name)
    assert not is_transport(name), "it decides, so the quick lane has to compare it"


@pytest.mark.parametrize("name", sorted(API_KEY_HEADERS))
def test_api_keys_are_in_the_credential_scope_and_not_among_the_headers(name: bytes) -> None:
    assert is_identity(name)
    assert not is_keyed(name)


NAMES = st.text(st.sampled_from("abcdefxyz-_019"), min_size=1, max_size=20).map(str.encode)


@given(NAMES)
@example(b"x")
@example(b"helicone-anything")
def test_a_name_that_nobody_knows_is_in_the_key(name: bytes) -> None:
    known = is_transport(name) or is_identity(name) or name in HOP_BY_HOP
    assert is_keyed(name) or known


@pytest.mark.parametrize("name", sorted(TRANSPORT))
def test_a_name_on_the_list_of_transport_is_transport_wherever_it_is_asked(name: bytes) -> None:
    assert name == name.lower().strip()
    assert is_transport(name)
    assert not is_identity(name)
    assert not is_steering(name)
    assert not is_keyed(name)
