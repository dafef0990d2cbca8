"""`trivet eval economics`: the worked examples as a calculator; each flag defaults to them."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from trivet.terminal import say, say_json

if TYPE_CHECKING:
    from trivet.eval.worked import Worked

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
_MOST = 1e15


class _Number(click.FloatRange):
    """A range that NaN is not in."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail("is not a number", param, ctx)
        return found


_TOKENS = click.IntRange(0, int(_MOST))
_SOME = click.IntRange(1, 1_000_000)
_RATE = _Number(0, 1)
_COST = _Number(0, _MOST)
_read = click.option(
    "--read", type=_COST, default=0.1, show_default=True, help="Price of a cache read, times input."
)


def register(group: click.Group) -> None:
    """Add `economics` to `trivet eval`."""
    group.add_command(economics)


def _tell(worked: Worked, as_json: bool) -> None:
    from trivet.eval.worked import as_text

    if as_json:
        say_json(worked.data)
    else:
        say(as_text([worked]))


@click.group(invoke_without_command=True)
@_as_json
@click.pass_context
def economics(context: click.Context, as_json: bool) -> None:
    """Work out what caching costs and saves. Without a COMMAND: all the worked examples."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError("Put --json behind the command's name.")
        return
    from trivet.eval.worked import as_text, examples

    worked = examples()
    if as_json:
        listed = [{"name": one.name, "title": one.title, **one.data} for one in worked]
        say_json(listed)
    else:
        say(as_text(worked))


@economics.command("agent-step")
@click.option("--tokens", type=_TOKENS, default=40_000, show_default=True, help="Whole prompt.")
@click.option(
    "--unchanged", type=_TOKENS, default=34_000, show_default=True, help="Same as one step before."
)
@click.option("--price", type=_COST, default=3.0, show_default=True, help="$ per million tokens.")
@_read
@click.option(
    "--write", type=_COST, default=1.25, show_default=True, help="Price of a write, times input."
)
@click.option("--steps", type=_SOME, default=30, show_default=True, help="Steps of the task.")
@_as_json
def agent_step(steps: int, as_json: bool, **step: float) -> None:
    """Input cost of an agent's step with and without prefix caching."""
    from trivet.eval import worked
    from trivet.eval.economics import Step

    if step["unchanged"] > step["tokens"]:
        raise click.UsageError("--unchanged cannot be more than --tokens.")
    tokens, unchanged = int(step.pop("tokens")), int(step.pop("unchanged"))
    _tell(worked.agent_step(Step(tokens, unchanged, **step), steps), as_json)


@economics.command("break-even")
@click.option(
    "--write",
    "writes",
    type=_COST,
    multiple=True,
    default=(1.25, 2.0),
    show_default=True,
    help="Price of a write, times input; may be given more than once.",
)
@_read
@_as_json
def break_even(writes: tuple[float, ...], read: float, as_json: bool) -> None:
    """Say from which request on a cached prefix is cheaper than none."""
    from trivet.eval import worked

    _tell(worked.break_even(writes, read), as_json)


@economics.command()
@click.option("--layers", type=_SOME, default=80, show_default=True)
@click.option("--kv-heads", type=_SOME, default=8, show_default=True)
@click.option("--head-dim", type=_SOME, default=128, show_default=True)
@click.option("--bits", type=click.Choice(["4", "8", "16", "32"]), default="16", show_default=True)
@click.option("--tokens", type=_TOKENS, default=32_000, show_default=True, help="Of one prefix.")
@_as_json
def kv(layers: int, kv_heads: int, head_dim: int, bits: str, tokens: int, as_json: bool) -> None:
    """Memory that the keys and values of a prefix hold."""
    from trivet.eval import worked

    _tell(worked.kv((layers, kv_heads, head_dim), int(bits), tokens), as_json)


@economics.command()
@click.option(
    "--absorbed",
    type=_Number(0, 1, max_open=True),
    default=0.4,
    show_default=True,
    help="Share of the requests that the cache answers.",
)
@_as_json
def flush(absorbed: float, as_json: bool) -> None:
    """Load on the model after the cache was emptied."""
    from trivet.eval import worked

    _tell(worked.flush(absorbed), as_json)


@economics.command("worth-it")
@click.option("--hit-rate", type=_RATE, default=0.3, show_default=True, help="h")
@click.option(
    "--call-cost",
    type=_Number(0, _MOST, min_open=True),
    default=0.01,
    show_default=True,
    help="c, $: one model call.",
)
@click.option(
    "--lookup-cost", type=_COST, default=0.0002, show_default=True, help="l, $: every request."
)
@click.option(
    "--false-hit-rate",
    type=_RATE,
    default=0.02,
    show_default=True,
    help="f, among hits: give the upper bound, not the estimate.",
)
@click.option(
    "--false-hit-cost", type=_COST, default=0.1, show_default=True, help="w, $: one wrong answer."
)
@_as_json
def worth_it(hit_rate: float, false_hit_rate: float, as_json: bool, **costs: float) -> None:
    """Say whether a semantic cache pays: h * c > l + h * f * w. Exit code 1 where it does not."""
    from trivet.eval import worked
    from trivet.eval.economics import Worth
    from trivet.policies.economics import Economics

    worth = Worth(hit_rate, false_hit_rate, Economics(**costs))
    _tell(worked.worth_it(worth), as_json)
    if not worth.worth_it:
        sys.exit(1)
