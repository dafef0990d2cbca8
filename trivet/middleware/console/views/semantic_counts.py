"""What the running measurement of all processes comes to: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trivet.policies.calibration import Calibration
from trivet.policies.economics import Economics, margin
from trivet.semantic.confidence import audits_to_open, upper
from trivet.semantic.tally import Counts, Rules

_ALPHA: Final = Rules().alpha
_SERVED: Final = ("hit", "assist", "shadow")
_MEANINGS: Final = {
    "tools": "offers tools to the model (semantic.tools)",
    "turns": "is too far into a conversation (semantic.max_turns)",
    "multi-part": "the last message is not one text",
    "empty": "the last message is empty",
    "too-long": "the last message is longer than what is compared",
    "too-large": "the request is larger than what is read again",
    "not-a-question": "the last message is not the user's",
    "unreadable": "the request cannot be read",
    "api": "an API without a last user message",
    "unsure": "the gate is not sure of the intent",
    "script-unseen": "in a writing system that the calibration did not see",
    "language-unseen": "in a language that the calibration did not see",
    "intent-action": "something is to be done",
    "intent-permission": "the answer depends on what the asker may see or do",
    "intent-time": "the answer changes with the clock",
    "intent-personal": "the answer depends on who asks",
    "intent-creative": "a new answer is wanted each time",
    "intent-context": "leans on what was said before",
    "intent-informational": "informational, which the policy leaves closed",
    "no-neighbour": "no stored question is near",
    "below-threshold": "the nearest question scores below the threshold",
    "expired": "the nearest question has expired",
    "quarantine": "the nearest question is not confirmed by others yet",
    "no-answer": "the nearest question's answer is gone",
    "tags": "the answer lacks the tags of this request",
    "index-building": "the index is still being read in",
    "loading": "the models are being loaded",
    "mode": "the policy says shadow",
    "uncalibrated": "the policy names no calibration",
    "other-chain": "the calibration is of another chain than the one that runs",
    "not-certified": "the calibration certifies no threshold",
    "bound": "closed: the running bound is above the target",
    "economics": "closed: it does not pay",
    "reports": "closed: too many hits were called wrong",
    "starting": "the running measurement is not read in yet",
}
_BEGINNINGS: Final = {
    "veto-": "a rule objects: the two questions differ in their ",
    "rule-": "a rule of the gate refuses it: ",
    "embedder-": "the embedder failed: ",
    "unread-": "the gate cannot read it: ",
    "unsure-": "the gate is not sure, and leans to ",
}


def counts_by_intent(told: Sequence[Mapping[str, Any]]) -> dict[str, Counts]:
    """The counts of all processes by intent.

    Those of one book are in one store: there each process knows nearly all, and the one that knows
    most counts. Books of their own add up.
    """
    books: dict[str, dict[tuple[str, str], Counts]] = {}
    for at, one in enumerate(told):
        known = books.setdefault(one["book"] or f"process {at}", {})
        for family, intent, *counted in one["cells"]:
            before = known.get((family, intent), Counts())
            known[family, intent] = Counts(*map(max, before, counted))
    found: dict[str, Counts] = {}
    for known in books.values():
        for (_, intent), counts in known.items():
            found[intent] = found.get(intent, Counts()).plus(counts)
    return found


def evidence(counts: Mapping[str, Counts], target: float) -> dict[str, Any]:
    """The sums, and the bound on false hits among hits that holds at any time."""
    total = Counts()
    for one in counts.values():
        total = total.plus(one)
    false_hits = min(total.false_hits, total.audits)
    return {
        **total._asdict(),
        "bound": upper(total.audits, false_hits, _ALPHA) if total.audits else None,
        "confidence": 1 - _ALPHA,
        "enough": audits_to_open(target, _ALPHA),
    }


def worth(
    total: Mapping[str, Any], calibration: Calibration | None, costs: Economics
) -> dict[str, Any]:
    """What the hits since the calibration saved, and risked, with the upper bound on false hits:
    the running one once it rests on as many audits as can bring it under the target, before that
    the calibration's. `saved` is h*c, `risked` is l + h*f*w, each times the lookups."""
    hits, lookups = int(total["hits"]), int(total["lookups"])
    settled = total["bound"] is not None and total["audits"] >= total["enough"]
    rate, source = (total["bound"], "running") if settled else (None, "")
    if not settled and calibration is not None:
        rate, source = calibration.measured.upper_bound, "calibration"
    risked = None
    if rate is not None and lookups:
        per_request = margin(hits / lookups, rate, costs)
        risked = hits * costs.call_cost - lookups * per_request
    return {
        "call_cost": costs.call_cost,
        "lookup_cost": costs.lookup_cost,
        "false_hit_cost": costs.false_hit_cost,
        "rate": rate,
        "source": source,
        "saved": hits * costs.call_cost,
        "risked": risked,
    }


def lookups_of(rows: Iterable[Sequence[Any]]) -> dict[str, list[dict[str, Any]]]:
    """Lookups by what came of them, most first. `rows` are intent, kind, reason and count."""
    found: dict[str, Counter[tuple[str, str, str]]] = {
        "served": Counter(),
        "refused": Counter(),
        "missed": Counter(),
    }
    for intent, kind, reason, count in rows:
        group = "served" if kind in _SERVED else "refused" if kind == "bypass" else "missed"
        found[group][kind, intent, reason] += count
    return {
        group: [
            {
                "kind": kind,
                "intent": intent,
                "reason": reason,
                "meaning": meaning(reason),
                "count": count,
            }
            for (kind, intent, reason), count in counted.most_common()
        ]
        for group, counted in found.items()
    }


def meaning(reason: str) -> str:
    """A reason in words; empty where there are none for it."""
    if reason in _MEANINGS:
        return _MEANINGS[reason]
    for beginning, words in _BEGINNINGS.items():
        if reason.startswith(beginning):
            return words + reason.removeprefix(beginning).replace("-", " ")
    return ""
