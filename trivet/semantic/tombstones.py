"""What was purged or removed, so that a record that arrives late does not come back."""

from __future__ import annotations

from collections import OrderedDict

from trivet.semantic.types import Record

_NEVER = float("-inf")


class Tombstones:
    """Bounded: beyond `most`, the oldest purges merge into one floor that holds for everybody.

    The floor may refuse a record created before every purge that is still remembered, and takes
    nothing away that is there.
    """

    def __init__(self, most: int = 16384) -> None:
        self._most = most
        self._at: OrderedDict[tuple[str, str | None], float] = OrderedDict()
        self._gone: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._floor = _NEVER

    def purge(self, tenant: str, label: str | None, at: float) -> None:
        """Remember a purge of a label, or of a whole tenant."""
        name = (tenant, label)
        self._at[name] = max(at, self._at.pop(name, at))
        if len(self._at) > self._most:
            self._floor = max(self._floor, self._at.popitem(last=False)[1])

    def remove(self, tenant: str, record_id: str) -> None:
        """Remember one record's id: ids are never used twice."""
        self._gone[tenant, record_id] = None
        if len(self._gone) > self._most:
            self._gone.popitem(last=False)

    def cover(self, record: Record) -> bool:
        """Whether a record must not be taken in."""
        created, tenant = record.created, record.tenant
        return (
            created <= self._floor
            or (tenant, record.id) in self._gone
            or created <= self._at.get((tenant, None), _NEVER)
            or any(created <= self._at.get((tenant, label), _NEVER) for label in record.labels)
        )
