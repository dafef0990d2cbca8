"""`trivet warm`: recorded traffic into a cold deployment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from trivet.errors import ConfigError, Problem
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.prefix_commands.warm_plan import Warm, WarmPlan, plan_warm
from trivet.middleware.prefix_commands.warming import (
    Deployment,
    Forecast,
    Progress,
    Warmer,
    told_as_data,
)
from trivet.policies.header_names import API_KEY_HEADERS, is_identity
from trivet.policies.traffic import Traffic, read_line
from trivet.progress import busy
from trivet.terminal import plain, say, say_json

_KEY = "TRIVET_WARM_KEY"
_SAYS = {
    "no-key": "of tenants whose API key was not given",
    "no-price": "whose price is not known, so that no budget can hold",
    "over-budget": "that could cost more than is left of the budget",
    "failed": "failed",
}


def run(log: Path, url: str, budget_usd: float | None, *, as_json: bool, **given: Any) -> bool:
    """Do what the command says; False where a request failed. `given` are its other options.

    Raises `click.UsageError` and `ConfigError`.
    """
    with busy("reading the log"):
        plan = plan_warm(_rows(log, frozenset(given["tenants"])))
    _check(plan, log, given["tenants"])
    shown = {"rows": plan.rows, "planned": len(plan.picked), "no_body": plan.no_body}
    shown["worthless"] = plan.worthless
    sent = _headers(given["headers"], several=len(plan.tenants) > 1)
    keys = {} if given["dry_run"] else _keys(given["keys"], plan)
    progress = Progress(log.with_name(log.name + ".warm"))
    if given["again"]:
        progress.forget()
    pricing = Pricing()
    pricing.wait()
    deployment = Deployment(url, keys, sent, given["key_header"])
    warmer = Warmer(deployment, progress, budget_usd, pricing)
    if given["dry_run"]:
        _dry_run(warmer, plan, shown, as_json=as_json)
        return True
    with click.progressbar(
        plan.picked, label="warming", file=sys.stderr, hidden=as_json or not sys.stderr.isatty()
    ) as bar:
        for one in bar:
            warmer.warm(one)
    told = told_as_data(warmer.told, shown)
    if as_json:
        say_json(told)
    else:
        say(_text(told))
    return not warmer.told.left["failed"]


def _rows(log: Path, tenants: frozenset[str]) -> Iterator[Traffic]:
    with log.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                row = read_line(line, str(log), number)
                if not tenants or row.tenant in tenants:
                    yield row


def _check(plan: WarmPlan, log: Path, tenants: tuple[str, ...]) -> None:
    absent = [one for one in tenants if one not in plan.tenants]
    if absent:
        raise click.UsageError(f"--tenant: the log holds no request of {_named(absent)}.")
    if plan.picked or plan.worthless:
        return
    message = (
        f"none of its {plan.rows} requests holds a body, so nothing can be sent again: "
        "`prefix: {record: true, keep_text: true}` in a tenant's policy records them"
    )
    raise ConfigError(Problem(str(log), 0, 0, "prompt.body", message))


def _keys(given: tuple[str, ...], plan: WarmPlan) -> dict[str, str]:
    """The key of each tenant with something to send: a prompt never goes out under another
    tenant's, for the proxy would store its answer there."""
    own = {}
    for one in given:
        tenant, found, variable = one.rpartition("=")
        if not found or not tenant:
            raise click.UsageError(f"--key {one!r}: give TENANT=VARIABLE.")
        own[tenant] = _variable(variable)
    sending = sorted({one.tenant for one in plan.picked})
    if len(plan.tenants) == 1 and os.environ.get(_KEY):
        own = {**dict.fromkeys(sending, _variable(_KEY)), **own}
    missing = [one for one in sending if one not in own]
    if missing:
        raise click.UsageError(_no_key(missing, alone=len(plan.tenants) == 1))
    keys = {tenant: own[tenant] for tenant in sending}
    shared = [one for one in sending if list(keys.values()).count(keys[one]) > 1]
    if shared:
        raise click.UsageError(
            f"--key: {_named(shared)} cannot have the same API key: a key is of one tenant."
        )
    return keys


def _no_key(missing: list[str], *, alone: bool) -> str:
    if alone:
        return f"Set {_KEY} to the API key of {_named(missing)}, or give --key TENANT=VARIABLE."
    return (
        f"The log holds requests of several tenants, and no API key was given of "
        f"{_named(missing)}: give `--key TENANT=VARIABLE` for each, or send one tenant's "
        f"requests only, with `--tenant T`. {_KEY} is for a log of one tenant."
    )


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise click.UsageError(f"--key: the environment variable {name} is not set.")
    if not value.isascii() or not value.isprintable():
        raise click.UsageError(
            f"The environment variable {name} is no API key: it has characters "
            "that no header may have."
        )
    return value


