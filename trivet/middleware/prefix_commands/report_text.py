"""A prefix report as text."""

from __future__ import annotations

from trivet.middleware.prefix_commands.report import Break, Report, Route, Spent
from trivet.terminal import plain


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
    if route.unknown:
        lines.append(f"  {route.unknown:,} calls did not report their usage.")
    return lines


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
    saves = "" if one.saving_usd is None else f", {one.saving_usd:,.4f} USD"
    return [
        f"{number}. {one.tenant}, {one.route}: {one.place}: {one.told} ({one.cause})",
        f"   {one.times:,} times; a fix saves about {one.lost_tokens:,} tokens from being read "
        f"anew{saves}.",
        f"   Fix: {one.fix}.",
    ]
