"""A prefix report as text."""

from __future__ import annotations

from typing import Final

from trivet.middleware.prefix_commands.report import Break, Report, Route, Spent
from trivet.terminal import plain

_WHY: Final = {
    "no-mark": "without a breakpoint",
    "new": "began like no earlier one",
    "pending": "came before an earlier one's answer had begun",
    "expired": "came after the earlier one had expired",
    "look-back": "had no breakpoint that looks back so far",
}
"""Of `Billed.why`."""


def render(made: Report) -> str:
    """The report for a terminal."""
    lines: list[str] = []
    for (tenant, name), route in made.routes.items():
        lines += [*_route(tenant, name, route), ""]
    if not made.routes:
        lines += ["No call with the shape of its prompt was recorded (policy: prefix.record).", ""]
    if made.shapeless:
        lines += [f"{made.shapeless:,} calls have no shape: an older version recorded them.", ""]
    if made.worst:
        lines.append("The breaks that lost most:")
        for number, one in enumerate(made.worst, 1):
            lines += _break(number, one)
    elif made.routes:
        lines.append("No prompt parted from an earlier one sooner than it had to.")
    rest = {cause: count for cause, count in made.causes.items() if count}
    if rest:
        told = ", ".join(f"{cause} {count:,}" for cause, count in rest.items())
        lines += ["", f"By cause: {told}."]
    return "\n".join(map(plain, lines)).rstrip()


def _route(tenant: str, name: str, route: Route) -> list[str]:
    spent = route.spent
    rate = f"{spent.read / spent.tokens:.1%}" if spent.tokens else "not known"
    lines = [
        f"{tenant}, {name}: {route.calls:,} calls, {spent.tokens:,} input tokens",
        f"  read from a cache: {rate} of the input tokens",
        "",
        f"  {'rules of':<22}{'read':>8}{'written':>9}{'cost':>8}{'USD':>12}",
        _row("as billed", spent),
        _row("no cache", route.uncached),
    ]
    lines += [_row(provider, under) for provider, under in route.under.items()]
    lines += [
        f"  {provider} reads nothing: {_why(under)}."
        for provider, under in route.under.items()
        if not under.read and under.unread
    ]
    if spent.unpriced or route.uncached.unpriced:
        count = max(spent.unpriced, route.uncached.unpriced)
        lines.append(f"  {count:,} calls are not in USD: their model's price is not known.")
    if route.unknown:
        lines.append(f"  {route.unknown:,} calls did not report their usage.")
    return lines


def _why(spent: Spent) -> str:
    told = dict(_WHY, **{"below-minimum": f"below the minimum of {spent.minimum:,} tokens"})
    return ", ".join(
        f"{count:,} calls {told.get(why, why)}" for why, count in spent.unread.most_common()
    )


def _row(name: str, spent: Spent) -> str:
    if not spent.tokens:
        return f"  {name:<22}{'-':>8}{'-':>9}{'-':>8}{'-':>12}"
    read, written, cost = (
        f"{value / spent.tokens:.1%}" for value in (spent.read, spent.written, spent.relative)
    )
    usd = "-" if spent.unpriced and not spent.usd else f"{spent.usd:,.4f}"
    more = f"  ({spent.refused:,} refused)" if spent.refused else ""
    return f"  {name:<22}{read:>8}{written:>9}{cost:>8}{usd:>12}{more}"


def _break(number: int, one: Break) -> list[str]:
    usd = "" if one.saving_usd is None else f", {one.saving_usd:,.4f} USD"
    saves = f"a fix saves about {one.lost_tokens:,} tokens from being read anew{usd}"
    shares = f"about {one.lost_tokens:,} tokens came again, in prompts too short for the cache"
    return [
        f"{number}. {one.tenant}, {one.route}: {one.place}: {one.told} ({one.cause})",
        f"   {one.times:,} times; {saves if one.mends else shares}.",
        f"   Fix: {one.fix}.",
    ]
