"""Watches the false-hit rate while the tier serves, and closes it where it is too high.

What a calibration opened stays open until the evidence speaks against it, and what was closed
stays closed until the tenant has another calibration. Counts are kept in memory, written behind
once a second, and read back with those of the other processes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, islice

from trivet.errors import StoreError
from trivet.policies.intents import Intent
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.beat import Beat, State
from trivet.semantic.confidence import lower, upper
from trivet.semantic.monitor_store import MOST, UNREADABLE, MonitorStore, Row, Update
from trivet.semantic.tally import NOTHING, Cell, Counts, Digests, Rules, closing, contradicted
from trivet.telemetry import Observer, SemanticAudit, SemanticState, StoreState, ignore

_RULES = Rules()
_POLL_S = 1.0
_SLICE = 16
"""Cells that are worked on before other tasks get their turn."""
_MOST_FAMILIES = 64
"""Of one tenant and intent: callers name models, so their number is theirs to choose."""
_MOST_UNREADABLE = 65536
_OTHER = "other"
_ALL = ""
"""The family of what concerns all of them, and the intent of what concerns the tenant."""

_Tenant = tuple[str, str]
"""Tenant and calibration."""


class Monitor:
    """Counts, judges and closes. For one event loop; only `step`, `hear` and `close` wait."""

    def __init__(
        self,
        store: MonitorStore | None = None,
        observer: Observer = ignore,
        rules: Rules = _RULES,
        poll_s: float = _POLL_S,
    ) -> None:
        """Without a store, counts end with the process."""
        self._store = store
        self._observe = observer
        self._rules = rules
        self._beat = Beat(self.step, poll_s, self._say)
        self._turn = asyncio.Lock()
        """Held by whoever writes to the store, or reads it."""
        self._digest = Digests().of
        self._policies: dict[_Tenant, SemanticPolicy] = {}
        self._current: dict[str, str] = {}
        self._base: dict[Cell, Counts] = {}
        """What the store holds of all processes, and what of this one is on its way there."""
        self._pending: dict[Cell, Counts] = {}
        self._marks: dict[_Tenant, dict[str, str]] = {}
        """Why intents are closed; the intent `_ALL` closes them all."""
        self._unsent: dict[Cell, str] = {}
        self._unreadable: set[str] = set()
        """Names of rows that may have closed something; whose they are shows when one asks."""
        self._cells: dict[_Tenant, dict[Cell, None]] = {}
        self._touched: dict[Cell, None] = {}
        self._sending: tuple[str, dict[Cell, Update]] | None = None
        self._cursor, self._token = 0, "" if store is not None else secrets.token_hex(8)
        self._loaded = store is None
        self._heard: set[str] = set()
        """Draws that a person judged, where no store knows: a person makes few of them."""

    @property
    def book(self) -> str:
        """Names the store that the counts are in, or else this object. Empty until it is known."""
        return self._token

    def looked(self, tenant: str, policy: SemanticPolicy, at: tuple[str, str], hit: bool) -> None:
        """A lookup ended. `at` is family and intent; `hit`: it was served, or a shadow would have
        served it."""
        self._count(self._cell(tenant, policy, *at), Counts(lookups=1, hits=int(hit)))

    def observe(
        self, tenant: str, policy: SemanticPolicy, at: tuple[str, str], same: bool, judge: str
    ) -> None:
        """A hit that was drawn at random was judged. `at` is family and intent."""
        cell = self._cell(tenant, policy, *at)
        self._count(cell, Counts(audits=1, false_hits=int(not same)))
        self._tell(cell, judge, same)
        self._weigh(cell)

    async def hear(
        self, tenant: str, policy: SemanticPolicy, at: tuple[str, str], same: bool, draw: str
    ) -> bool:
        """A person judged the hit that was drawn as `draw`; `at` is family and intent.

        Whether it is the first verdict on it: only that one counts, whichever process hears it.
        Raises `StoreError`: whether it counted is not known, and it has to be given again.
        """
        cell = self._cell(tenant, policy, *at)
        first = await self._add_once(draw, cell, Counts(audits=1, false_hits=int(not same)))
        if first:
            self._tell(cell, "person", same)
            self._weigh(cell)
        return first

    def reported(
        self, tenant: str, policy: SemanticPolicy, intent: str, wrong: bool, judge: str = "caller"
    ) -> None:
        """A caller said of a hit that it was wrong, or right."""
        cell = self._cell(tenant, policy, _ALL, intent)
        if wrong:
            self._count(cell, Counts(reported=1))
        self._tell(cell, judge, not wrong)
        self._weigh(cell)

    def closed(self, tenant: str, policy: SemanticPolicy, intent: Intent) -> str:
        """Why the tenant's intent is closed: `bound`, `economics`, `reports`; empty while open.

        `starting` until the store was read once: what was closed is not known before. `unreadable`
        where its row cannot be read: then it stays closed until the next calibration.
        """
        known = self._known(tenant, policy)
        self._policies[known] = policy
        if self._current[tenant] != known[1]:
            self._recalibrated(tenant, policy, known)
        if not self._loaded:
            return "starting"
        if self._unreadable:
            self._distrust(known, intent)
        marks = self._marks.get(known)
        return (marks.get(intent) or marks.get(_ALL, "")) if marks else ""

    def counts(self, tenant: str, policy: SemanticPolicy) -> dict[tuple[str, str], Counts]:
        """The tenant's totals by family and intent, for people."""
        cells = self._cells.get((tenant, self._digest(policy)), ())
        return {(cell.family, cell.intent): self._total(cell) for cell in cells}

    def closings(
        self, policy_of: Callable[[str], SemanticPolicy | None]
    ) -> list[tuple[str, str, str]]:
        """What is closed under the calibrations in use: tenant, intent (empty: all), and why."""
        found: list[tuple[str, str, str]] = []
        for (tenant, calibration), marks in self._marks.items():
            policy = policy_of(tenant)
            if policy is not None and self._digest(policy) == calibration:
                found += [(tenant, intent, reason) for intent, reason in marks.items()]
        return found

    def start(self) -> None:
        """Begin to write and read in the background. Once."""
        self._beat.start("trivet-semantic-monitor")

    async def close(self) -> None:
        """Write what is left, once, and close the store."""
        await self._beat.stop()
        if self._store is not None:
            async with self._turn:
                with suppress(StoreError):
                    await self._send(self._store)
                await self._store.close()

    async def step(self) -> None:
        """Weigh what was counted, write it, and read what others wrote. Raises `StoreError`."""
        await self._weigh_touched()
        if self._store is not None:
            async with self._turn:
                await self._send(self._store)
                await self._read(self._store)
            await self._weigh_touched()

    def _say(self, state: State, reason: str) -> None:
        if self._store is not None:
            self._observe(StoreState("semantic-monitor", state, reason))

    def _known(self, tenant: str, policy: SemanticPolicy) -> _Tenant:
        """Note a policy. One that is new here comes into use with the next request: what a request
        of a while ago brings in may be about the one before."""
        known = tenant, self._digest(policy)
        self._policies.setdefault(known, policy)
        if tenant not in self._current:
            self._recalibrated(tenant, policy, known)
        return known

    def _cell(self, tenant: str, policy: SemanticPolicy, family: str, intent: str) -> Cell:
        """Where a request is counted. `family` is `API:MODEL`."""
        cell = Cell(*self._known(tenant, policy), family, intent)
        cells = self._cells.get(cell[:2], {})
        if cell in cells or sum(one.intent == intent for one in cells) < _MOST_FAMILIES:
            return cell
        return cell._replace(family=_OTHER)

    def _count(self, cell: Cell, more: Counts) -> None:
        self._cells.setdefault(cell[:2], {})[cell] = None
        self._pending[cell] = self._pending.get(cell, NOTHING).plus(more)
        self._touched[cell] = None

    async def _add_once(self, draw: str, cell: Cell, more: Counts) -> bool:
        if self._store is None:
            if draw in self._heard:
                return False
            self._heard.add(draw)
            self._count(cell, more)
            return True
        async with self._turn:
            # What is on its way is sent before: then the store has all that is known of the cell.
            await self._send(self._store)
            known = self._base.get(cell, NOTHING)
            first = await self._store.add_once(draw, cell, Update(known, more))
            with suppress(StoreError):  # The next step reads it.
                await self._read(self._store)
        return first

    def _total(self, cell: Cell) -> Counts:
        return self._base.get(cell, NOTHING).plus(self._pending.get(cell, NOTHING))

    def _sum(self, known: _Tenant, intent: str | None = None) -> Counts:
        total = NOTHING
        for cell in self._cells.get(known, ()):
            if intent is None or cell.intent == intent:
                total = total.plus(self._total(cell))
        return total

    def _tell(self, cell: Cell, judge: str, same: bool) -> None:
        seen = self._sum(cell[:2], cell.intent)
        bound = upper(seen.audits, seen.false_hits, self._rules.alpha)
        self._observe(SemanticAudit(cell.tenant, cell.intent, judge, same, bound))

    async def _weigh_touched(self) -> None:
        for number, cell in enumerate(list(self._touched), 1):
            self._touched.pop(cell, None)
            self._weigh(cell)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def _weigh(self, cell: Cell) -> None:
        """Close what a change of this cell closes: its intent, or the tenant."""
        known = cell[:2]
        policy = self._policies.get(known)
        if policy is None:
            return
        target, rules = policy.target_false_hits, self._rules
        if not self._marks.get(known, {}).get(cell.intent):
            if contradicted(self._total(cell), target, rules):
                self._mark(cell, "bound")
            else:
                self._mark(cell, closing(self._sum(known, cell.intent), policy, rules))
        everything = self._sum(known)
        if lower(everything.audits, everything.false_hits, rules.alpha) > target:
            self._mark(cell._replace(intent=_ALL), "bound")

    def _mark(self, cell: Cell, reason: str, *, stored: bool = False) -> None:
        known, marks = cell[:2], self._marks.get(cell[:2], {})
        if not reason or marks.get(cell.intent):
            return
        self._marks[known] = marks
        told = marks.get(_ALL)
        marks[cell.intent] = reason
        if not stored:
            self._unsent[cell._replace(family=_ALL)] = reason
        if told or known[1] != self._current.get(known[0]):
            return  # Nothing differs, or it is about a calibration that is not in use.
        for intent in self._intents_of(cell):
            self._observe(SemanticState(cell.tenant, intent, False, reason))

    def _distrust(self, known: _Tenant, intent: str) -> None:
        """Close what a row that cannot be read may have closed, and write the row anew."""
        assert self._store is not None
        for cell in (Cell(*known, _ALL, intent), Cell(*known, _ALL, _ALL)):
            name = self._store.name_of(cell)
            if name in self._unreadable:
                self._unreadable.discard(name)
                self._mark(cell, UNREADABLE)
                self._unsent[cell] = self._marks[known][cell.intent]

    def _intents_of(self, cell: Cell) -> Iterable[str]:
        if cell.intent != _ALL:
            return (cell.intent,)
        policy = self._policies.get(cell[:2])
        closed = self._marks[cell[:2]]
        named = () if policy is None else policy.intents
        return tuple(str(intent) for intent in named if intent not in closed)

    def _recalibrated(self, tenant: str, policy: SemanticPolicy, known: _Tenant) -> None:
        """Another calibration came, or the first one of this process: tell what differs by it."""
        before = self._current.get(tenant)
        self._current[tenant] = known[1]
        was = {} if before is None else self._marks.get((tenant, before), {})
        now = self._marks.get(known, {})
        for intent in policy.intents:
            one, two = was.get(intent) or was.get(_ALL), now.get(intent) or now.get(_ALL)
            if bool(one) != bool(two):
                self._observe(SemanticState(tenant, intent, not two, two or "calibration"))

    async def _send(self, store: MonitorStore) -> None:
        """Write what waits now, in batches; what comes meanwhile is for the next time."""
        waiting = len(self._pending.keys() | self._unsent.keys())
        batches = -(-waiting // MOST) + (self._sending is not None)
        for _ in range(batches):
            if self._sending is None:
                self._sending = secrets.token_hex(16), self._batch()
            # Kept until it is known to be stored: the same batch, given again, counts once.
            await store.add(*self._sending)
            self._sending = None

    def _batch(self) -> dict[Cell, Update]:
        """Take up to `MOST` cells out of what waits."""
        updates: dict[Cell, Update] = {}
        for cell in list(islice(chain(self._pending, self._unsent), MOST)):
            known, more = self._base.get(cell, NOTHING), self._pending.pop(cell, NOTHING)
            if cell not in updates:
                updates[cell] = Update(known, more, self._unsent.pop(cell, ""))
                self._base[cell] = known.plus(more)
        return updates

    async def _read(self, store: MonitorStore) -> None:
        more = True
        while more:
            found = await store.changes(self._cursor)
            if found.token != self._token:
                lost, self._token = bool(self._token), found.token
                if lost:
                    self._restore()
                    await self._send(store)
                    found = await store.changes(0)
            for cell, row in found.rows.items():
                self._take(cell, row)
            if len(self._unreadable) < _MOST_UNREADABLE:
                self._unreadable |= found.unreadable
            self._cursor, more = found.cursor, found.more
            await asyncio.sleep(0)
        self._loaded = True

    def _restore(self) -> None:
        """The store lost what it held: give it what this process knows."""
        for cell in self._base:
            self._pending.setdefault(cell, NOTHING)
        for known, marks in self._marks.items():
            for intent, reason in marks.items():
                self._unsent[Cell(*known, _ALL, intent)] = reason

    def _take(self, cell: Cell, row: Row) -> None:
        self._base[cell] = row.counts
        self._cells.setdefault(cell[:2], {})[cell] = None
        self._touched[cell] = None
        self._mark(cell, row.closed, stored=True)
