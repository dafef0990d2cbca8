"""The last lookups of each tenant, for people: what was served, and what the gate refused.

Of a hit only what was asked is kept, and only where the policy lets texts be kept; the stored
question and the answer are read from where they live when somebody looks, so that what was purged
or has expired is not shown. Memory is bounded in rows for each tenant and in bytes over all.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.telemetry import SemanticLookup

if TYPE_CHECKING:
    from trivet.semantic.tier import Looked

ROWS: Final = 200
"""Of one tenant and kind."""
BYTES: Final = 8 << 20
LONGEST: Final = 2_000
"""Characters of a text that are kept."""
_ROW: Final = 700
"""Bytes of memory that a row takes without its text."""

Kind = Literal["hits", "refused"]
KINDS: Final[tuple[Kind, ...]] = ("hits", "refused")


@dataclass(slots=True, eq=False)
class Row:
    """One lookup."""

    id: str
    """`PID-NUMBER`: names the row over all processes of a machine."""
    at: float
    """Unix seconds."""
    told: str
    """`hit`, `assist`, `shadow` (it would have been served) or `bypass`."""
    reason: str
    intent: str
    route: str
    model: str
    text: str | None
    """What was asked; None where it is not kept."""
    record: str = ""
    """Id of the stored question: what feedback names."""
    key: bytes = b""
    """`ExactKey` of the answer."""
    context: str = ""
    """Digest of all that was equal in the two requests, in hex."""
    cosine: float | None = None
    score: float | None = None
    threshold: float | None = None
    draw: str = ""
    """Names the hit for `POST /trivet/verdicts`, where it was drawn for a person."""
    verdict: str = ""
    """`right` or `wrong`, once a person said so here."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return _ROW + 2 * len(self.text or "")


@dataclass(slots=True, eq=False)
class _Tenant:
    rows: dict[Kind, deque[Row]] = field(default_factory=lambda: {kind: deque() for kind in KINDS})
    size: int = 0

    def add(self, kind: Kind, row: Row) -> None:
        rows = self.rows[kind]
        rows.append(row)
        self.size += row.size
        if len(rows) > ROWS:
            self.size -= rows.popleft().size


class HitLog:
    """For one event loop. Noting a lookup takes microseconds; nothing here raises."""

    def __init__(self, most: int = BYTES, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._size = 0
        self._number = 0

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return self._size

    def noted(self, call: Call, event: SemanticLookup) -> None:
        """A lookup ended, as `event` says."""
        looked = call.looked
        would = looked is not None and looked.decision.would_serve
        if event.kind in ("hit", "assist") or (event.kind == "shadow" and would):
            self._add(call.tenant, "hits", self._hit(call, event, looked))
        elif event.kind == "bypass":
            self._add(call.tenant, "refused", self._row(call, event, looked))

    def drawn(self, tenant: str, record: str, text: str, draw: str) -> None:
        """The newest hit of these two questions waits for a person's verdict as `draw`."""
        rows = self._rows(tenant, "hits")
        for row in reversed(rows):
            if row.record == record and row.text == text[:LONGEST]:
                row.draw = row.draw or draw
                return

    def before(self, tenant: str, kind: Kind, at: float, most: int) -> list[Row]:
        """The newest rows from before `at` (Unix seconds), newest first."""
        found = (row for row in reversed(self._rows(tenant, kind)) if row.at < at)
        return [row for _, row in zip(range(most), found, strict=False)]

    def count(self, tenant: str) -> dict[str, int]:
        """How many rows of each kind are kept."""
        return {kind: len(self._rows(tenant, kind)) for kind in KINDS}

    def find(self, tenant: str, row_id: str) -> Row | None:
        """The tenant's hit of this id."""
        return next((row for row in self._rows(tenant, "hits") if row.id == row_id), None)

    def forget(self, tenant: str) -> None:
        """Forget all rows of a tenant."""
        gone = self._tenants.pop(tenant, None)
        if gone is not None:
            self._size -= gone.size

    def forget_texts(self, tenant: str) -> None:
        """The policy lets no text be kept any more."""
        state = self._tenants.get(tenant)
        for row in self._every(state) if state is not None else ():
            if state is not None and row.text is not None:
                less, row.text = row.size, None
                state.size -= less - row.size
                self._size -= less - row.size

    def _every(self, state: _Tenant) -> Iterator[Row]:
        return chain.from_iterable(state.rows.values())

    def _rows(self, tenant: str, kind: Kind) -> deque[Row]:
        state = self._tenants.get(tenant)
        return deque() if state is None else state.rows[kind]

    def _hit(self, call: Call, event: SemanticLookup, looked: Looked | None) -> Row:
        row = self._row(call, event, looked)
        near = None if looked is None else looked.decision.neighbour
        if looked is None or near is None:
            return row
        row.record, row.key, row.cosine = near.record.id, near.record.key, near.cosine
        row.score, row.threshold = looked.decision.score, looked.decision.threshold
        row.context = looked.asking.rest.hex()
        return row

    def _row(self, call: Call, event: SemanticLookup, looked: Looked | None) -> Row:
        self._number += 1
        kept = call.policy.semantic.store_text
        return Row(
            id=f"{os.getpid()}-{self._number}",
            at=self._clock(),
            told=event.kind,
            reason=event.reason,
            intent=event.intent,
            route=_sound(route_of_call(call)[:128]),
            model=_sound(event.model[:128]),
            text=looked.asking.text[:LONGEST] if looked is not None and kept else None,
        )

    def _add(self, tenant: str, kind: Kind, row: Row) -> None:
        state = self._tenants.setdefault(tenant, _Tenant())
        self._tenants.move_to_end(tenant)
        self._size -= state.size
        state.add(kind, row)
        self._size += state.size
        while self._size > self._most and len(self._tenants) > 1:
            _, gone = self._tenants.popitem(last=False)
            self._size -= gone.size


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def told_row(row: Row) -> dict[str, Any]:
    """A row as JSON values, without the digests that only this process needs."""
    return {
        "id": row.id,
        "at": row.at,
        "told": row.told,
        "reason": row.reason,
        "intent": row.intent,
        "route": row.route,
        "model": row.model,
        "asked": row.text,
        "cosine": row.cosine,
        "score": row.score,
        "threshold": row.threshold,
        "drawn": bool(row.draw),
        "verdict": row.verdict,
        "record": row.record,
    }
