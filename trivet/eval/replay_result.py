"""What a replay came to: counts, what was saved, and what was risked, by tenant and intent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trivet.policies.calibration import Calibration
from trivet.policies.economics import Economics, margin
from trivet.policies.traffic import RecordedAnswer, Traffic

UNREAD = "(not read)"
"""In the place of an intent where the gate was not asked: exact hits, bypasses, no texts."""


class Played(NamedTuple):
    """What became of one request."""

    row: Traffic
    exact: str
    """`hit`, `collapsed` (it shares the call of an equal request in flight), `miss`, `bypass`."""
    exact_reason: str = ""
    semantic: str = ""
    """`hit`, `miss`, `shadow`, `bypass`; empty where the tier had no part in it."""
    semantic_reason: str = ""
    intent: str = ""
    saved: RecordedAnswer | None = None
    """The answer that was served without a call of its own."""
    differs: bool | None = None
    """Whether the served answer has other words than the recorded fresh one."""
    asked: bool = False
    """Whether the semantic tier looked at the text."""


@dataclass(slots=True)
class Saved:
    """What hits saved. What is not known counts for nothing, and is counted."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    unknown_usage: int = 0
    unknown_price: int = 0
    unknown_seconds: int = 0

    def add(self, answer: RecordedAnswer) -> None:
        """Count an answer that was not asked for again."""
        own = answer.tier == "model" and answer.reason != "assisted"
        usage = answer.usage if answer.tier != "semantic" else None
        if usage is None:
            self.unknown_usage += 1
        else:
            self.input_tokens += usage.input
            self.output_tokens += usage.output
        if usage is None or answer.price is None:
            self.unknown_price += 1
        else:
            self.usd += answer.price
        if own:
            self.seconds += answer.upstream_s
        else:
            self.unknown_seconds += 1

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "usd": round(self.usd, 6),
            "seconds": round(self.seconds, 3),
            "unknown_usage": self.unknown_usage,
            "unknown_price": self.unknown_price,
            "unknown_seconds": self.unknown_seconds,
        }


@dataclass(slots=True)
class Figures:
    """Counts over some requests."""

    requests: int = 0
    exact: Counter[str] = field(default_factory=Counter)
    """By `Played.exact`; semantic hits are misses of the exact tier."""
    exact_reasons: Counter[str] = field(default_factory=Counter)
    semantic: Counter[str] = field(default_factory=Counter)
    semantic_reasons: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    compared: int = 0
    differing: int = 0
    saved: dict[str, Saved] = field(default_factory=dict)
    """By tier: `exact`, `collapsed`, `semantic`."""

    def add(self, played: Played) -> None:
        """Count one request."""
        self.requests += 1
        self.exact[played.exact] += 1
        if played.exact_reason:
            self.exact_reasons[played.exact_reason] += 1
        if played.semantic:
            self.semantic[played.semantic] += 1
        if played.semantic_reason:
            self.semantic_reasons[f"{played.semantic}: {played.semantic_reason}"] += 1
        self.asked += played.asked
        if played.differs is not None:
            self.compared += 1
            self.differing += played.differs
        if played.saved is not None:
            self.saved.setdefault(_tier(played), Saved()).add(played.saved)

    def of(self, tier: str) -> Saved:
        """What a tier saved."""
        return self.saved.get(tier, Saved())

    @property
    def sent(self) -> int:
        """Requests that went to the model."""
        return self.requests - self.exact["hit"] - self.exact["collapsed"] - self.semantic["hit"]


def _tier(played: Played) -> str:
    if played.semantic == "hit":
        return "semantic"
    return "collapsed" if played.exact == "collapsed" else "exact"


class Tally:
    """Figures of all requests, of each tenant, and of each tenant's intents."""

    def __init__(self) -> None:
        self.total = Figures()
        self.tenants: dict[str, Figures] = {}
        self.intents: dict[tuple[str, str], Figures] = {}

    def add(self, played: Played) -> None:
        """Count one request in all its places."""
        tenant, intent = played.row.tenant, played.intent or UNREAD
        self.total.add(played)
        self.tenants.setdefault(tenant, Figures()).add(played)
        self.intents.setdefault((tenant, intent), Figures()).add(played)

    def by_intent(self, tenant: str) -> Iterator[tuple[str, Figures]]:
        """A tenant's intents, by name."""
        for (owner, intent), figures in sorted(self.intents.items()):
            if owner == tenant:
                yield intent, figures


