"""Calibrations, scores and comparisons as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from trivet.eval.calibrate import TOLD_PAIRS, Calibrated
from trivet.eval.choose import past_help
from trivet.eval.compare import Comparison, coverage
from trivet.eval.counted import counted
from trivet.eval.fit_text import fitted_text
from trivet.eval.score import JudgedPair, Totals
from trivet.eval.side_by_side import one_line, shown
from trivet.policies.calibration import Calibration, Measured

_NAMED = 10
"""Pairs that are told by name."""
_NAME = 20
_NO_GATE = "what the proxy's gate refuses is not left out of these counts: --gate shows it"


def calibrated_text(made: Calibrated) -> str:
    """What was certified and on what, or what is missing; risk, slices, costs, notes."""
    calibration = made.calibration
    parts = [
        _verdict(made),
        _how(made),
        "" if calibration.threshold is None else _slices(calibration.slices),
        _economics(calibration),
        "" if calibration.threshold is None else _held_out(made.held_out),
        "\n".join(fill(f"note: {note}", 79) for note in made.notes),
    ]
    return shown("\n\n".join(part for part in parts if part))


def needed_text(made: Calibrated) -> str:
    """`cannot be certified: ...`; empty where a threshold was certified."""
    if made.calibration.threshold is not None:
        return ""
    missing = made.shortfall
    if missing is None:
        return "cannot be certified: no pair has a score above 0"
    if _past_help(made):
        return "cannot be certified: too many false hits"
    return f"cannot be certified: {counted(missing.pairs, 'more pair')} needed"


def _past_help(made: Calibrated) -> bool:
    calibration, missing = made.calibration, made.shortfall
    return missing is not None and past_help(missing, calibration.target, calibration.confidence)


def _verdict(made: Calibrated) -> str:
    calibration, measured = made.calibration, made.calibration.measured
    promise = f"at most {calibration.target:.2%} false among hits"
    if calibration.threshold is None:
        return "\n".join([needed_text(made), *_missing(made, promise)])
    served = measured.hits - measured.false_hits
    lines = [
        f"certified: from a score of {calibration.threshold:.6f} on, {promise},",
        f"with {calibration.confidence:.0%} confidence",
        f"  same pairs served   {served} of {measured.same} ({coverage(calibration) or 0:.1%})",
        f"  false among hits    {measured.false_hits} of {measured.hits}"
        f" ({measured.false_hit_rate or 0:.2%}), at most {measured.upper_bound:.2%}",
        f"  false among all     {measured.false_hits} of {measured.pairs}"
        f" ({measured.false_hits / measured.pairs:.2%})",
    ]
    for intent, threshold in calibration.intents.items():
        lines.append(f"  {intent} alone: from {threshold:.6f} on")
    return "\n".join(lines)


def _missing(made: Calibrated, promise: str) -> Iterator[str]:
    missing, calibration = made.shortfall, made.calibration
    yield f"  wanted: {promise}, with {calibration.confidence:.0%} confidence"
    if missing is None:
        return
    seen = f"{counted(missing.false_hits, 'false hit')} among {missing.served}"
    rate = missing.false_hits / missing.served
    yield f"  the nearest to it is a threshold with {seen} hits ({rate:.1%})"
    if _past_help(made):
        yield (
            "  more pairs like these will hardly help: look at the labels, or try another\n"
            "  chain, another embedder, --gate, or a higher target"
        )
        return
    yield (
        f"  it takes {counted(missing.hits, 'more hit')} without a false one: "
        f"{counted(missing.pairs, 'pair')}, at the share of pairs\n  that it serves"
    )


def _how(made: Calibrated) -> str:
    calibration = made.calibration
    gate = calibration.gated
    gated = "" if gate is None else f", gate open to {', '.join(gate)}"
    nearest = "" if calibration.threshold is not None else "nearest: "
    lines = [
        f"{nearest}chain {calibration.fingerprint.chain} over embedder {calibration.embedder}"
        + gated,
        f"{counted(calibration.measured.pairs, 'pair')} "
        + _part(calibration)
        + (f", {counted(made.chosen_on, 'other')} chose" if made.chosen_on else ""),
        fill(_NO_GATE if made.dropped is None else made.dropped.text, 79, subsequent_indent="  "),
    ]
    for name, served in made.prospects.items():
        same = counted(round(served), "same pair")
        lines.append(f"  {name:<14} served {same} of those, near the target")
    if calibration.fitted is not None:
        lines.append(fill(fitted_text(calibration.fitted), 79, subsequent_indent="  "))
    lines.append(fill(_scripts(calibration.scripts), 79, subsequent_indent="  "))
    return "\n".join(lines)


def _scripts(told: Sequence[str]) -> str:
    if told:
        return f"writing systems: {', '.join(told)}; a text in another is a miss (script-unseen)"
    return (
        f"writing systems: none is in {TOLD_PAIRS} pairs or more, so a text with letters is a miss "
        f"(script-unseen): label {TOLD_PAIRS} pairs in each system that your callers write in"
    )


def _part(calibration: Calibration) -> str:
    if calibration.threshold is None:
        return "looked at"
    return "certifies" if calibration.measured.pairs == 1 else "certify"


def _slices(slices: Mapping[str, Measured]) -> str:
    if not slices:
        return ""
    lines = [f"{'by slice':<{_NAME}}  {'pairs':>6}  {'same served':>12}  {'false hits':>12}"]
    for name, found in slices.items():
        served = f"{found.hits - found.false_hits}/{found.same}" if found.same else "-"
        wrong = f"{found.false_hits}/{found.pairs - found.same}"
        wrong = "-" if found.pairs == found.same else wrong
        lines.append(
            f"{one_line(name)[:_NAME]:<{_NAME}}  {found.pairs:>6}  {served:>12}  {wrong:>12}"
        )
    return "\n".join(lines)


def _economics(calibration: Calibration) -> str:
    costs, rate = calibration.economics, calibration.hit_rate
    if costs is None or rate is None or calibration.worth_it is None:
        return ""
    bound = calibration.measured.upper_bound
    saved = rate * costs.call_cost
    risked = costs.lookup_cost + rate * bound * costs.false_hit_cost
    told = "worth it" if calibration.worth_it else "not worth it"
    return (
        f"{told}: per request it saves h*c = {saved:.6g} and risks l + h*f*w = {risked:.6g},\n"
        f"with h {rate:.4g}, c {costs.call_cost:g}, l {costs.lookup_cost:g}, "
        f"w {costs.false_hit_cost:g} and the bound {bound:.4g} as f"
    )


def _held_out(found: Measured | None) -> str:
    if found is None:
        return ""
    return (
        f"held out, with no part in this: {counted(found.pairs, 'pair')}\n"
        f"  same pairs served   {found.hits - found.false_hits} of {found.same}\n"
        f"  false among hits    {found.false_hits} of {found.hits}"
    )


def scored_text(
    calibration: Calibration, judged: Sequence[JudgedPair], found: Totals, slices: dict[str, Totals]
) -> str:
    """Totals in both denominators, slices, and the false hits by name."""
    measured = {
        name: Measured(
            pairs=one.pairs,
            same=one.same,
            hits=one.hits,
            false_hits=one.false_hits,
            upper_bound=one.upper_bound,
        )
        for name, one in slices.items()
    }
    threshold = calibration.threshold
    head = "nothing: no threshold is certified" if threshold is None else f"from {threshold:.6f} on"
    lines = [
        f"chain {calibration.fingerprint.chain} serves {head}",
        *_counts(found, calibration.confidence),
    ]
    parts = ["\n".join(lines), _slices(measured), _false_hits(judged)]
    return shown("\n\n".join(part for part in parts if part))


def _counts(found: Totals, confidence: float) -> Iterator[str]:
    yield f"  same pairs served   {found.served_same} of {found.same} ({found.coverage or 0:.1%})"
    rate = "-" if found.false_hit_rate is None else f"{found.false_hit_rate:.2%}"
    bound = f"{found.upper_bound:.2%}" if found.hits else "-"
    yield (
        f"  false among hits    {found.false_hits} of {found.hits} ({rate}),"
        f" {confidence:.0%} bound {bound}"
    )
    yield (
        f"  false among all     {found.false_hits} of {found.pairs} ({found.false_over_all:.2%})"
    )


def _false_hits(judged: Sequence[JudgedPair]) -> str:
    wrong = sorted(
        (one for one in judged if one.false_hit), key=lambda one: one.score or 0, reverse=True
    )
    if not wrong:
        return ""
    lines = [f"{one.score:.4f}  {_arrow(one.pair.a, one.pair.b)}" for one in wrong[:_NAMED]]
    left = [f"and {len(wrong) - _NAMED} more"] if len(wrong) > _NAMED else []
    return "\n".join(["served wrongly:", *lines, *left])


def compared_text(found: Comparison) -> str:
    """Both calibrations beside each other, pairs that changed sides, and the verdict."""
    parts = [_sides(found), _carry(found), _changed(found)]
    if found.worse:
        parts.append("\n".join(["worse:", *(f"  {reason}" for reason in found.worse)]))
    else:
        parts.append("not worse")
    return shown("\n\n".join(part for part in parts if part))


def _sides(found: Comparison) -> str:
    rows = [("", "old", "new")]
    old, new = _column(found.old), _column(found.new)
    rows += [(name, old[name], new[name]) for name in old]
    if found.served is not None:
        before, after = [
            "not there" if one is None else f"{one.served_same} same, {one.false_hits} false"
            for one in found.served
        ]
        rows.append(("of the pairs given", before, after))
    return "\n".join(f"{name:<20}{one:<28}{other}".rstrip() for name, one, other in rows)


def _column(calibration: Calibration) -> dict[str, str]:
    measured, print_ = calibration.measured, calibration.fingerprint
    threshold = calibration.threshold
    return {
        "made": calibration.made.isoformat(),
        "chain": print_.chain,
        "embedder": f"{one_line(calibration.embedder)[:14]} {print_.embedder[:8]}",
        "verifier": (print_.verifier or "-")[:8],
        "gate": (print_.gate or "-")[:8],
        "pairs": f"{measured.pairs} (sha256 {calibration.dataset[:8]})",
        "promise": f"{calibration.target:.2%} at {calibration.confidence:.0%}",
        "threshold": "not certified" if threshold is None else f"{threshold:.6f}",
        "same served": f"{coverage(calibration) or 0:.1%}",
        "false among hits": f"{measured.false_hits} of {measured.hits}",
        "bound": f"{measured.upper_bound:.2%}" if measured.hits else "-",
    }


def _carry(found: Comparison) -> str:
    if found.same_chain:
        return "One chain: its scores mean the same in both."
    told = "The chains differ, so the old threshold means nothing to the new one."
    carried = found.carried
    if carried is None:
        return told
    return (
        f"{told}\nKept, it would serve {carried.served_same} of "
        f"{counted(carried.same, 'same pair')}, and {carried.false_hits} of "
        f"{counted(carried.hits, 'hit')} would be false."
    )


def _changed(found: Comparison) -> str:
    if found.served is None:
        return "" if found.same_chain else "Give --pairs to see which pairs change sides."
    if found.served[0] is None:
        return "The old chain is there no more: which pairs change sides cannot be told."
    if not found.changed:
        return "No pair changes sides."
    lines = [
        f"  {'now' if one.served else 'no more':<8}{'same' if one.same else 'FALSE':<6}"
        f"{_arrow(one.a, one.b)}  {one.reason}"
        for one in found.changed[:_NAMED]
    ]
    left = len(found.changed) - _NAMED
    return "\n".join(
        [
            "1 pair changes sides:"
            if len(found.changed) == 1
            else f"{len(found.changed)} pairs change sides:",
            *lines,
            *([f"  and {left} more (--json has all)"] if left > 0 else []),
        ]
    )


def _arrow(a: str, b: str) -> str:
    return f"'{one_line(a)}'  ->  '{one_line(b)}'"
