"""`trivet eval`: measure before anything is served. Everything heavy is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trivet.eval import (
    calibration_commands,
    economics_commands,
    gate_commands,
    label_commands,
    replay_commands,
)
from trivet.eval.options import cross_encoder
from trivet.terminal import say, say_json

if TYPE_CHECKING:
    from trivet.eval.sweep_result import SweepResult


@click.group("eval")
def eval_group() -> None:
    """Measure what a semantic cache would serve, and how much of it wrongly."""


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> tuple[float, ...]:
    if value is None:
        return ()
    try:
        found = tuple(float(one) for one in value.split(","))
    except ValueError:
        raise click.BadParameter("give numbers with commas between them, like 0.8,0.9") from None
    if not all(abs(one) < float("inf") for one in found):
        raise click.BadParameter("a threshold has to be a finite number")
    return found


def _share(_: click.Context, __: click.Parameter, value: float) -> float:
    if not 0 < value < 1:
        raise click.BadParameter("has to be above 0 and below 1")
    return value


@eval_group.command()
@click.argument("pairs_file", metavar="PAIRS", type=click.Path(path_type=Path))
@click.option(
    "--embedder",
    default="default",
    show_default=True,
    help="bag-of-words, default, a model's name or folder, or openai:URL#MODEL.",
)
@click.option(
    "--chain",
    "chain_name",
    default="cosine",
    show_default=True,
    type=click.Choice(["cosine", "rules", "verifier", "cross-encoder"]),
    help="What scores a pair.",
)
@cross_encoder
@click.option(
    "--thresholds",
    callback=_numbers,
    metavar="T,T,...",
    help="Where to look.  [default: 20 of the scores that occur]",
)
@click.option("--gate", is_flag=True, help="Drop pairs that the gate would not let through.")
@click.option(
    "--open",
    "opened",
    default="informational",
    show_default=True,
    metavar="INTENT,...",
    help="Intents that --gate lets through.",
)
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    callback=_share,
    help="Of the upper bound, one-sided.",
)
@click.option(
    "--nearest",
    default=4,
    show_default=True,
    type=click.IntRange(0),
    help="How many different pairs with high scores to name.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report with pictures to this file too.",
)
def sweep(pairs_file: Path, as_json: bool, html: Path | None, **flags: Any) -> None:
    """Say for every threshold what it would serve of the labelled PAIRS, and how much wrongly.

    PAIRS is JSONL or CSV with the columns a, b and same, and if you have them slice, group and
    context. `hits` are pairs that want the same answer, `false_hits` pairs that do not.
    """
    from trivet.eval import sweep_result

    result = _swept(pairs_file, **flags)
    if html is not None:
        from trivet.eval.report import write_report

        write_report(result, html)
    if as_json:
        say_json(sweep_result.as_json(result))
        return
    from trivet.eval.sweep_text import as_text

    say(as_text(result))
    if html is not None:
        say(f"report: {html}")


def _swept(
    pairs_file: Path,
    embedder: str,
    chain_name: str,
    cross_encoder: str | None,
    gate: bool,
    opened: str,
    **how: Any,
) -> SweepResult:
    from trivet.eval.chains import check_named, check_used, open_eval_chain, read_intents
    from trivet.eval.dropped import dropped
    from trivet.eval.pair_files import load_pairs
    from trivet.eval.scoring import score_pairs
    from trivet.eval.sweep_result import Subject, summarise
    from trivet.progress import busy

    check_named((chain_name,), cross_encoder)
    check_used((chain_name,), cross_encoder)
    admit = read_intents(opened) if gate else None
    file = load_pairs(pairs_file)
    chain = open_eval_chain(embedder, chain_name, gate=gate, cross_encoder=cross_encoder)
    scored = score_pairs(chain, file.pairs, admit)
    subject = Subject(
        file=pairs_file.name,
        dataset=file.digest,
        embedder=embedder,
        chain=chain_name,
        gate=None if admit is None else tuple(admit),
        dropped=None if admit is None else dropped(scored, admit),
        notes=file.notes,
    )
    with busy("sweeping the thresholds"):
        return summarise(subject, scored, **how)


calibration_commands.register(eval_group)
economics_commands.register(eval_group)
replay_commands.register(eval_group)
label_commands.register(eval_group)
gate_commands.register(eval_group)
