"""`trivet eval replay`: what the tiers would have made of recorded traffic."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trivet.eval.counted import counted
from trivet.terminal import say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trivet.eval.memo import Memo
    from trivet.eval.replay import How
    from trivet.eval.replay_result import Tally
    from trivet.eval.traffic_files import TrafficFiles
    from trivet.policies.calibration import Calibration
    from trivet.policies.semantic_model import SemanticPolicy
    from trivet.policies.traffic import Traffic
    from trivet.semantic.chain import Chain

_COMMIT = 256
"""Requests after which the state is made durable."""
_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the signal's number."""
_FAILED = ("semantic-failed", "verifier-crash", "verifier-open")


def register(group: click.Group) -> None:
    """Add the command to `trivet eval`."""
    group.add_command(replay)


def _lifetime(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    from pydantic import TypeAdapter, ValidationError

    from trivet.policies.model_base import Seconds

    if value is None:
        return None
    try:
        number: float | str = float(value)
    except ValueError:
        number = value
    try:
        found: float = TypeAdapter(Seconds).validate_python(number)
    except ValidationError:
        raise click.BadParameter("give seconds, or a number with s, m, h or d, like 12h") from None
    return found


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    "calibration_file",
    type=click.Path(path_type=Path),
    help="What trivet eval calibrate wrote.  [default: the policy's]",
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    help="Policy file whose semantic section every tenant is played with.",
)
@click.option(
    "--chain",
    "chain_name",
    type=click.Choice(["cosine", "rules", "verifier", "cross-encoder"]),
    help="What scores a pair.  [default: the calibration's, else cosine]",
)
@click.option(
    "--cross-encoder",
    metavar="NAME",
    help="As in a policy.  [default: the policy's, else the calibration's]",
)
@click.option("--embedder", help="As in a policy.  [default: the policy's]")
@click.option("--ttl", callback=_lifetime, help="Lifetime of every answer.  [default: as recorded]")
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Answers that the exact store holds.",
)
@click.option(
    "--resume",
    "state_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep what the models said in this file; give it again to go on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def replay(logs: tuple[Path, ...], as_json: bool, state_file: Path | None, **flags: Any) -> None:
    """Play the recorded requests in LOG... through the real tiers with a fresh store.

    LOG... are files that the proxy wrote for tenants with `semantic.record: true`, older ones
    included (traffic.jsonl traffic.jsonl.1 ...), in any order. Each request finds only what was
    asked and answered before it. Where questions are redacted, the exact tier alone is played.
    """
    from trivet.eval import replay_result, replay_text
    from trivet.eval.replay_result import ReplayResult, Tally
    from trivet.eval.traffic_files import open_traffic

    files = open_traffic(logs)
    how, chain = _how(files, **flags)
    tally, span = Tally(), [0.0, 0.0]
    try:
        _play(files, how, chain, (tally, span), state_file)
    except KeyboardInterrupt:
        say(_interrupted(tally.total.requests, len(files), state_file), err=True)
        sys.exit(_INTERRUPTED)
    calibration = how.policy.measured
    if chain is None or calibration is None or calibration.fingerprint != chain.fingerprint:
        calibration = None
    result = ReplayResult(
        files=tuple(str(path) for path in logs),
        embedder=None if chain is None else how.policy.embedder,
        chain=None if chain is None else chain.name,
        calibration=calibration,
        costs=how.policy.economics or (calibration.economics if calibration else None),
        tally=tally,
        span_s=span[1] - span[0],
        notes=(*files.notes, *_notes(files, how, chain), *_failures(tally)),
    )
    if as_json:
        say_json(replay_result.as_json(result))
    else:
        say(replay_text.as_text(result))


def _how(
    files: TrafficFiles,
    calibration_file: Path | None,
    policy_file: Path | None,
    chain_name: str | None,
    embedder: str | None,
    cross_encoder: str | None,
    **how: Any,
) -> tuple[How, Chain | None]:
    """What to play under, and the open chain; None where no text is recorded."""
    from trivet.eval.chains import check_named, check_used, open_eval_chain
    from trivet.eval.replay import How
    from trivet.policies.calibration import load_calibration
    from trivet.policies.loader import load_policy
    from trivet.policies.semantic_model import SemanticPolicy

    own = SemanticPolicy() if policy_file is None else load_policy(policy_file).semantic
    changes = {"mode": "replace", "embedder": embedder or own.embedder}
    policy = own.model_copy(update=changes)
    if calibration_file is not None:
        policy.attach(load_calibration(calibration_file))
    measured = policy.measured
    name = chain_name or ("cosine" if measured is None else measured.fingerprint.chain)
    check_used((name,), cross_encoder)
    named = cross_encoder or own.cross_encoder
    if named is None and measured is not None:
        named = measured.cross_encoder
    check_named((name,), named)
    if not files.texts:
        return How(policy, **how), None
    chain = open_eval_chain(
        policy.embedder,
        name,
        gate=True,
        cross_encoder=named,
        fitted=None if measured is None else measured.fitted,
    )
    return How(policy, **how), chain


def _play(
    files: TrafficFiles,
    how: How,
    chain: Chain | None,
    into: tuple[Tally, list[float]],
    state_file: Path | None,
) -> None:
    import asyncio

    from trivet.eval.memo import Memo
    from trivet.eval.remembered import remembered
    from trivet.progress import watched

    rows = watched(files, len(files), "replaying")
    if chain is None:
        asyncio.run(_count(rows, how, None, into))
        return
    memo = Memo(state_file, chain.fingerprint.model_dump_json())
    try:
        asyncio.run(_count(rows, how, (remembered(chain, memo), memo), into))
    finally:
        memo.close()


async def _count(
    rows: Iterable[Traffic],
    how: How,
    models: tuple[Any, Memo] | None,
    into: tuple[Tally, list[float]],
) -> None:
    from contextlib import aclosing

    from trivet.eval.replay import replay as play

    tally, span = into
    async with aclosing(play(rows, how, models[0] if models else None)) as played:
        async for one in played:
            if not tally.total.requests:
                span[0] = one.row.at
            span[1] = one.row.at
            tally.add(one)
            if models and tally.total.requests % _COMMIT == 0:
                models[1].commit()
        if models:
            models[1].commit()


def _interrupted(done: int, count: int, state_file: Path | None) -> str:
    told = f"Interrupted after {done} of {counted(count, 'request')}"
    if state_file is None:
        return f"{told}. With --resume FILE it can go on later."
    again = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"{told}; {state_file} has what was found out.\nGo on with: {again}"


def _notes(files: TrafficFiles, how: How, chain: Chain | None) -> list[str]:
    if not len(files):
        return []
    if chain is None:
        return [
            "no question's text is recorded (semantic.store_text is off), so the exact tier "
            "alone was played."
        ]
    notes = _calibration_notes(how.policy, chain, how.policy.measured)
    missing = len(files) - files.texts
    if missing:
        notes.append(
            f"{missing} of {counted(len(files), 'request')} without a recorded question: redacted, "
            "or not one that the semantic tier is asked about."
        )
    return notes


def _failures(tally: Tally) -> list[str]:
    failed = sum(tally.total.semantic_reasons[f"miss: {reason}"] for reason in _FAILED)
    if not failed:
        return []
    return [
        f"{counted(failed, 'lookup')} failed, since a model raised what it should not: no measure."
    ]


def _calibration_notes(
    policy: SemanticPolicy, chain: Chain, calibration: Calibration | None
) -> list[str]:
    if calibration is None:
        return ["without --calibration the semantic tier looks up and serves nothing."]
    if calibration.fingerprint != chain.fingerprint:
        parts = [
            name
            for name, value in chain.fingerprint.model_dump().items()
            if getattr(calibration.fingerprint, name) != value
        ]
        return [
            f"the calibration is of another chain (other {', '.join(parts)} than "
            f"{policy.embedder}, {chain.name}), so the semantic tier serves nothing."
        ]
    if calibration.threshold is None:
        return ["the calibration certifies no threshold, so the semantic tier serves nothing."]
    return []