class Risk(NamedTuple):
    """What the semantic hits may have been worth, at worst."""

    upper_bound: float
    """On false hits among hits, from the calibration."""
    confidence: float
    false_hits: float
    """At most so many of the hits are false, if the traffic is like the labelled pairs."""
    over_all: float
    """The same over all requests."""
    differing: float | None
    """Share of the compared hits whose answer had other words than the fresh one."""


def risk_of(figures: Figures, calibration: Calibration | None) -> Risk | None:
    """The risk of the semantic hits; None without a calibration that certifies a threshold."""
    if calibration is None or calibration.threshold is None:
        return None
    bound = calibration.measured.upper_bound
    at_most = bound * figures.semantic["hit"]
    return Risk(
        bound,
        calibration.confidence,
        at_most,
        at_most / figures.requests if figures.requests else 0.0,
        figures.differing / figures.compared if figures.compared else None,
    )


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A finished replay, and what it was of."""

    files: tuple[str, ...]
    embedder: str | None
    """None where the exact tier alone was played."""
    chain: str | None
    calibration: Calibration | None
    costs: Economics | None
    tally: Tally
    span_s: float
    """Seconds between the first request and the last."""
    notes: tuple[str, ...]

    @property
    def margin(self) -> float | None:
        """Saved minus risked per request that the semantic tier looked at, in the costs' currency.

        With the upper bound as f; None where costs, bound, or lookups are missing.
        """
        total = self.tally.total
        risk = risk_of(total, self.calibration)
        if self.costs is None or risk is None or not total.asked:
            return None
        return margin(total.semantic["hit"] / total.asked, risk.upper_bound, self.costs)


def as_json(result: ReplayResult) -> dict[str, Any]:
    """For scripts. Rates are fractions; what is not defined is null."""
    tally, calibration = result.tally, result.calibration
    return {
        "files": list(result.files),
        "embedder": result.embedder,
        "chain": result.chain,
        "calibrated": calibration is not None and calibration.threshold is not None,
        "threshold": None if calibration is None else calibration.threshold,
        "span_seconds": round(result.span_s, 3),
        **_figures(tally.total, calibration),
        "margin_per_lookup": result.margin,
        "tenants": [
            {
                "tenant": tenant,
                **_figures(figures, calibration),
                "intents": [
                    {"intent": intent, **_figures(one, calibration)}
                    for intent, one in tally.by_intent(tenant)
                ],
            }
            for tenant, figures in sorted(tally.tenants.items())
        ],
        "notes": list(result.notes),
    }


def _figures(figures: Figures, calibration: Calibration | None) -> dict[str, Any]:
    exact, semantic = figures.exact, figures.semantic
    risk = risk_of(figures, calibration)
    return {
        "requests": figures.requests,
        "sent": figures.sent,
        "exact": {
            "hits": exact["hit"],
            "hit_rate": rate(exact["hit"], figures.requests),
            "collapsed": exact["collapsed"],
            "bypass": exact["bypass"],
            "reasons": dict(figures.exact_reasons.most_common()),
            "saved": figures.of("exact").as_json(),
            "saved_by_collapse": figures.of("collapsed").as_json(),
        },
        "semantic": {
            "asked": figures.asked,
            "hits": semantic["hit"],
            "hit_rate_of_asked": rate(semantic["hit"], figures.asked),
            "hit_rate_of_all": rate(semantic["hit"], figures.requests),
            "reasons": dict(figures.semantic_reasons.most_common()),
            "saved": figures.of("semantic").as_json(),
            "risk": None if risk is None else risk._asdict(),
            "compared": figures.compared,
            "differing": figures.differing,
        },
    }


def rate(part: int, whole: int) -> float | None:
    """A fraction; None of nothing."""
    return part / whole if whole else None
