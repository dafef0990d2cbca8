"""Telling an engine of our own whose request it is, signed over whatever the caller sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from trivet.errors import ConfigError, Problem
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.running.config import UpstreamConfig
from trivet.prefix.engine.tenants import HEADER, MIN_SECRET, sign

NAME = HEADER.encode()
_PROXY = "(proxy)"
"""Whose requests those of the proxy itself are; no tenant id has brackets."""


class TenantSigner:
    """Signs requests to the upstreams that name an `engine_secret_env`.

    Raises `ConfigError` for a secret that is not set or too short.
    """

    def __init__(
        self,
        upstreams: Sequence[UpstreamConfig],
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        named = ((upstream, upstream.engine_secret_env) for upstream in upstreams)
        self._secrets = {
            upstream.name: _secret(upstream, name, env) for upstream, name in named if name
        }
        self._clock = clock

    def signed(self, upstream: UpstreamConfig, headers: RawHeaders, body: object) -> RawHeaders:
        """The headers with the tenant's name in them signed for `body`, just before they are sent.

        A body that is still coming is not signed: no route of the engine that generates takes such
        a signature, and those are read whole by the proxy.
        """
        secret = self._secrets.get(upstream.name)
        if secret is None:
            return headers
        tenant = next((value for name, value in headers if name == NAME), _PROXY.encode())
        whole = body if isinstance(body, bytes) else b""
        value = sign(secret, tenant.decode("utf-8", "surrogatepass"), self._clock(), whole)
        return [*(item for item in headers if item[0] != NAME), (NAME, value.encode("ascii"))]


def tenant_header(upstream: UpstreamConfig, tenant: str) -> RawHeaders:
    """What a request for `tenant` carries until it is signed; nothing for other upstreams."""
    if upstream.engine_secret_env is None:
        return []
    return [(NAME, tenant.encode("utf-8", "surrogatepass"))]


def _secret(upstream: UpstreamConfig, name: str, env: Mapping[str, str]) -> bytes:
    text = env.get(name, "").strip()
    if len(text) >= MIN_SECRET:
        return text.encode("utf-8", "surrogateescape")
    what = f"has fewer than {MIN_SECRET} characters" if text else "is not set"
    message = f"{what}, and the upstream {upstream.name!r} is told its tenants signed with it"
    raise ConfigError(Problem("environment", 0, 0, name, message))
