"""`trivet prefix`: prompts and prefix caches, before and after the fact."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from trivet.progress import busy
from trivet.terminal import say, say_json

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
_file = click.Path(path_type=Path)
_MILLION = 1_000_000


def _input_price() -> Callable[[str, str], float | None]:
    """US dollars for one uncached input token, by model and upstream."""
    from trivet.messages import Usage
    from trivet.middleware.observe.pricing import Pricing

    pricing = Pricing()
    pricing.wait()

    def price(model: str, upstream: str) -> float | None:
        million = pricing.price(model, upstream, Usage(_MILLION, 0))
        return None if million is None else million / _MILLION

    return price


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
    "--provider",
    type=click.Choice(["anthropic", "openai", "gemini", "bedrock", "deepseek"]),
    help="Whose minimum and look-back hold.  [default: by the model's name]",
)
@as_json
def lint(
    requests: tuple[Path, ...], at_least: int | None, provider: str | None, as_json: bool
) -> None:
    """Say where requests part, and why.

    Each file is compared with the one before it. One file alone is looked through for what will
    hardly be the same in the next request: clocks, ids, addresses. Tokens are estimated.
    """
    from trivet.middleware.prefix_commands import lint as prefix_lint

    sys.exit(prefix_lint.lint(requests, at_least, provider, as_json=as_json))


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
@as_json
def plan(logs: tuple[Path, ...], provider: str, as_json: bool) -> None:
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
    with busy("playing the calls through the provider's cache"):
        made = prefix_plan.planned(log, provider, _input_price())
    if as_json:
        say_json(prefix_plan.data_of(made))
    else:
        say(prefix_plan.render(made, prefix_plan.model_of(log)))
