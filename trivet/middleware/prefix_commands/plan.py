"""`trivet prefix plan`: which breakpoints and lifetimes pay on recorded traffic, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trivet.middleware.prefix_commands.log import InputPrice, ReadLog
from trivet.middleware.prefix_tier.prompt_record import outline_of_record
from trivet.prefix.markers.plan import (
    AUTO,
    LONGER,
    NONE,
    SHORTER,
    SYSTEM,
    Asked,
    Break,
    Models,
    Paid,
    Plan,
    Way,
    plan,
)
from trivet.prefix.markers.rules import rules_for
from trivet.terminal import plain

_SETTINGS: Final = {
    AUTO: "That is what Trivet does (policy: prefix.mark auto, prefix.ttl auto).",
    SHORTER: "Policy: prefix: {ttl: 5m}.",
    LONGER: "Policy: prefix: {ttl: 1h}.",
    SYSTEM: "Policy: prefix: {mark: [system]}.",
    NONE: "Policy: prefix: {mark: never}.",
}


def planned(log: ReadLog, provider: str, price: InputPrice) -> Plan:
    """The plan for a log, as if all its calls went to `provider`."""
    calls = []
    for row in log.calls:
        assert row.prompt is not None
        outline = outline_of_record(row)
        usage = row.answer.usage
        scale = 1.0 if usage is None else usage.input / max(1, outline.tokens)
        tokens = outline.tokens if usage is None else usage.input
        cost = price(row.model, row.prompt.upstream, tokens)
        calls.append(Asked(row.at, row.tenant, row.prompt.route, outline, scale, cost))
    return plan(calls, provider)


def data_of(made: Plan) -> dict[str, Any]:
    """For JSON."""
    best = made.ways[0]
    return {
        "provider": made.provider,
        "calls": made.calls,
        "input_tokens": round(made.tokens),
        "usd_uncached": None if made.usd is None else round(made.usd, 6),
        "calls_without_price": made.unpriced,
        "takes_breakpoints": made.takes_marks,
        "best": best.name,
        "worth_it": _pays(best, made),
        "saved_share": round(_saved(best, made), 4),
        "ways": [
            {
                "name": way.name,
                **_tokens(list(way.paid.values())),
                "relative_cost": round(way.cost),
                "saved_share": round(_saved(way, made), 4),
                "usd": None if made.usd is None else round(way.usd, 6),
                "refused": way.refused,
                "breakpoints": dict(way.places),
                "by_models": [
                    {
                        "models": list(group.names),
                        **_tokens([way.paid[group.rates]]),
                        "relative_cost": round(way.paid[group.rates].cost),
                    }
                    for group in made.models
                ],
            }
            for way in made.ways
        ],
        "models": [
            {
                "models": list(group.names),
                "read_multiplier": group.rates.read,
                "lifetimes": [one._asdict() for one in group.lifetimes],
            }
            for group in made.models
        ],
    }


def _tokens(paid: Sequence[Paid]) -> dict[str, Any]:
    written: dict[str, float] = {}
    for one in paid:
        for ttl, count in one.written.items():
            written[ttl] = written.get(ttl, 0.0) + count
    return {
        "uncached_tokens": round(sum(one.uncached for one in paid)),
        "read_tokens": round(sum(one.read for one in paid)),
        "written_tokens": {name: round(count) for name, count in written.items()},
    }


def render(made: Plan, model: str) -> str:
    """For a terminal, with the arithmetic."""
    if not made.calls:
        return "No call with the shape of its prompt was recorded (policy: prefix.record)."
    rules = rules_for(made.provider, model)
    lines = [
        f"{made.calls:,} calls, {made.tokens:,.0f} input tokens, as if they went to "
        f"{made.provider} (rules of {rules.as_of}).",
        "Costs are in units of uncached input tokens.",
        "",
        f"  {'breakpoints':<34}{'cost':>14}{'saved':>9}{'USD':>12}",
        _row("everything uncached", made.tokens, 0.0, made.usd),
    ]
    for way in made.ways:
        usd = None if made.usd is None else way.usd
        lines.append(_row(way.name, way.cost, _saved(way, made), usd, way.refused))
    best = made.ways[0]
    if any(way.refused for way in made.ways):
        told = "refused: calls that the provider would have answered with 400; they count as"
        lines += ["", f"{told} uncached."]
    if made.unpriced:
        lines += ["", f"{made.unpriced:,} calls are not in USD: their model's price is not known."]
    lines += ["", *_worth(best, made)]
    for group in made.models if made.takes_marks else ():
        of = f" of {', '.join(group.names)}" if len(made.models) > 1 else ""
        lines += ["", f"Lifetimes{of}:"]
        lines += [_lifetime(one, group.rates.read) for one in group.lifetimes]
    return "\n".join(map(plain, lines))


def _pays(best: Way, made: Plan) -> bool:
    return round(best.cost) < round(made.tokens)


def _saved(way: Way, made: Plan) -> float:
    """Share of the uncached cost; below zero where it costs more."""
    return 1 - way.cost / made.tokens if made.tokens else 0.0


def _row(name: str, cost: float, saved: float, usd: float | None, refused: int = 0) -> str:
    shown = "-" if usd is None else f"{usd:,.4f}"
    more = f"  ({refused:,} refused)" if refused else ""
    return f"  {name:<34}{cost:>14,.0f}{saved:>9.1%}{shown:>12}{more}"


def _worth(best: Way, made: Plan) -> list[str]:
    told = "takes no breakpoints for these models: it caches by itself, and there is nothing to set"
    own = [] if made.takes_marks else [f"{made.provider} {told}."]
    if not _pays(best, made):
        return ["Not worth it: no way is cheaper than everything uncached.", *own]
    head = f"Best: {best.name}." if made.takes_marks else "By itself:"
    said = [
        f"{head} {_saved(best, made):.1%} less than uncached:",
        *_arithmetic(best, made),
    ]
    if own:
        return [*said, *(f"  {one}" for one in own)]
    ends = ", ".join(f"{count:,} at the end of {name}" for name, count in best.places.most_common())
    if ends:
        said.append(f"  Breakpoints: {ends}.")
    if best.name in _SETTINGS:
        said.append(f"  {_SETTINGS[best.name]}")
    return said


def _arithmetic(best: Way, made: Plan) -> list[str]:
    """A line for the models of each price, and their sum where there are several."""
    if len(made.models) == 1:
        return [f"  {_sum(best, made.models[0])}, against {made.tokens:,.0f}."]
    lines = [f"  {', '.join(group.names)}: {_sum(best, group)}" for group in made.models]
    costs = " + ".join(f"{best.paid[group.rates].cost:,.0f}" for group in made.models)
    return [*lines, f"  {costs} = {best.cost:,.0f}, against {made.tokens:,.0f}."]


def _sum(best: Way, group: Models) -> str:
    paid, rates = best.paid[group.rates], group.rates
    writes = {one.name: one.write for one in rates.ttls}
    sums = [f"{paid.uncached:,.0f} uncached", f"{paid.read:,.0f} read x {rates.read:g}"]
    sums += [
        f"{tokens:,.0f} written x {writes[ttl]:g} ({ttl})" for ttl, tokens in paid.written.items()
    ]
    return f"{' + '.join(sums)} = {paid.cost:,.0f}"


def _lifetime(one: Break, read: float) -> str:
    when = "never" if one.request is None else f"from request {one.request} of a prefix on"
    first = one.request or 1
    sums = f"{one.write:g} + {first - 1} x {read:g} = {one.write + (first - 1) * read:g} < {first}"
    seen = [
        f"{share:.0%} of the {what}"
        for what, share in (("prompts were continued", one.turns), ("system prompts came again",
                                                                    one.system))
        if share is not None
    ]  # fmt: skip
    told = "; ".join(seen) or "too few calls to say how many do"
    pays = f"; pays where {one.needed:.0%} come again within {one.seconds:,} s"
    return f"  {one.ttl}: cheaper {when} ({sums}){pays if one.needed > 0 else ''}. Here: {told}."


def model_of(log: ReadLog) -> str:
    """The model of the newest call."""
    return log.calls[-1].model if log.calls else ""
