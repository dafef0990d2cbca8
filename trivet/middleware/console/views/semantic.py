"""The semantic page: each tenant's calibration, running measurement, economics, hits, refusals."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from trivet.errors import RequestError
from trivet.middleware.admin.control import Verdict
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.views.semantic_counts import (
    counts_by_intent,
    evidence,
    lookups_of,
    worth,
)
from trivet.middleware.semantic_tier.hit_log import KINDS
from trivet.policies.calibration import Calibration
from trivet.policies.economics import Economics
from trivet.semantic.tally import Counts

ROWS: Final = 10
"""Rows of a page of hits or refusals."""
_POINTS: Final = 120
"""Of a calibration's curve."""


async def show(asked: Asked) -> dict[str, Any]:
    """GET `semantic`: every tenant that has the tier on, in one line each."""
    told = [one for one in await asked.control.tell("semantic") if one]
    # In a thread: a bound takes some 50 microseconds, and there may be thousands of tenants.
    return await asyncio.to_thread(overview, told)


async def show_tenant(asked: Asked) -> dict[str, Any]:
    """GET `semantic/tenant?tenant=NAME`: all about one tenant but its hits and refusals."""
    name = _named(asked.query, "tenant")
    told = [one for one in await asked.control.tell("semantic-tenant", name) if one]
    if not told:
        raise RequestError(503, "No process of the proxy answered; try again.")
    return {"tenant": name, **tenant_of(told)}


async def show_rows(asked: Asked) -> dict[str, Any]:
    """GET `semantic/rows?tenant=NAME&kind=hits|refused&before=UNIX_SECONDS`, newest first."""
    name, kind = _named(asked.query, "tenant"), asked.query.get("kind", "hits")
    if kind not in KINDS:
        raise RequestError(422, f"kind has to be one of {', '.join(KINDS)}.", field="kind")
    before = _time(asked.query.get("before"))
    return rows_of(await asked.control.tell("semantic-rows", [name, kind, before]))


async def take_verdict(asked: Asked) -> dict[str, Any]:
    """POST `semantic/verdict` with tenant, row and verdict (`right` or `wrong`)."""
    name, row, verdict = (_named(asked.body, field) for field in ("tenant", "row", "verdict"))
    if verdict not in get_args(Verdict):
        raise RequestError(422, "verdict has to be right or wrong.", field="verdict")
    for one in await asked.control.tell("semantic-verdict", [name, row, verdict]):
        if one is not None:
            return dict(one)
    raise RequestError(404, "This hit is not kept any more.", field="row", code="unknown")


def overview(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Out of what each process told of all its tenants."""
    names = sorted({name for one in told for name in one["tenants"]})
    found = []
    for name in names:
        known = [one["tenants"][name] for one in told if name in one["tenants"]]
        counts = counts_by_intent(known)
        found.append({"tenant": name, **_standing(known), **evidence(counts, known[0]["target"])})
    return {
        "workers": len(told),
        "off": max((one["off"] for one in told), default=0),
        "tenants": found,
    }


def tenant_of(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Out of what each process told of one tenant; at least one did."""
    one = told[0]
    counts = counts_by_intent(told)
    calibration = one["calibration"] and Calibration.model_validate(one["calibration"])
    costs = one["economics"] and Economics.model_validate(one["economics"])
    total = evidence(counts, one["target"])
    return {
        "workers": len(told),
        **_standing(told),
        **total,
        "by_intent": _by_intent(counts, told),
        "calibration": _calibration(calibration) if calibration else None,
        "economics": worth(total, calibration or None, costs) if costs else None,
        "audit": one["audit"],
        "store_text": one["store_text"],
        "lookups_by_reason": lookups_of(row for each in told for row in each["lookups"]),
        "rows": {kind: sum(each["rows"].get(kind, 0) for each in told) for kind in KINDS},
    }


def rows_of(told: Iterable[Sequence[Mapping[str, Any]] | None]) -> dict[str, Any]:
    """The newest rows of all processes, newest first; `before` asks for those behind them."""
    every = sorted(
        (row for rows in told for row in rows or ()), key=lambda row: row["at"], reverse=True
    )
    shown = every[:ROWS]
    return {"rows": shown, "before": shown[-1]["at"] if len(shown) == ROWS else None}


def _by_intent(
    counts: Mapping[str, Counts], told: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    named = dict.fromkeys((*told[0]["intents"], *sorted(counts)))
    return [
        {
            "intent": intent,
            "open": intent in told[0]["intents"],
            "closed": next((one["closed"][intent] for one in told if intent in one["closed"]), ""),
            **evidence({intent: counts[intent]} if intent in counts else {}, told[0]["target"]),
        }
        for intent in named
    ]


def _standing(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the tier does, as the process sees it that serves least: which one a request meets is
    chance."""
    worst = max(told, key=lambda one: (one["acts_as"] != one["mode"], len(one["closed"])))
    named = ("mode", "acts_as", "reason", "detail", "embedder", "target", "intents", "closed")
    return {name: worst[name] for name in named}


def _calibration(found: Calibration) -> dict[str, Any]:
    measured, step = found.measured, -(-len(found.curve) // _POINTS)
    return {
        "made": found.made.isoformat(),
        "chain": found.fingerprint.chain,
        "embedder": found.embedder,
        "fingerprint": found.fingerprint.embedder[:16],
        "dataset": found.dataset[:16],
        "target": found.target,
        "confidence": found.confidence,
        "threshold": found.threshold,
        "thresholds": {str(intent): one for intent, one in found.intents.items()},
        "needed": found.needed,
        "pairs": measured.pairs,
        "hits": measured.hits,
        "false_hits": measured.false_hits,
        "bound": measured.upper_bound,
        "hit_rate": found.hit_rate,
        "scripts": list(found.scripts),
        "languages": list(found.languages),
        "curve": [
            [one.threshold, one.hits, one.false_hits] for one in found.curve[:: max(1, step)]
        ],
    }


def _named(given: Mapping[str, Any], field: str) -> str:
    value = given.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        raise RequestError(422, f"Give {field} as a text.", field=field)
    return value


def _time(text: str | None) -> float:
    try:
        found = math.inf if text is None else float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise RequestError(422, "before has to be a time in Unix seconds.", field="before")
    return min(found, 1e12)
