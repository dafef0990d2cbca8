"""`trivet eval calibrate`, `score` and `compare`. Everything heavy is imported when it runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import click

from trivet.eval.options import cross_encoder, cross_encoder_of
from trivet.terminal import say, say_json

FINDING = 1
_CHAINS = ("auto", "cosine", "rules", "verifier", "fitted", "cross-encoder")


class _Within(click.FloatRange):
    """A range of finite numbers."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail("is not a finite number", param, ctx)
        return found


_SHARE = _Within(0, 1, min_open=True, max_open=True)
_COST = _Within(0)
_path = click.Path(path_type=Path)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
_gate = click.option("--gate", is_flag=True, help="Drop pairs that the gate would not let through.")
_intents = click.option(
    "--intents",
    "--open",
    "opened",
    default="informational",
    show_default=True,
    metavar="INTENT,...",
    help="Intents that --gate lets through.",
)


def register(group: click.Group) -> None:
    """Add the three commands to `trivet eval`."""
    for command in (calibrate, score, compare):
        group.add_command(command)


def _hit_rate(_: click.Context, __: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value == "pairs":
        return value
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise click.BadParameter("has to be from 0 to 1, or the word pairs")
    return found


@click.command()
@click.argument("pairs_file", metavar="PAIRS", type=_path)
@click.option(
    "--target-false-hits", "target", type=_SHARE, required=True, help="Among hits, like 0.02."
)
@click.option("--confidence", type=_SHARE, default=0.95, show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE"
)
@click.option(
    "--chain",
    "chain_name",
    type=click.Choice(_CHAINS),
    default="auto",
    show_default=True,
    help="What scores a pair; fitted: the verifier behind weights of its own for these pairs. "
    "auto picks from cosine, rules, verifier, fitted, and the cross-encoder that --cross-encoder "
    "names.",
)
@click.option("--embedder", default="default", show_default=True, help="As in `sweep`.")
@cross_encoder
@_gate
@_intents
@click.option(
    "--holdout",
    type=_Within(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of the pairs to leave out, and to measure at the end.",
)
@click.option(
    "--hit-rate",
    callback=_hit_rate,
    metavar="H|pairs",
    help="Share of all requests that hit (from `replay`); pairs: the share of these pairs.",
)
@click.option("--call-cost", type=_COST, help="c: one model call.")
@click.option("--lookup-cost", type=_COST, default=0.0, show_default=True, help="l: per request.")
@click.option("--false-hit-cost", type=_COST, help="w: what one wrong answer costs.")
@_as_json
def calibrate(pairs_file: Path, output: Path, as_json: bool, **flags: Any) -> None:
    """Find the threshold that serves most of the labelled PAIRS and keeps the target.

    The file that it writes names everything that was measured; a policy's `calibration` names the
    file. Exit code 1: the target cannot be certified with these pairs (nothing would be served).
    """
    from trivet.eval import calibration_runs as runs
    from trivet.eval.chains import check_used
    from trivet.eval.whole_file import write_whole

    chain = flags.pop("chain_name")
    check_used(("cross-encoder",) if chain == "auto" else (chain,), flags["cross_encoder"])
    made = runs.calibrated(pairs_file, chain, runs.read_wanted(**flags))
    write_whole(output, made.calibration.model_dump_json(indent=2) + "\n")
    if as_json:
        say_json(runs.calibrated_json(made))
    else:
        from trivet.eval.calibration_text import calibrated_text

        say(f"{calibrated_text(made)}\n\nwritten: {output}")
    if made.calibration.threshold is None:
        sys.exit(FINDING)


@click.command()
@click.argument("pairs_file", metavar="PAIRS", type=_path)
@click.option("--calibration", "calibration_file", type=_path, required=True, metavar="FILE")
@click.option("--embedder", help="Another name for it.  [default: the calibration's]")
@cross_encoder_of
@click.option(
    "--gate", is_flag=True, help="Let the gate filter even where it did not for the calibration."
)
@click.option(
    "--intents",
    "--open",
    "opened",
    metavar="INTENT,...",
    help="Intents that the gate lets through.  [default: the calibration's, or informational]",
)
@_as_json
def score(pairs_file: Path, calibration_file: Path, as_json: bool, **flags: Any) -> None:
    """Say what a calibration serves of other labelled PAIRS, decided as in production."""
    from trivet.eval import calibration_runs as runs
    from trivet.eval import score as scoring
    from trivet.eval.pair_files import load_pairs
    from trivet.policies.calibration import load_calibration

    calibration = load_calibration(calibration_file)
    pairs = load_pairs(pairs_file).pairs
    judged = runs.judged(calibration, str(calibration_file), pairs, runs.Opening(**flags))
    if as_json:
        say_json(scoring.as_json(calibration, judged))
        return
    from trivet.eval.calibration_text import scored_text

    found = scoring.totals(judged, calibration.confidence)
    slices = scoring.by_slice(judged, calibration.confidence)
    say(scored_text(calibration, judged, found, slices))


@click.command()
@click.argument("old_file", metavar="OLD", type=_path)
@click.argument("new_file", metavar="NEW", type=_path)
@click.option("--pairs", "pairs_file", type=_path, help="Pairs to run through both.")
@click.option(
    "--embedder", default="default", show_default=True, help="To calibrate, where NEW is pairs."
)
@click.option(
    "--chain",
    "chain",
    type=click.Choice(_CHAINS),
    default="auto",
    show_default=True,
    help="To calibrate, where NEW is pairs.",
)
@cross_encoder
@_as_json
def compare(
    old_file: Path, new_file: Path, pairs_file: Path | None, as_json: bool, **flags: Any
) -> None:
    """Say what a changed model changes: calibration OLD against calibration NEW.

    NEW may be labelled pairs: --embedder is then calibrated on them, at the target and confidence
    of OLD. Exit code 1: the new one is worse.
    """
    from trivet.eval.calibration_runs import Anew, compared
    from trivet.eval.compare import as_json as told

    found = compared(old_file, new_file, pairs_file, Anew(**flags))
    if as_json:
        say_json(told(found))
    else:
        from trivet.eval.calibration_text import compared_text

        say(compared_text(found))
    if found.worse:
        sys.exit(FINDING)
