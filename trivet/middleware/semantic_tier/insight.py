"""What one process knows of a tenant's similar answers, for the console, and what a person says.

Texts are shown only while the policy lets them be kept. A verdict is written down as a label that
every `trivet eval` command reads, and then told to who acts on it: for a hit that was drawn for a
person it is an audit of the running measurement, for any other a report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trivet.errors import RequestError
from trivet.exact.tier import ExactTier
from trivet.messages import ExactKey
from trivet.middleware.admin.control import Said, Verdict
from trivet.middleware.dialects.texts import answer_text
from trivet.middleware.semantic_tier.feedback import Feedback, Told
from trivet.middleware.semantic_tier.hit_log import LONGEST, HitLog, Kind, Row, told_row
from trivet.middleware.semantic_tier.label_queue import LabelQueue
from trivet.middleware.semantic_tier.verdicts import Verdicts
from trivet.policies.model import TenantPolicy
from trivet.semantic.monitor import Monitor
from trivet.semantic.types import Record

PAGE: Final = 10
"""Rows that are told at once."""


@dataclass(frozen=True, slots=True)
class Known:
    """Where the parts of a row are looked up, and who counts."""

    find: Callable[[str, str], Record | None]
    """Takes a tenant and a record's id."""
    exact: ExactTier
    monitor: Monitor
    log: HitLog
    labels: LabelQueue
    """Where a person's labels go."""


class Insight:
    """For one event loop."""

    def __init__(self, known: Known, feedback: Feedback, verdicts: Verdicts) -> None:
        self._known = known
        self._feedback = feedback
        self._verdicts = verdicts

    def counts(self, policy: TenantPolicy) -> dict[str, Any]:
        """The running measurement of a tenant: `cells` are family, intent and `tally.Counts`.
        Processes with the same `book` count into one store."""
        monitor = self._known.monitor
        cells = monitor.counts(policy.tenant, policy.semantic)
        return {
            "book": monitor.book,
            "cells": [[*named, *counts] for named, counts in cells.items()],
            "rows": self._known.log.count(policy.tenant),
        }

    def forget(self, tenant: str) -> None:
        """Forget a tenant's rows."""
        self._known.log.forget(tenant)

    async def rows(self, policy: TenantPolicy, kind: Kind, before: float) -> list[dict[str, Any]]:
        """The newest rows from before a time (Unix seconds), newest first, with their texts where
        the policy lets them be shown."""
        if not policy.semantic.store_text:
            self._known.log.forget_texts(policy.tenant)
        found = self._known.log.before(policy.tenant, kind, before, PAGE)
        return [await self._told(policy, row) for row in found]

    async def judge(
        self, policy: TenantPolicy, row_id: str, verdict: Verdict
    ) -> dict[str, Any] | None:
        """Act on what a person says of a hit; None where this process does not have it.

        Raises `RequestError`: 409 where it was judged before, 404 where its stored question is
        gone, 503 where a store is in trouble; then nothing was noted.
        """
        row = self._known.log.find(policy.tenant, row_id)
        if row is None:
            return None
        if row.verdict:
            told = f"This hit was called {row.verdict} before; a verdict is given once."
            raise RequestError(409, told, code="repeated")
        line = self._label(policy, row, verdict)
        row.verdict = verdict
        try:
            outcome = await self._act(policy, row, verdict)
        except BaseException:
            row.verdict = ""
            raise
        if line is not None:
            await self._known.labels.put(policy.tenant, line)
        return {"verdict": verdict, "labelled": line is not None, **outcome}

    async def _act(self, policy: TenantPolicy, row: Row, verdict: Verdict) -> dict[str, Any]:
        if row.draw:
            (heard,) = await self._verdicts.give(policy, [Said(row.draw, verdict == "right")])
            if heard.outcome in ("counted", "repeated"):
                return {"counted": "audit", "removed": heard.removed}
        done = await self._feedback.give(policy, Told(row.record, verdict), "operator")
        return {"counted": "report", "removed": done["removed"]}

    async def _told(self, policy: TenantPolicy, row: Row) -> dict[str, Any]:
        told = told_row(row)
        if not row.record:
            return told
        record = self._known.find(policy.tenant, row.record)
        told["there"] = record is not None
        if record is None or not policy.semantic.store_text:
            return told
        told["stored"] = record.text[:LONGEST]
        entry = await self._known.exact.entry(policy.tenant, ExactKey(row.key))
        answer = None if entry is None else answer_text(entry.api, entry.body)
        told["answer"] = None if answer is None else answer[:LONGEST]
        return told

    def _label(self, policy: TenantPolicy, row: Row, verdict: Verdict) -> dict[str, Any] | None:
        """A line as `trivet eval label` writes it; None where texts are not kept in full."""
        record = self._known.find(policy.tenant, row.record)
        text = row.text
        if record is None or text is None or len(text) == LONGEST:
            return None
        return {
            "a": record.text,
            "b": text,
            "same": verdict == "right",
            "context": row.context,
            "tenant": policy.tenant,
            "score": row.score,
            "labelled_by": "person",
        }
