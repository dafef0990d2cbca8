"""What one server is told: upstreams, store, ports, limits. From `--config` and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator

from trivet.errors import ConfigError
from trivet.exact.store_url import check_store_url
from trivet.middleware.running.config_file import FLAGS, placed, problems_of, read_config
from trivet.policies.model_base import Seconds, Section, Size
from trivet.policies.nodes import Source

_API_PATHS = ("/completions", "/responses", "/embeddings", "/messages")
DialectFamily = Literal["openai", "anthropic"]
CacheKind = Literal[
    "auto",
    "none",
    "anthropic",
    "openai",
    "gemini",
    "bedrock",
    "deepseek",
    "vllm",
    "sglang",
    "llamacpp",
    "tensorrt",
    "trivet",
]
RoutingKind = Literal["affinity", "least-load", "round-robin"]


def state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where the default store and the server secret live (XDG Base Directory, state home)."""
    home = env.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "trivet"


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    # `port` raises ValueError for what is not one.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("an upstream is an http:// or https:// URL")
    if "@" in parts.netloc:
        raise ValueError("an upstream URL has no user and no password: use credential_env")
    if parts.path.rstrip("/").endswith(_API_PATHS):
        raise ValueError("an upstream is a base URL: leave the API's own path out")
    if parts.query or parts.fragment:
        raise ValueError("an upstream URL has no query and no fragment")
    return value.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(_http_url)]


class ReplicaConfig(Section):
    """One server of several behind one upstream name."""

    url: BaseUrl = Field(description="Its base URL, with or without the closing /v1.")
    kv_events: str | None = Field(
        default=None,
        pattern=r"^tcp://[!-~]+$",
        description="vLLM's ZeroMQ endpoint of KV events; absent: what it holds is estimated.",
    )


