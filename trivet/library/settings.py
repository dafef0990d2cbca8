"""What a library user says, checked when it is said: the config, the policies, the secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from trivet.errors import ConfigError
from trivet.library.address import name_of
from trivet.middleware.running.config import (
    GatewayConfig,
    ServerConfig,
    UpstreamConfig,
    server_config,
)
from trivet.middleware.running.service import policy_source, server_secret

TENANT: Final = b"trivet-tenant"


def named(tenant: str) -> bytes:
    """The header value that names a tenant: each name has its own. Those of policies are as they
    are; in others all but letters, digits, `_.-~` is percent-encoded (RFC 3986)."""
    return quote(tenant, safe="", errors="surrogatepass").encode()


"""Names the tenant to a service in this process. What a request brings under this name is
dropped: only who made the transport or the middleware names tenants."""
HERE: Final = ("127.0.0.1", 0)
"""The peer that may name tenants. No socket leads to the service, so no other peer has it."""
DRAIN_S: Final = 1.0
"""How long closing waits for answers that are still being recorded."""
_NOWHERE: Final = "http://upstream.invalid"


@dataclass(frozen=True)
class Plan:
    """What services are opened with. `declared` are the upstreams of the config file."""

    config: ServerConfig
    secret: bytes
    declared: tuple[UpstreamConfig, ...]

    @property
    def guarded(self) -> bool:
        """Whether policies say who may ask what: then nothing goes past the service."""
        return self.config.policies is not None

    def of_declared(self) -> ServerConfig:
        """All declared upstreams, each under a path of its own: see `place_of`."""
        placed = (one.model_copy(update={"prefix": place_of(one)}) for one in self.declared)
        return self.config.model_copy(update={"upstreams": tuple(placed)})

    def of_root(self, root: str) -> ServerConfig:
        """One upstream that is known by its base URL alone."""
        own = UpstreamConfig(name=name_of(root), base_url=root)
        return self.config.model_copy(update={"upstreams": (own,)})


def place_of(upstream: UpstreamConfig) -> str:
    """The path prefix under which a service of the library knows a declared upstream."""
    return f"/to/{upstream.name}"


def plan_of(
    file: str | Path | None,
    store: str | None,
    policies: str | Path | None,
    *,
    named: bool,
    only: tuple[UpstreamConfig, ...] = (),
) -> Plan:
    """The plan. `named`: the app says which tenant a request is of. `only`: these upstreams.

    Raises `ConfigError` for what `trivet serve` would refuse to start with, and for policies that
    name upstreams where the file declares none.
    """
    flags: Mapping[str, Any] = {
        "store.url": store,
        "policies": None if policies is None else Path(policies),
    }
    source = None if file is None else Path(file)
    config = _config(source, flags)
    declared = only or (() if config.upstreams == (_ANY,) else config.upstreams)
    gateway = GatewayConfig(header=TENANT.decode(), peers=(HERE[0],)) if named else None
    config = config.model_copy(
        update={"gateway": gateway, "drain": DRAIN_S, "upstreams": declared or (_ANY,)}
    )
    secret = server_secret(config)
    policy_source(config, secret)
    return Plan(config, secret, declared)


_ANY: Final = UpstreamConfig(name="any", base_url=_NOWHERE)


def _config(file: Path | None, flags: Mapping[str, Any]) -> ServerConfig:
    """The file's config; where it declares no upstream, with `_ANY` in their place."""
    try:
        return server_config(file, flags)
    except ConfigError as error:
        if any(one.field != "upstreams" for one in error.problems):
            raise
    return server_config(file, {**flags, "upstreams": [_ANY.model_dump()]})
