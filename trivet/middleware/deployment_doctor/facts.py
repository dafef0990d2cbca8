"""What was seen of a deployment. Seconds are floats; `trouble` is a sentence, empty for none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from trivet.errors import Problem
from trivet.middleware.running.config import DialectFamily
from trivet.middleware.semantic_tier.effective import Effective


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file or folder: its permission bits, None where it is not there."""

    path: Path
    mode: int | None


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """Where the deployment's secret comes from."""

    origin: Literal["environment", "file", "none"]
    file: FileFacts
    trouble: str = ""
    mark: str | None = None
    """`Seal.mark` of it; None where there is no secret yet."""


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What a Redis said."""

    version: str = ""
    evicts: str = ""
    """Its maxmemory-policy, where that may evict purges."""
    ahead_s: float = 0.0
    """Its clock less this machine's."""
    round_trip_s: float = 0.0
    marks: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each secret's mark was left."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The store."""

    kind: Literal["memory", "sqlite", "redis"]
    shown: str
    """Its URL without a password."""
    trouble: str = ""
    """Why it cannot be read."""
    unwritable: str = ""
    redis: RedisFacts | None = None
    file: FileFacts | None = None
    """The database; None for others."""
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """One server of an upstream."""

    name: str
    url: str
    dialects: tuple[DialectFamily, ...]
    """What it is declared to speak."""
    dialects_named: bool
    """Whether the config says so, or it is the default."""
    native: bool = False
    """It is asked on paths of its own API too, so that no dialect is expected."""
    trouble: str = ""
    key_env: str | None = None
    key_set: bool = False
    statuses: Mapping[DialectFamily, int] = field(default_factory=dict)
    """Of the empty request in each dialect."""
    spoken: frozenset[DialectFamily] = frozenset()
    ahead_s: float | None = None
    """Its clock (Date) less this machine's; to the second."""


@dataclass(frozen=True, slots=True)
class CalibrationFacts:
    """The semantic tier of one tenant whose policy has it on."""

    tenant: str
    effective: Effective
    made: date | None
    compared: bool
    """With the models that run here."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The policies, and what `trivet check` says of them."""

    tenants: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    calibrations: tuple[CalibrationFacts, ...] = ()
    loose: tuple[FileFacts, ...] = ()
    """Files that others than their owner may write."""


@dataclass(frozen=True, slots=True)
class AdminFacts:
    """The running proxy, over its admin port."""

    url: str
    trouble: str = ""
    refused_key: str = ""
    """What it says to the admin key that was given."""
    open_to: Literal["nobody", "loopback", "anybody"] = "nobody"
    """Whom it answers under `/trivet/` without a key, as far as could be tried from here."""
    components: tuple[tuple[str, str, str], ...] = ()
    """Name, state and detail of each part, as /readyz has them."""
    ready: bool = False


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What runs here."""

    trivet: str
    python: str
    missing: tuple[tuple[str, str], ...] = ()
    """Settings whose library is not installed, and the extra that brings it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it."""

    machine: MachineFacts
    secret: SecretFacts
    store: StoreFacts
    upstreams: tuple[UpstreamFacts, ...]
    policies: PolicyFacts
    admin: AdminFacts
    today: date
