"""A replay as text for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trivet.eval.counted import counted
from trivet.eval.replay_result import Figures, ReplayResult, Saved, rate, risk_of
from trivet.eval.side_by_side import one_line, shown

_REASONS = 8
_NAME = 24
_WIDTH = 80


def as_text(result: ReplayResult) -> str:
    """Totals, what each tier saved, the risk in both denominators, tenants and intents."""
    total = result.tally.total
    if not total.requests:
        return "\n\n".join(
            ["No request is recorded in it: there is nothing to replay.", *_notes(result)]
        )
    parts = [
        f"{counted(total.requests, 'request')} over {_duration(result.span_s)}, "
        f"{counted(len(result.tally.tenants), 'tenant')}; {total.sent} would go to the model.",
        "\n".join(_tiers(total)),
        "\n".join(map(_wrapped, _risk(result, total))),
        "\n".join(_reasons(total)),
        "\n".join(_tenants(result)),
        *_notes(result),
    ]
    return shown("\n\n".join(part for part in parts if part))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _tiers(total: Figures) -> Iterator[str]:
    heads = f"{'hits':>8} {'of all':>8} {'tokens saved':>14} {'USD saved':>12} {'s saved':>10}"
    yield f"{'':<10} {heads}"
    rows = (
        ("exact", total.exact["hit"], total.of("exact")),
        ("collapsed", total.exact["collapsed"], total.of("collapsed")),
        ("semantic", total.semantic["hit"], total.of("semantic")),
    )
    for name, hits, saved in rows:
        tokens = saved.input_tokens + saved.output_tokens
        yield (
            f"{name:<10} {hits:>8} {_percent(rate(hits, total.requests)):>8} {tokens:>14,} "
            f"{saved.usd:>12.4f} {saved.seconds:>10.1f}"
        )
    unknown = _unknown([saved for _, _, saved in rows])
    if unknown:
        yield _wrapped(unknown)


def _unknown(all_saved: list[Saved]) -> str:
    counts = (
        (sum(one.unknown_usage for one in all_saved), "usage"),
        (sum(one.unknown_price for one in all_saved), "price"),
        (sum(one.unknown_seconds for one in all_saved), "duration"),
    )
    told = [f"{count} of unknown {what}" for count, what in counts if count]
    return f"In the sums, these hits count for nothing: {', '.join(told)}." if told else ""


def _risk(result: ReplayResult, total: Figures) -> Iterator[str]:
    if result.embedder is None:
        return
    hits = total.semantic["hit"]
    yield (
        f"semantic: {counted(total.asked, 'question')} looked up, {counted(hits, 'hit')} "
        f"({_percent(rate(hits, total.asked))} of those, "
        f"{_percent(rate(hits, total.requests))} of all requests)."
    )
    risk = risk_of(total, result.calibration)
    if risk is None:
        yield "Nothing was served: no calibration certifies a threshold (trivet eval calibrate)."
        return
    yield (
        f"risk: at most {_percent(risk.upper_bound)} of hits false (the calibration's bound, "
        f"confidence {risk.confidence:g}): {risk.false_hits:.1f} of {counted(hits, 'hit')}, "
        f"{_percent(risk.over_all)} of all requests, if this traffic is like the labelled pairs."
    )
    if total.compared:
        yield (
            f"answers: {counted(total.compared, 'hit')} compared with the fresh answer, "
            f"{total.differing} in other words ({_percent(risk.differing)}). "
            "Other words may say the same."
        )
    if result.margin is not None:
        yield f"worth: {result.margin:+.6f} per question looked up, saved less risked."


def _reasons(total: Figures) -> Iterator[str]:
    counts = [*total.semantic_reasons.most_common(_REASONS)]
    counts += [(f"exact: {name}", n) for name, n in total.exact_reasons.most_common(_REASONS)]
    if counts:
        yield "why not:"
    for name, count in counts:
        yield f"  {count:>8}  {one_line(name)}"


def _tenants(result: ReplayResult) -> Iterator[str]:
    heads = f"{'requests':>9} {'exact':>8} {'asked':>8} {'semantic':>9} {'model':>8}"
    yield f"{'tenant / intent':<{_NAME}} {heads}"
    for tenant, figures in sorted(result.tally.tenants.items()):
        yield _row(one_line(tenant), figures)
        if result.embedder is not None:
            for intent, one in result.tally.by_intent(tenant):
                yield _row(f"  {intent}", one)


def _row(name: str, one: Figures) -> str:
    exact = one.exact["hit"] + one.exact["collapsed"]
    return (
        f"{name[:_NAME]:<{_NAME}} {one.requests:>9} {exact:>8} {one.asked:>8} "
        f"{one.semantic['hit']:>9} {one.sent:>8}"
    )


def _notes(result: ReplayResult) -> list[str]:
    return (
        ["\n".join(_wrapped(f"note: {one_line(note)}") for note in result.notes)]
        if result.notes
        else []
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}%"


def _duration(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} seconds"
