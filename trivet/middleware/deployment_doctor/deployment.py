"""What the doctor is to look at: the same config and flags that `trivet serve` gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trivet.middleware.running.config import ServerConfig, UpstreamConfig, server_config

_NONE = UpstreamConfig(name="none", base_url="http://127.0.0.1:1")
"""Stands in where no upstream is named: the rest of a deployment can be looked at without."""
_ANY = frozenset({"0.0.0.0", "::", "[::]", ""})


@dataclass(frozen=True, slots=True)
class Given:
    """The flags beside --config."""

    policies: Path | None = None
    store: str | None = None
    upstreams: tuple[str, ...] = ()
    admin: str | None = None
    admin_key: str | None = field(default=None, repr=False)
    models: bool = True


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is looked at."""

    config: ServerConfig
    config_file: Path | None
    upstreams: tuple[UpstreamConfig, ...]
    """Those that were named; none where neither a config nor a flag names any."""
    admin: str
    """URL of the admin port."""
    admin_named: bool
    admin_key: str | None = field(repr=False)
    models: bool
    """Whether calibrations are compared with the models that run."""
    env: Mapping[str, str] = field(repr=False)


def deployment_of(
    config_file: Path | None,
    given: Given,
    env: Mapping[str, str] = os.environ,
) -> Deployment:
    """The deployment of these flags. Raises `ConfigError`."""
    overrides: dict[str, object] = {"policies": given.policies, "store.url": given.store}
    upstreams = given.upstreams
    if upstreams:
        overrides["upstreams"] = [
            {"name": "upstream" if at == 0 else f"upstream-{at + 1}", "base_url": url}
            for at, url in enumerate(upstreams)
        ]
    none_named = config_file is None and not upstreams
    config = server_config(config_file, overrides, _NONE if none_named else None)
    return Deployment(
        config=config,
        config_file=config_file,
        upstreams=() if none_named else config.upstreams,
        admin=given.admin or _admin_url(config),
        admin_named=given.admin is not None,
        admin_key=given.admin_key or None,
        models=given.models,
        env=env,
    )


def _admin_url(config: ServerConfig) -> str:
    host = "127.0.0.1" if config.admin_host in _ANY else config.admin_host
    shown = f"[{host}]" if ":" in host else host
    port = config.port + 1 if config.admin_port is None else config.admin_port
    return f"http://{shown}:{min(port, 65535)}"
