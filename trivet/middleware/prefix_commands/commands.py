"""`trivet prefix`: prompts and prefix caches, before and after the fact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trivet.progress import busy
from trivet.terminal import say, say_json

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
_file = click.Path(path_type=Path)

if TYPE_CHECKING:
    from trivet.middleware.prefix_commands.log import InputPrice


def _input_price() -> InputPrice:
    from trivet.middleware.observe.pricing import Pricing

    pricing = Pricing()
    pricing.wait()
    return pricing.input_price


@click.group("prefix")
def prefix_group() -> None:
    """Why a prompt's prefix is, or is not, read from the model's cache."""


@prefix_group.command()
@click.argument("requests", nargs=-1, required=True, type=_file, metavar="REQUEST.json...")
@click.option(
    "--at-least",
    type=click.IntRange(0),
    metavar="TOKENS",
    help="Exit with 1 where two part sooner, or one file has changing text sooner."
    "  [default: 1000, or the model's minimum if that is more]",
)
@click.option(
    "--max-lost",
    type=click.IntRange(0),
    metavar="TOKENS",
    help="Exit with 1, too, where a break loses more tokens that both have behind it.",
)
@click.option(
    "--provider",
    type=click.Choice(["anthropic", "openai", "gemini", "bedrock", "deepseek"]),
    help="Whose minimum and look-back hold.  [default: by the model's name]",
)
@as_json
def lint(requests: tuple[Path, ...], provider: str | None, as_json: bool, **bounds: Any) -> None:
    """Say where requests part, and why.

    Each file is compared with the one before it. One file alone is looked through for what will
    hardly be the same in the next request: clocks, ids, addresses. Tokens are estimated.
    """
    from trivet.middleware.prefix_commands import lint as prefix_lint

    gate = prefix_lint.Gate(**bounds)
    if len(requests) == 1 and gate.max_lost is not None:
        raise click.UsageError("--max-lost compares two requests: give another file.")
    sys.exit(prefix_lint.lint(requests, gate, provider, as_json=as_json))


@prefix_group.command()
@click.argument("logs", nargs=-1, required=True, type=_file, metavar="LOG.jsonl...")
@as_json
def report(logs: tuple[Path, ...], as_json: bool) -> None:
    """Say what recorded traffic read from prefix caches, what that cost, and what broke it.

    Record traffic by `prefix: {record: true}` in a policy.
    """
    from trivet.middleware.prefix_commands.log import read_log
    from trivet.middleware.prefix_commands.report import report as made_of
    from trivet.middleware.prefix_commands.report_text import render

    with busy("reading the log"):
        log = read_log(logs)
    for note in log.notes:
        say(note, err=True)
    with busy("playing the calls through each provider's cache"):
        made = made_of(log, _input_price())
    if as_json:
        say_json(made.data())
    else:
        say(render(made))


@prefix_group.command()
@click.argument("logs", nargs=-1, required=True, type=_file, metavar="LOG.jsonl...")
@click.option(
    "--provider",
    type=click.Choice(["anthropic", "openai", "gemini", "bedrock", "deepseek"]),
    required=True,
    help="Whose rules hold.",
)
@click.option("--tenant", "tenants", multiple=True, help="Only this tenant's calls.")
@click.option("--route", "routes", multiple=True, help="Only this route's calls.")
@click.option("--model", "models", multiple=True, help="Only this model's calls.")
@as_json
def plan(logs: tuple[Path, ...], provider: str, as_json: bool, **only: tuple[str, ...]) -> None:
    """Say which breakpoints and lifetimes pay for recorded traffic, and whether any do.

    The calls are played through a model of the provider's documented cache, each way to set
    breakpoints once. Record traffic by `prefix: {record: true}` in a policy.
    """
    from trivet.middleware.prefix_commands import plan as prefix_plan
    from trivet.middleware.prefix_commands.log import read_log

    with busy("reading the log"):
        log = read_log(logs)
    for note in log.notes:
        say(note, err=True)
    every, log = log, log.of(**only)
    if every.calls and not log.calls:
        raise click.UsageError("The log holds no call of that --tenant, --route and --model.")
    with busy("playing the calls through the provider's cache"):
        made = prefix_plan.planned(log, provider, _input_price())
    if as_json:
        say_json(prefix_plan.data_of(made))
    else:
        say(prefix_plan.render(made, prefix_plan.model_of(log)))
