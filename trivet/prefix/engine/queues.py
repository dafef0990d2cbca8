"""Who waits for a place in the engine, and whose turn it is.

Within a tenant the order is that of arrival. Between tenants it is the turn of the one that was
given the fewest tokens, counted as the virtual token counters of Sheng et al. 2024, "Fairness in
Serving Large Language Models": a tenant with long prompts has its turn less often, and one that
comes back after a pause has saved up nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from trivet.prefix.engine.sequence import Sequence

_NOBODY: Mapping[str, int] = {}
_MOST_REMEMBERED = 4096
"""Tenants whose count is kept while they have no request here."""


class _Line:
    """One tenant's waiting sequences, by number."""

    __slots__ = ("fresh", "resumed")

    def __init__(self) -> None:
        self.fresh: dict[int, Sequence] = {}
        self.resumed: dict[int, Sequence] = {}


class WaitingQueues:
    """Sequences that hold no block, in lines by tenant, bounded in all and by tenant.

    A preempted sequence stands before all that never ran, and counts for no bound: it was accepted
    before.
    """

    def __init__(self, most: int, most_per_tenant: int) -> None:
        self._most = most
        self._most_per_tenant = most_per_tenant
        self._lines: dict[str, _Line] = {}
        self._fresh = 0
        self._resumed = 0

    def __len__(self) -> int:
        return self._fresh + self._resumed

    def __contains__(self, sequence: Sequence) -> bool:
        line = self._lines.get(sequence.tenant)
        return line is not None and (
            line.fresh.get(sequence.number) is sequence
            or line.resumed.get(sequence.number) is sequence
        )

    def refusal(self, tenant: str, arriving: Mapping[str, int] = _NOBODY) -> str:
        """Why one more of the tenant's may not wait; empty if it may.

        `arriving` counts those by tenant that were accepted and are not here yet. May be asked on
        another thread than the others: what it reads meanwhile can only become fewer.
        """
        if self._fresh + sum(arriving.values()) >= self._most:
            return "queue-full"
        line = self._lines.get(tenant)
        own = arriving.get(tenant, 0) + (0 if line is None else len(line.fresh))
        return "tenant-queue-full" if own >= self._most_per_tenant else ""

    def add(self, sequence: Sequence) -> None:
        """A new one, behind its tenant's others."""
        self._lines.setdefault(sequence.tenant, _Line()).fresh[sequence.number] = sequence
        self._fresh += 1

    def put_back(self, sequence: Sequence) -> None:
        """A preempted one, before its tenant's others; among its like by arrival."""
        self._lines.setdefault(sequence.tenant, _Line()).resumed[sequence.number] = sequence
        self._resumed += 1

    def remove(self, sequence: Sequence) -> bool:
        """Take it out, wherever it stands; False if it does not wait."""
        if sequence not in self:
            return False
        line = self._lines[sequence.tenant]
        if line.resumed.pop(sequence.number, None) is not None:
            self._resumed -= 1
        else:
            del line.fresh[sequence.number]
            self._fresh -= 1
        if not line.fresh and not line.resumed:
            del self._lines[sequence.tenant]
        return True

    def tenants(self) -> Iterable[str]:
        """Those who have one waiting."""
        return self._lines.keys()

    def line(self, tenant: str) -> list[Sequence]:
        """The tenant's sequences, the next one first."""
        line = self._lines.get(tenant)
        if line is None:
            return []
        return [*sorted(line.resumed.values(), key=attrgetter("number")), *line.fresh.values()]

    def all(self) -> list[Sequence]:
        """All of them."""
        return [sequence for tenant in self._lines for sequence in self.line(tenant)]


class Turns:
    """How many tokens each tenant was given, and so who is next."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}
        self._inside: Counter[str] = Counter()

    def enter(self, tenant: str) -> None:
        """One more request of the tenant, waiting or running.

        With its first one it starts no lower than the others that are here: a pause earns nothing.
        What it was given before still counts, so that leaving for a moment clears nothing.
        """
        if not self._inside:
            self._given = {tenant: 0}
        elif tenant not in self._inside:
            least = min(self._given[other] for other in self._inside)
            self._given[tenant] = max(self._given.get(tenant, 0), least)
            if len(self._given) > _MOST_REMEMBERED + len(self._inside):
                kept = {tenant, *self._inside}
                self._given = {name: self._given[name] for name in kept}
        self._inside[tenant] += 1

    def leave(self, tenant: str) -> None:
        """A request of the tenant has ended."""
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]

    def charge(self, tenant: str, tokens: int) -> None:
        """The tenant is given so many tokens of a step."""
        self._given[tenant] += tokens

    def entry(self, tenant: str) -> tuple[int, str]:
        """For a heap: who was given least comes first; of several, the first by name."""
        return self._given[tenant], tenant
