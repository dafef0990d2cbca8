"""What the owner of a tenant writes down: frozen models, one for each section of a policy file.

Unknown fields are refused. See `model_base` for how durations and sizes are written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trivet.messages import Api
from trivet.policies.model_base import Seconds, Section, Size
from trivet.policies.prefix_model import PrefixPolicy
from trivet.policies.semantic_model import SemanticPolicy

HeaderName = Annotated[str, StringConstraints(to_lower=True)]


class Match(Section):
    """Which requests a rule is for. Every given field has to match; `*` and `?` are wildcards."""

    model: str | None = Field(default=None, description="Model that the request names.")
    route: str | None = Field(
        default=None, description="Trivet-Route header of the request, or its path."
    )
    api: Api | None = Field(default=None, description="API that the request speaks.")


class ExactSettings(Section):
    """How the exact tier treats a request."""

    enabled: bool = Field(default=True, description="Whether the tier takes part at all.")
    ttl: Seconds = Field(default=86400.0, description="Absolute from creation; a hit never renews.")
    sampled: Literal["bypass", "cache", "pool"] = Field(
        default="bypass",
        description="Requests whose answer is drawn at random (temperature not 0 and no seed).",
    )
    k: int = Field(default=4, ge=2, le=64, description="Answers kept per request by `pool`.")
    tool_calls: Literal["exact", "never"] = Field(
        default="exact", description="Whether answers that call tools are stored."
    )
    refusals: bool = Field(default=False, description="Store refusals of the model too.")
    user_scope: bool = Field(default=False, description="Share answers within one end user only.")
    user_from: str = Field(
        default="body",
        pattern=r"^(body|header:[A-Za-z0-9-]+)$",
        description="Where the end user's id is read: `body` or `header:NAME`.",
    )
    stale_if_error: Seconds = Field(
        default=0.0, description="How long after its TTL an answer may stand in for an error."
    )
    remote_images: bool = Field(
        default=False, description="Cache requests that name images by http(s) URL."
    )
    key_headers: tuple[str, ...] = Field(
        default=(), description="Request headers that shape answers: they join the key."
    )
    ignore_headers: tuple[HeaderName, ...] = Field(
        default=(),
        description="Request headers that do not shape answers: they stay out of the key. Those "
        "that tell callers apart, or that are known to shape answers, are refused.",
    )
    max_entry: Size = Field(default=4 << 20, description="Largest answer that is stored, in bytes.")


class ExactRule(Section):
    """Settings for the requests that match: the first rule that matches wins, field by field."""

    match: Match
    enabled: bool | None = None
    ttl: Seconds | None = None
    sampled: Literal["bypass", "cache", "pool"] | None = None
    k: int | None = Field(default=None, ge=2, le=64)
    tool_calls: Literal["exact", "never"] | None = None
    refusals: bool | None = None
    user_scope: bool | None = None
    user_from: str | None = Field(default=None, pattern=r"^(body|header:[A-Za-z0-9-]+)$")
    stale_if_error: Seconds | None = None
    remote_images: bool | None = None
    key_headers: tuple[str, ...] | None = None
    ignore_headers: tuple[HeaderName, ...] | None = None
    max_entry: Size | None = None


class ExactPolicy(ExactSettings):
    """The `exact:` section: settings for all requests, and rules for some."""

    rules: tuple[ExactRule, ...] = ()


class Limits(Section):
    """Bounds of one tenant; None is no bound of its own."""

    requests_in_flight: int | None = Field(
        default=None, ge=1, description="Requests at once, in each worker; more get 429."
    )
    bytes_in_flight: Size | None = Field(
        default=None, description="Bytes of request bodies at once, in each worker; more get 429."
    )
    entries: int | None = Field(default=None, ge=0, description="Answers that the store keeps.")
    bytes: Size | None = Field(default=None, description="Bytes that these take.")


class Credential(Section):
    """How a caller proves to be this tenant: one of the two."""

    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the API key in hex, as `trivet keygen` prints it.",
    )
    gateway: str | None = Field(
        default=None,
        description="Value of the trusted tenant header that a declared gateway sends.",
    )


class TenantPolicy(Section):
    """One policy file: one tenant."""

    tenant: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Its name in metrics, logs, purges: up to 64 letters, digits, `.`, `_`, `-`.",
    )
    credentials: tuple[Credential, ...] = ()
    upstreams: tuple[str, ...] | None = Field(
        default=None, description="Upstreams that the tenant may use; all when absent."
    )
    models: tuple[str, ...] | None = Field(
        default=None, description="Models that the tenant may name (wildcards); all when absent."
    )
    passthrough: bool | None = Field(
        default=None,
        description="Whether paths that Trivet does not read may be written to. By default only "
        "where `models` is not limited, because such paths are not checked for their model.",
    )
    exact: ExactPolicy = ExactPolicy()
    semantic: SemanticPolicy = SemanticPolicy()
    prefix: PrefixPolicy = PrefixPolicy()
    versions: dict[str, str] = Field(
        default_factory=dict,
        description="Anything that outdates answers when it changes: prompt, documents, flags.",
    )
    limits: Limits = Limits()
    usage_on_hit: Literal["keep", "zero"] = Field(
        default="keep",
        description="What a hit's body reports as usage; Trivet's own figures never count a hit.",
    )