def _headers(given: tuple[str, ...], *, several: bool) -> dict[str, str]:
    """Headers of every request: none that tells whose it is, if they are of several tenants."""
    made = {}
    for one in given:
        name, found, value = one.partition(":")
        if not found or not name.strip():
            raise click.UsageError(f"--header {one!r}: give 'NAME: VALUE'.")
        name = name.strip().lower()
        raw = name.encode()
        if raw in API_KEY_HEADERS:
            raise click.UsageError(f"--header {name}: keys are given with --key TENANT=VARIABLE.")
        if several and (is_identity(raw) or "tenant" in name):
            raise click.UsageError(
                f"--header {name}: it may tell tenants apart, and would go with the requests of "
                "several: send one tenant's only, with `--tenant T`."
            )
        made[name] = value.strip()
    return made


def _dry_run(warmer: Warmer, plan: WarmPlan, shown: dict[str, int], *, as_json: bool) -> None:
    foreseen = [(one, warmer.foresee(one)) for one in plan.picked]
    told = told_as_data(warmer.told, shown)
    would = {name: told[name] for name in (*shown, "sent_before", "spent_before_usd", "left")}
    would["would_send"] = told["sent"]
    would["most_usd"] = round(told["spent_usd"] - told["spent_before_usd"], 6)
    would["unpriced"] = sum(not seen.left and seen.most_usd is None for _, seen in foreseen)
    if as_json:
        rows = [_row(one, seen) for one, seen in foreseen]
        say_json({**would, "tenants": sorted(plan.tenants), "requests": rows})
        return
    say(_planned(would))
    for one, seen in foreseen[:20]:
        say(_line(one, seen))
    if len(foreseen) > 20:
        say(f"  and {len(foreseen) - 20} more (--json shows all)")
    say(_would(would))


def _row(one: Warm, seen: Forecast) -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "key": one.key,
        "model": one.model,
        "times": one.times,
        "entry_tokens": one.entry_tokens,
        "prefix_tokens": one.prefix_tokens,
        "most_usd": seen.most_usd,
        "left": seen.left,
    }


def _line(one: Warm, seen: Forecast) -> str:
    most = "price unknown" if seen.most_usd is None else f"${seen.most_usd:.4f}"
    left = f"  ({seen.left})" if seen.left else ""
    named = f"{plain(one.tenant)}  {plain(one.model)}  {one.key[:12]}"
    return f"  {one.value:>12,} tokens  {one.times:>5} times  {most:>13}  {named}{left}"


def _would(would: dict[str, Any]) -> str:
    lines = [
        f"{would['would_send']:,} would be sent, for ${would['most_usd']:.4f} at most; "
        f"{would['sent_before']:,} sent by earlier runs, which spent "
        f"${would['spent_before_usd']:.4f}."
    ]
    if would["unpriced"]:
        lines.append(f"The price of {would['unpriced']:,} is not known and not in that sum.")
    return "\n".join(lines + _left(would))


def _planned(shown: dict[str, Any]) -> str:
    return (
        f"{shown['rows']:,} recorded requests: {shown['planned']:,} are worth sending, "
        f"{shown['worthless']:,} are not, {shown['no_body']:,} have no body."
    )


def _text(told: dict[str, Any]) -> str:
    lines = [
        _planned(told),
        f"{told['sent']:,} sent, {told['already_warm']:,} were warm, "
        f"{told['sent_before']:,} sent by earlier runs; ${told['spent_usd']:.4f} spent in all, "
        f"${told['spent_before_usd']:.4f} of it by earlier runs.",
        f"Worth {told['saved_tokens']:,} tokens where the traffic comes again.",
        *_left(told),
    ]
    if told["first_error"]:
        lines.append(f"First failure: {plain(told['first_error'])}")
    return "\n".join(lines)


def _left(told: dict[str, Any]) -> list[str]:
    return [f"{count:,} left out: {_SAYS[reason]}." for reason, count in told["left"].items()]


def _named(tenants: list[str]) -> str:
    more = f" and {len(tenants) - 20} more" if len(tenants) > 20 else ""
    return ", ".join(plain(one) for one in tenants[:20]) + more
