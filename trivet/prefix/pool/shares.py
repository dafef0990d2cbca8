"""How many blocks a tenant may hold, and how many others leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PLATFORM = "(platform)"
"""Owner of the pinned blocks that all tenants share; no tenant id has brackets."""

OTHERS = "(others)"
"""One account for the tenants beyond `MAX_TENANTS`."""

MAX_TENANTS = 4096


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant's bounds, in blocks, over what it uses and what it has cached.

    `quota`: it never holds more; its own oldest prefixes make room. `floor`: others' needs leave it
    that many.
    """

    quota: int | None = None
    floor: int = 0

    def __post_init__(self) -> None:
        if self.floor < 0 or (self.quota is not None and self.quota < max(1, self.floor)):
            raise ValueError("a floor is at least 0, a quota at least 1 and not under the floor")


@dataclass(frozen=True, slots=True)
class Shares:
    """The bounds of all tenants; those without an entry have `default_quota` and no floor."""

    tenants: Mapping[str, Share] = field(default_factory=dict)
    default_quota: int | None = None

    def of(self, tenant: str) -> Share:
        """The bounds of one tenant."""
        return self.tenants.get(tenant) or Share(self.default_quota)

    @property
    def floors(self) -> int:
        """Blocks that are promised in all."""
        return sum(share.floor for share in self.tenants.values())