def _replica(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


Replica = Annotated[ReplicaConfig, BeforeValidator(_replica)]


class UpstreamConfig(Section):
    """One place to forward to."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Shown in metrics. A provider's name (openai, anthropic, ...) helps to price.",
    )
    base_url: BaseUrl = Field(description="With or without the closing /v1.")
    dialects: tuple[DialectFamily, ...] = Field(
        default=("openai", "anthropic"), description="Families of APIs that it speaks."
    )
    models: tuple[str, ...] = Field(
        default=("*",), description="Models that go here (wildcards); the first match wins."
    )
    prefix: str = Field(
        default="",
        pattern=r"^(/[!-~]*)?$",
        description="Requests under this path go here too, with the prefix cut off.",
    )
    credential_env: str | None = Field(
        default=None,
        description="Environment variable with the key to use; absent: the caller's own.",
    )
    engine_secret_env: str | None = Field(
        default=None,
        description="For a `trivet engine`: environment variable with the secret that both share. "
        "The engine is told each request's tenant, signed with it, and keeps prefixes apart.",
    )
    cache: CacheKind = Field(
        default="auto",
        description="Whose prefix cache is behind it. `auto` knows the hosted APIs by their host "
        "and a `trivet engine` by `engine_secret_env`; name the servers you run yourself.",
    )
    slots: int | None = Field(
        default=None, ge=1, description="llama.cpp: slots (-np). Tenants get one each."
    )
    replicas: tuple[Replica, ...] = Field(
        default=(), description="Further servers with the same model: URLs, or url and kv_events."
    )
    routing: RoutingKind = Field(
        default="affinity", description="How a replica is chosen where there are several."
    )
    stream_usage: Literal["inject", "leave"] = Field(
        default="inject",
        description="Ask for usage in recorded OpenAI streams, and hide it from callers who did "
        "not; `leave` for servers that refuse stream_options.",
    )
    connect_timeout: Seconds = Field(default=5.0, description="Longest wait for a connection.")
    read_timeout: Seconds = Field(default=600.0, description="Longest silence of the upstream.")

    @property
    def root(self) -> str:
        """The URL that request paths (`/v1/...`) are appended to."""
        return self.base_url.removesuffix("/v1")


class GatewayConfig(Section):
    """A gateway in front that has authenticated the caller and names the tenant in a header.

    It proves itself by a secret, by its address, or by both where both are given.
    """

    header: str = Field(description="Header that names the tenant.")
    secret_header: str | None = Field(
        default=None, description="Header in which it sends the secret."
    )
    secret_env: str | None = Field(
        default=None, description="Environment variable with the secret that it sends."
    )
    peers: tuple[str, ...] = Field(default=(), description="Addresses or networks that it has.")


def _store_url(value: str) -> str:
    check_store_url(value)
    return value


class StoreConfig(Section):
    """Bounds and budgets of the exact store."""

    url: Annotated[str, AfterValidator(_store_url)] = Field(
        default="sqlite:", description="memory | sqlite:PATH | redis://HOST:PORT/DB"
    )
    max_bytes: Size = Field(default=1 << 30, description="Bytes of all entries.")
    max_entries: int = Field(default=1_000_000, ge=1, description="Entries of all tenants.")
    front_bytes: Size = Field(
        default=64 << 20, description="Memory in front of the store; 0: none."
    )
    front_entries: int = Field(default=100_000, ge=0, description="Entries in that memory.")
    budget: Seconds = Field(
        default=0.05,
        description="Longest wait for a stored answer; up to five of them for a new one to be "
        "stored.",
    )
    encrypt: bool = Field(
        default=False, description="Encrypt entries with a key per tenant (extra `encryption`)."
    )
    secret_file: Path | None = Field(
        default=None,
        description="Where the secret is, unless TRIVET_SECRET holds it; `secret` in the state "
        "directory when absent.",
    )


class FloodConfig(Section):
    """What is done while the caches answer far less than usual: after a flush, or a cold start."""

    max_calls: int | None = Field(
        default=None,
        ge=1,
        description="Model calls at once, of each worker, while the caches are cold, for requests "
        "that a cache may answer; absent: no limit.",
    )
    queue: int = Field(
        default=64, ge=0, description="Requests that wait for such a call; 0: none, they get 503."
    )
    wait: Seconds = Field(default=10.0, description="Longest wait for such a call; then 503.")
    below: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="Cold is a hit share below this part of its trailing baseline.",
    )
    baseline: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="The hit share to expect until one was measured: guards a cold start.",
    )
    window: Seconds = Field(default=3600.0, gt=0, description="Half-life of the trailing baseline.")


class ServerConfig(Section):
    """The whole server."""

    upstreams: tuple[UpstreamConfig, ...] = Field(min_length=1)
    host: str = Field(default="127.0.0.1", description="Address that callers reach.")
    port: int = Field(default=8080, ge=0, le=65535, description="Its port; 0: any that is free.")
    admin_host: str = Field(default="127.0.0.1", description="Address of the admin port.")
    admin_port: int | None = Field(
        default=None, ge=0, le=65535, description="The port after `port` when absent."
    )
    admin_key_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the admin key in hex; TRIVET_ADMIN_KEY wins over it.",
    )
    policies: Path | None = Field(
        default=None,
        description="Directory of policy files; absent: each credential is a tenant of its own.",
    )
    gateway: GatewayConfig | None = None
    store: StoreConfig = StoreConfig()
    flood: FloodConfig = FloodConfig()
    workers: int = Field(default=1, ge=1, le=64, description="Processes that answer callers.")
    max_body: Size = Field(default=32 << 20, description="Largest body of a request; more is 413.")
    body_timeout: Seconds = Field(
        default=30.0,
        gt=0,
        description="Longest silence within a body; in all, a body may be waited for this long and "
        "a second for each 16 KiB of it.",
    )
    header_timeout: Seconds = Field(
        default=20.0, gt=0, description="Longest time for a request's head."
    )
    collapse_wait: Seconds = Field(
        default=120.0, description="How long a follower waits for a leader's first byte."
    )
    drain: Seconds = Field(default=30.0, description="How long SIGTERM waits for open answers.")
    log_format: Literal["console", "json"] = Field(
        default="console", description="Lines for people, or one JSON object each."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is logged."
    )
    log_requests: bool = Field(default=False, description="A line for each request.")
    tracing: bool = Field(
        default=False,
        description="OpenTelemetry spans, by the OTEL_* variables (extra `otel`).",
    )
    traffic_log: Path | None = Field(
        default=None,
        description="Where requests of tenants with `semantic.record` or `prefix.record` are "
        "recorded, for `trivet eval replay`, `trivet prefix report` and `plan`, and `trivet warm`; "
        "traffic.jsonl in the state directory when absent.",
    )

    @field_validator("upstreams")
    @classmethod
    def _unique_names(cls, value: tuple[UpstreamConfig, ...]) -> tuple[UpstreamConfig, ...]:
        names = [upstream.name for upstream in value]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise ValueError(f"two upstreams have the name {doubled!r}")
        return value


def server_config(
    file: Path | None, overrides: Mapping[str, Any], own: UpstreamConfig | None = None
) -> ServerConfig:
    """The file's settings with the flags' over them. Raises `ConfigError`.

    Overrides whose value is None are left out; nested ones are named `store.url`. `own` is an
    upstream beside the declared ones, asked first for its models; where there are no others, it is
    asked for all.
    """
    source = read_config(file) if file else Source(FLAGS, {}, {})
    settings: dict[str, Any] = dict(source.value)
    if file and isinstance(settings.get("policies"), str):
        # As written in the file, so from where the file is.
        settings["policies"] = str(file.parent / settings["policies"])
    if file and isinstance(settings.get("traffic_log"), str):
        settings["traffic_log"] = str(file.parent / settings["traffic_log"])
    flagged = {name: value for name, value in overrides.items() if value is not None}
    for name, value in flagged.items():
        section, _, key = name.rpartition(".")
        if not section:
            settings[key] = value
        elif isinstance(settings.get(section) or {}, dict):
            settings[section] = {**(settings.get(section) or {}), key: value}
    if own is not None and not settings.get("upstreams"):
        settings["upstreams"] = [own.model_copy(update={"models": ("*",)}).model_dump()]
        own = None
    if not settings.get("upstreams"):
        raise ConfigError(placed(source, ("upstreams",), _no_upstream(settings)))
    try:
        config = ServerConfig.model_validate(settings)
    except ValidationError as error:
        found = [*source.problems, *problems_of(source, flagged, error, ServerConfig)]
        raise ConfigError(*sorted(found, key=lambda one: (one.line, one.column))) from None
    if source.problems:
        raise ConfigError(*source.problems)
    return config if own is None else _beside(config, own, source)


def _no_upstream(settings: Mapping[str, Any]) -> str:
    message = "no upstream is declared: give --upstream URL, or list them in the config file"
    meant = " under `upstreams` (it says `upstream`)" if "upstream" in settings else ""
    return message + meant


def _beside(config: ServerConfig, own: UpstreamConfig, source: Source) -> ServerConfig:
    if any(upstream.name == own.name for upstream in config.upstreams):
        message = f"the name {own.name!r} is that of the upstream of --engine"
        raise ConfigError(placed(source, ("upstreams",), message))
    return config.model_copy(update={"upstreams": (own, *config.upstreams)})
