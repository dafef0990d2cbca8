"""What a request header is for, told by its name: transport, who asks, or the answer.

A header that goes upstream may shape the answer there, so what is not known as transport counts:
a header too many in the key costs a hit, one too few gives a caller's answer to another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

API_KEY_HEADERS: Final = frozenset((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"))
"""Where callers put API keys. A request that repeats one of these headers must be refused: the
upstream may read another of the two than we do."""

_HTTP = b"""
    accept accept-encoding content-length content-type date expect host max-forwards priority via
    cdn-loop dnt downlink dpr ect origin referer rtt save-data sec-gpc sec-purpose
    sec-websocket-key upgrade-insecure-requests user-agent
    idempotency-key x-idempotency-key x-session-affinity
    grpc-timeout request-timeout x-request-timeout x-server-timeout x-retry-attempt x-retry-count
"""
_TRACING = b"""
    b3 baggage elastic-apm-traceparent grpc-trace-bin jaeger-debug-id langsmith-trace newrelic
    ot-tracer-sampled ot-tracer-spanid ot-tracer-traceid request-context singularityheader
    sentry-trace sw8 sw8-correlation sw8-x traceparent tracestate uber-trace-id
    x-cloud-trace-context x-dynatrace x-honeycomb-trace x-ot-span-context x-portkey-span-name
"""
_PROXIES = b"""
    client-ip forwarded true-client-ip x-client-ip x-cluster-client-ip x-forwarded-for
    x-forwarded-port x-forwarded-proto x-forwarded-protocol x-forwarded-scheme x-forwarded-server
    x-forwarded-ssl x-original-forwarded-for x-real-ip x-scheme
    connect-time total-route-time x-queue-start x-request-start x-timer x-varnish
    cf-connecting-ip cf-connecting-ipv6 cf-connecting-o2o cf-ew-via cf-pseudo-ipv4 cf-ray cf-visitor
    cloudfront-forwarded-proto cloudfront-viewer-address cloudfront-viewer-http-version
    cloudfront-viewer-tls x-amz-cf-id
    x-amzn-tls-cipher-suite x-amzn-tls-version amz-sdk-invocation-id amz-sdk-request
    akamai-grn akamai-origin-hop fastly-client fastly-client-ip fastly-ff fastly-ssl
    fly-client-ip fly-dispatch-start fly-forwarded-port fly-forwarded-proto fly-forwarded-ssl
    fly-traceparent fly-tracestate x-nf-client-connection-ip x-vercel-forwarded-for x-vercel-id
    x-vercel-proxied-for
    x-appengine-https x-appengine-request-log-id x-appengine-timeout-ms
    arr-disable-session-affinity x-arr-log-id x-azure-clientip x-azure-ref x-azure-requestchain
    x-azure-socketip x-client-port
    l5d-ctx-deadline l5d-ctx-trace l5d-remote-ip l5d-reqid
    x-envoy-attempt-count x-envoy-decorator-operation x-envoy-downstream-service-node
    x-envoy-expected-rq-timeout-ms x-envoy-external-address x-envoy-force-trace x-envoy-internal
    x-envoy-is-timeout-retry x-envoy-max-retries x-envoy-peer-metadata x-envoy-peer-metadata-id
    x-envoy-retry-on x-envoy-upstream-rq-per-try-timeout-ms x-envoy-upstream-rq-timeout-ms
"""
_CLIENTS = b"""
    anthropic-dangerous-direct-browser-access sec-ch-lang x-goog-api-client x-ms-date
    x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os x-stainless-package-version
    x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime
    x-stainless-runtime-version x-stainless-timeout
"""
TRANSPORT: Final = frozenset((_HTTP + _TRACING + _PROXIES + _CLIENTS).split())
"""Names known one by one; `is_transport` knows families too."""
_TRANSPORT_KIND: Final = re.compile(
    rb"(cloudfront-is|sec-ch|sec-fetch|x-b3|x-datadog|x-instana|x-newrelic|x-stainless)-"
    rb"|.*(^|[-_])(request|trace|span|correlation)[-_]?id$"
)
"""Families that grow; a name among them that tells of more than transport is no transport."""

_IDENTITY: Final = re.compile(
    rb"auth|api-?key|apikey|access-?key|token|secret|cookie|session|user|principal|identity|email"
    rb"|client-cert|account|subscription-key|(^|-)jwt|oidc|(^|-)key$"
)
_SCOPE: Final = re.compile(
    rb"tenant|organi[sz]ation|(^|[-_])orgs?([-_]|$)|customer|client[-_]?(id|dn|cert|name)|consumer"
    rb"|subject|role|group|permission|scope|claim|credential|signature|realm|workspace|project"
    rb"|team|department|company|owner|member|person|region|locale|lang(uage)?([-_]|$)"
    rb"|on-behalf|impersonat"
)

HOP_BY_HOP: Final = frozenset(
    b"""connection http2-settings keep-alive proxy-authenticate proxy-authorization proxy-connection
    te trailer transfer-encoding upgrade""".split()
)
"""Fields that end at the next hop (RFC 9110 section 7.6.1)."""
_WISHES: Final = frozenset((b"cache-control", b"pragma"))

_STEERING: Final = (
    b"anthropic-",
    b"openai-",
    b"x-goog-",
    # Gateways and clouds steer the answer by headers of theirs: model, guardrails, routing.
    b"cf-aig-",
    b"helicone-",
    b"x-amzn-bedrock-",
    b"x-litellm-",
    b"x-ms-",
    b"x-portkey-",
)
_STEERING_NAMES: Final = frozenset(
    (
        # Declared tenants may still send an upstream's session along.
        b"cookie",
        b"accept-language",
        b"api-version",
        # An upstream that is a gateway itself picks the model that answers by these.
        b"azureml-model-deployment",
        b"azureml-model-group",
        b"extra-parameters",
    )
)

_FIELD_WEIGHT: Final = 160
"""Bytes of a pair of two short `bytes` in CPython 3.11, with its place in a tuple."""


def weight(fields: Iterable[tuple[bytes, bytes]]) -> int:
    """Bytes of memory that header fields take, about: many empty ones are not light."""
    return sum([len(name) + len(value) + _FIELD_WEIGHT for name, value in fields])


@lru_cache(maxsize=512)
def is_transport(name: bytes) -> bool:
    """Whether a header of that name only tells how the request travels: tracing, timing, the
    client's software, the hops before. It neither shapes an answer nor tells callers apart."""
    if name in TRANSPORT:
        return True
    found = _TRANSPORT_KIND.match(name) is not None
    return found and not _IDENTITY.search(name) and not _SCOPE.search(name)


@lru_cache(maxsize=512)
def is_identity(name: bytes) -> bool:
    """Whether a header of that name may tell callers apart: keys, sessions, users of a proxy.

    By the words in its name, because every gateway has headers of its own. Their values are in
    the key by way of the caller's credential scope.
    """
    return name not in TRANSPORT and _IDENTITY.search(name) is not None


@lru_cache(maxsize=512)
def is_steering(name: bytes) -> bool:
    """Whether a header of that name is known to shape answers."""
    known = name in _STEERING_NAMES or name.startswith(_STEERING)
    return known and name not in API_KEY_HEADERS and not is_transport(name)


@lru_cache(maxsize=512)
def is_keyed(name: bytes) -> bool:
    """Whether a header of that name belongs into the key: all that go upstream do, but for
    transport, wishes to caches, and what `is_identity` finds (see there)."""
    if is_steering(name):
        return True
    unsent = name in HOP_BY_HOP or name.startswith(b"trivet-")
    return not (unsent or name in _WISHES or is_transport(name) or is_identity(name))
