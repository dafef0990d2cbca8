"""What the exact tier keeps of one answer."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field

from trivet.messages import Answer, Api, ExactKey, Usage


@dataclass(slots=True)
class Entry:
    """One stored answer. Times are Unix seconds; nothing renews `expires`.

    Nobody alters it: stores hand out the one that they hold. It is not frozen because that makes
    it four times as slow to make, and each hit on a file or a server makes one.
    """

    key: ExactKey
    tenant: str
    api: Api
    canonical: bytes
    """The keyed request, compared on a hit: a collision or a mixed-up store is a miss."""
    body: bytes
    model: str
    usage: Usage | None
    ids: tuple[str, ...]
    created: float
    """When the request that produced it was sent, so that a purge in between wins."""
    expires: float
    stale_until: float
    """Until when it may stand in for an upstream error; equal to `expires` when it may not."""
    labels: frozenset[str] = frozenset()
    """What a purge can name: `tag:x`, `version:prompt=7`."""
    headers: tuple[tuple[str, str], ...] = ()
    """Response headers worth replaying."""
    memo: dict[str, Sized] = field(default_factory=dict, compare=False, repr=False)
    """Renderings of `body` made by earlier hits in this process; never stored."""

    @property
    def answer(self) -> Answer:
        """The stored answer as the dialects know it."""
        return Answer(self.body, self.usage, self.model, self.ids)

    @property
    def size(self) -> int:
        """Bytes that count against a store's bound."""
        return len(self.canonical) + len(self.body) + 896
