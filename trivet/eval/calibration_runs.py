"""What `calibrate`, `score` and `compare` do with their flags. Imports numpy: imported late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trivet.errors import ConfigError, EmbedderError, Problem
from trivet.eval.calibrate import Calibrated, Wanted, auto, calibrate
from trivet.eval.calibration_text import needed_text
from trivet.eval.chains import check_named, open_eval_chains, read_intents
from trivet.eval.compare import Comparison, compare
from trivet.eval.pair_files import load_pairs
from trivet.eval.pairs import LabelledPair
from trivet.eval.score import JudgedPair, judge_pairs, other_parts
from trivet.policies.calibration import Calibration, load_calibration
from trivet.policies.economics import Economics
from trivet.policies.intents import Intent


def calibrated(pairs_file: Path, chain_name: str, wanted: Wanted) -> Calibrated:
    """Calibrate on a file. Raises `ConfigError`, `EmbedderError`, and as `check_named` does."""
    names = auto(wanted) if chain_name == "auto" else (chain_name,)
    if chain_name in ("auto", "fitted"):
        wanted = replace(wanted, fit="offer" if chain_name == "auto" else "only")
    if chain_name == "fitted":
        names = ("cosine",)  # What is fitted has yet to be; it takes the embedder and the gate.
    check_named(names, wanted.cross_encoder)
    file = load_pairs(pairs_file)
    chains = open_eval_chains(wanted.embedder, names, gate=True, cross_encoder=wanted.cross_encoder)
    return calibrate(chains, file, wanted, datetime.now(UTC).date())


def read_wanted(gate: bool, opened: str, hit_rate: float | str | None, **how: Any) -> Wanted:
    """The flags of `calibrate`. Raises `UsageError` for costs that lack one another."""
    call, lookup, wrong = (how.pop(name) for name in ("call_cost", "lookup_cost", "false_hit_cost"))
    return Wanted(
        **how,
        admit=read_intents(opened) if gate else None,
        hit_rate=hit_rate if isinstance(hit_rate, float) else None,
        hit_rate_from_pairs=hit_rate == "pairs",
        costs=_costs(call, lookup, wrong),
    )


def _costs(call: float | None, lookup: float, wrong: float | None) -> Economics | None:
    if call is None and wrong is None and not lookup:
        return None
    if not call or wrong is None:
        raise click.UsageError("Give --call-cost, above 0, and --false-hit-cost together.")
    return Economics(call_cost=call, lookup_cost=lookup, false_hit_cost=wrong)


def calibrated_json(made: Calibrated) -> dict[str, Any]:
    """The artefact and how it came about, for scripts."""
    missing, held_out = made.shortfall, made.held_out
    return {
        **made.calibration.model_dump(mode="json"),
        "certified": made.calibration.threshold is not None,
        "needed_pairs": None if missing is None else missing.pairs,
        "message": needed_text(made),
        "chosen_on": made.chosen_on,
        "prospects": dict(made.prospects),
        "gate_drops": None if made.dropped is None else made.dropped.data,
        "held_out": None if held_out is None else held_out.model_dump(mode="json"),
        "notes": list(made.notes),
    }


@dataclass(frozen=True, slots=True)
class Opening:
    """How `score` opens what a calibration names. None: as the calibration says."""

    embedder: str | None = None
    cross_encoder: str | None = None
    gate: bool = False
    """Filter even where the calibration's gate did not."""
    opened: str | None = None


def judged(
    calibration: Calibration, name: str, pairs: Sequence[LabelledPair], how: Opening
) -> list[JudgedPair]:
    """Decide about pairs by a calibration. Raises `ConfigError`, with `name`, for another chain."""
    fingerprint = calibration.fingerprint
    (chain,) = open_eval_chains(
        how.embedder or calibration.embedder,
        (fingerprint.chain,),
        gate=fingerprint.gate is not None or how.gate,
        cross_encoder=how.cross_encoder or calibration.cross_encoder,
        fitted=calibration.fitted,
    )
    other = other_parts(calibration, chain)
    if other:
        told = f"was made with another {' and '.join(other)}: calibrate again"
        raise ConfigError(Problem(name, 0, 0, "fingerprint", told))
    return judge_pairs(calibration, chain, pairs, _admitted(calibration, how))


def _admitted(calibration: Calibration, how: Opening) -> tuple[Intent, ...] | None:
    if calibration.gated is None and not how.gate:
        return None
    if how.opened is not None:
        return read_intents(how.opened)
    return calibration.gated or (Intent.INFORMATIONAL,)


@dataclass(frozen=True, slots=True)
class Anew:
    """How `compare` calibrates, where it is given pairs in place of a new calibration."""

    chain: str
    embedder: str
    cross_encoder: str | None


def compared(old_file: Path, new_file: Path, pairs_file: Path | None, anew: Anew) -> Comparison:
    """Compare two calibrations, or one and what `anew` makes of the pairs in `new_file`."""
    old = load_calibration(old_file)
    if _is_pairs(new_file):
        new, pairs_file = _calibrated_anew(old, new_file, anew), pairs_file or new_file
    else:
        new = load_calibration(new_file)
    if pairs_file is None:
        return compare(old, new)
    pairs = load_pairs(pairs_file).pairs
    before = _judged_if_there(old, pairs, _as_named(old, anew))
    how = _as_named(new, anew)
    after = judged(new, str(new_file), pairs, how)
    kept = new.model_copy(update={"threshold": old.threshold, "intents": {}})
    return compare(old, new, (before, after), judged(kept, str(new_file), pairs, how))


def _as_named(calibration: Calibration, anew: Anew) -> Opening:
    """Each with its own cross-encoder; the flag is for a calibration that names none."""
    return Opening(cross_encoder=calibration.cross_encoder or anew.cross_encoder)


def _judged_if_there(
    old: Calibration, pairs: Sequence[LabelledPair], how: Opening
) -> list[JudgedPair] | None:
    """None where the old model was replaced or taken away, which is no trouble of the new one."""
    try:
        return judged(old, "", pairs, how)
    except (ConfigError, EmbedderError):
        return None


def _is_pairs(path: Path) -> bool:
    """A calibration is one JSON object; pairs are CSV, or objects with `a` and `b`, one a line."""
    if path.suffix.lower() in (".csv", ".jsonl"):
        return True
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return path.suffix.lower() != ".json"
    return isinstance(found, dict) and {"a", "b"} <= found.keys()


def _calibrated_anew(old: Calibration, pairs_file: Path, anew: Anew) -> Calibration:
    wanted = Wanted(
        target=old.target,
        confidence=old.confidence,
        embedder=anew.embedder,
        cross_encoder=anew.cross_encoder,
        admit=old.gated,
        hit_rate=old.hit_rate,
        costs=old.economics,
    )
    return calibrated(pairs_file, anew.chain, wanted).calibration
