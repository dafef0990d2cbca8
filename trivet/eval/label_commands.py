"""`trivet eval label`: pairs of recorded questions, or of the proxy's queue, for a person."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trivet.eval.counted import counted
from trivet.eval.options import cross_encoder_of
from trivet.terminal import say

if TYPE_CHECKING:
    from trivet.eval.candidates import Candidate
    from trivet.eval.judge import Judge
    from trivet.eval.labels import Answer, LabelFile
    from trivet.eval.queue_files import Queue
    from trivet.policies.fitted import Fitted

_NEAR = 0.9


def register(group: click.Group) -> None:
    """Add the command to `trivet eval`."""
    group.add_command(label)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which pairs to sample."""

    logs: tuple[Path, ...]
    near: float
    count: int
    embedder: str
    chain: str
    cross_encoder: str | None
    fitted: Fitted | None
    gate: bool


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "pairs_file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSONL file that labels are appended to.",
)
@click.option("--near", type=float, help="Threshold to sample around.  [default: 0.9]")
@click.option(
    "--calibration",
    "calibration_file",
    type=click.Path(path_type=Path),
    help="Take threshold and chain from this calibration.",
)
@click.option("--count", type=click.IntRange(0), default=100, show_default=True)
@click.option(
    "--chain",
    "chain_name",
    type=click.Choice(["cosine", "rules", "verifier", "cross-encoder"]),
    help="What scores a pair.  [default: the calibration's, else cosine]",
)
@cross_encoder_of
@click.option("--embedder", default="default", show_default=True, help="As in a policy.")
@click.option("--gate", is_flag=True, help="Leave out what the gate would not let through.")
@click.option(
    "--file",
    "sheet",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the pairs to this CSV or JSONL file to fill in; if it is there, read it back.",
)
@click.option("--judge", "judge_name", metavar="openai:URL#MODEL", help="Compare a model with you.")
@click.option("--judge-labels", is_flag=True, help="Let the judge label, in place of you.")
@click.option(
    "--admin", metavar="URL", help="Send your verdicts on the queue to the proxy that runs there."
)
@click.option("--admin-key", envvar="TRIVET_ADMIN_KEY", help="[env: TRIVET_ADMIN_KEY]")
def label(
    logs: tuple[Path, ...],
    pairs_file: Path,
    sheet: Path | None,
    judge_name: str | None,
    judge_labels: bool,
    **which: Any,
) -> None:
    """Sample pairs of recorded questions around a threshold, and have them labelled.

    Each pair is a question in LOG... and the nearest earlier one of the same tenant with all else
    equal. Most are sampled around the threshold, where a label tells most: a rate among these
    pairs is not the rate in the traffic. Texts have to be recorded (`semantic.store_text: true`).

    LOG... may be the proxy's label queue instead (labels/TENANT.jsonl in its state directory): hits
    that were drawn at random, with both answers. They come in the order of time; the options that
    sample and score have no part in it. With `judge: {kind: person}` in the policy, --admin lets
    the running measurement count what you said: each hit once, and a hit that you called different
    is served no more. What a proxy took is noted in the output file's name with .sent at its end.
    """
    from trivet.eval.judge import EndpointJudge
    from trivet.eval.labels import LabelFile

    if judge_labels and (judge_name is None or sheet is not None):
        raise click.UsageError("--judge-labels needs --judge, and goes without --file.")
    admin, admin_key = which.pop("admin"), which.pop("admin_key")
    judge = None if judge_name is None else EndpointJudge(judge_name)
    labels = LabelFile(pairs_file)
    queue = _queue(logs)
    if admin is not None and queue is None:
        raise click.UsageError("--admin goes with the proxy's label queue.")
    wanted = _wanted(logs, queue, **which)
    if sheet is not None and sheet.exists():
        _read_back(sheet, labels, wanted.near)
    else:
        pairs = _sampled(wanted, labels) if queue is None else _waiting(queue, wanted, labels)
        if not pairs:
            say("No pair is left to label.", err=True)
        elif sheet is not None:
            _write_out(sheet, pairs)
        elif judge is not None and judge_labels:
            _judge_labels(judge, pairs, labels, wanted.near)
        else:
            _session(pairs, labels, wanted.near)
    if judge is not None:
        _report(judge, labels)
        judge.close()
    if admin is not None and queue is not None:
        _send(queue, labels, pairs_file, (admin, admin_key))


def _queue(logs: tuple[Path, ...]) -> Queue | None:
    """What waits in the files; None where they are recorded traffic."""
    from trivet.eval.queue_files import queues_of, read_queues

    queues = queues_of(logs)
    if not queues:
        return None
    if len(queues) < len(logs):
        raise click.UsageError("Give recorded traffic or label queues, not both at once.")
    return read_queues(queues)


def _send(queue: Queue, labels: LabelFile, pairs_file: Path, admin: tuple[str, str | None]) -> None:
    from trivet.eval.verdicts import SentFile, given, send, sentence

    if not queue.waiting:
        say("No hit in the queue waits for you: its judge is not `person`.", err=True)
        return
    sent = SentFile(pairs_file.with_name(f"{pairs_file.name}.sent"))
    verdicts, unsure = given(queue.waiting, labels.labels, sent)
    told = f" ({counted(unsure, 'hit')} with `?` left out)" if unsure else ""
    if not verdicts:
        say(f"No verdict is left to send{told}.")
        return
    url, key = admin
    outcomes = send(url, key or "", verdicts, sent)
    count = counted(len(verdicts), "verdict")
    say(f"{count} sent to {url}{told}: {sentence(outcomes)}.")


def _waiting(queue: Queue, wanted: _Wanted, labels: LabelFile) -> list[Candidate]:
    for note in queue.notes:
        say(f"note: {note}", err=True)
    return [pair for pair in queue.pairs if pair.id not in labels.labels][: wanted.count]


def _wanted(
    logs: tuple[Path, ...],
    queue: Queue | None,
    near: float | None,
    calibration_file: Path | None,
    chain_name: str | None,
    cross_encoder: str | None,
    **which: Any,
) -> _Wanted:
    from trivet.eval.chains import check_named, check_used
    from trivet.policies.calibration import load_calibration

    measured = None if calibration_file is None else load_calibration(calibration_file)
    if near is None and measured is not None:
        near = measured.threshold
    if near is None and queue is not None:
        near = queue.threshold
    near = _NEAR if near is None else near
    chain = chain_name or ("cosine" if measured is None else measured.fingerprint.chain)
    check_used((chain,), cross_encoder)
    if measured is not None:
        cross_encoder = cross_encoder or measured.cross_encoder
    check_named((chain,), cross_encoder)
    return _Wanted(
        logs=logs,
        near=near,
        chain=chain,
        cross_encoder=cross_encoder,
        fitted=None if measured is None else measured.fitted,
        **which,
    )


def _sampled(wanted: _Wanted, labels: LabelFile) -> list[Candidate]:
    from trivet.eval.candidates import Gate, find_candidates, stratified
    from trivet.eval.chains import open_eval_chain
    from trivet.eval.memo import Memo
    from trivet.eval.remembered import remembered
    from trivet.eval.traffic_files import open_traffic
    from trivet.policies.intents import Intent
    from trivet.progress import watched

    files = open_traffic(wanted.logs)
    for note in files.notes:
        say(f"note: {note}", err=True)
    if not files.texts:
        say("No question's text is recorded (semantic.store_text is off).", err=True)
        return []
    chain = open_eval_chain(
        wanted.embedder,
        wanted.chain,
        gate=wanted.gate,
        cross_encoder=wanted.cross_encoder,
        fitted=wanted.fitted,
    )
    gate = Gate((Intent.INFORMATIONAL,)) if wanted.gate else None
    rows = watched(files, len(files), "looking for pairs")
    with closing(Memo(None, "")) as memo:
        found = find_candidates(rows, *remembered(chain, memo), gate)
    return stratified(found, wanted.near, wanted.count, labels.labels)


def _session(pairs: Sequence[Candidate], labels: LabelFile, near: float) -> None:
    from trivet.eval.keys import keyboard
    from trivet.eval.label import Terminal
    from trivet.eval.label import label as ask

    width = shutil.get_terminal_size().columns
    with keyboard() as key:
        done = ask(pairs, labels, near, Terminal(key, say, width, "[{}]".format))
    say(f"{done.labelled} labelled, {done.left} left of this sample.")


def _write_out(sheet: Path, pairs: Sequence[Candidate]) -> None:
    from trivet.eval.label_sheet import write_sheet

    write_sheet(sheet, pairs)
    count = counted(len(pairs), "pair")
    say(f"{count} in {sheet}: fill in `same` with s, d or ?, and run this again.")


def _read_back(sheet: Path, labels: LabelFile, near: float) -> None:
    from trivet.eval.label_sheet import read_sheet

    filled = read_sheet(sheet)
    new = [one for one in filled if one.pair.id not in labels.labels]
    for pair, answer in new:
        labels.add(pair, answer, "person", near)
    known = len(filled) - len(new)
    before = counted(known, "was", "were")
    say(f"{counted(len(new), 'label')} read from {sheet}; {before} known already.")


def _judge_labels(judge: Judge, pairs: Sequence[Candidate], labels: LabelFile, near: float) -> None:
    from trivet.progress import watched

    for pair in watched(pairs, len(pairs), "judging"):
        labels.add(pair, judge.says(pair.a, pair.b), "judge", near)
    say(f"{counted(len(pairs), 'pair')} labelled by {judge.name}.")


def _report(judge: Judge, labels: LabelFile) -> None:
    """Ask the judge about every pair that a person labelled, and say how far the two agree."""
    from trivet.eval.judge import agreement
    from trivet.progress import watched

    persons = [one for one in labels.labels.values() if one.by == "person"]
    if not persons:
        say("No pair has a person's label: there is nothing to compare the judge with.")
        return
    answers: list[tuple[Answer, Answer]] = []
    for one in watched(persons, len(persons), "judging"):
        person: Answer = "unsure" if one.unsure else "same" if one.same else "different"
        answers.append((person, "unsure" if one.unsure else judge.says(one.a, one.b)))
    found = agreement(answers)
    share = "-" if found.agreement is None else f"{found.agreement:.1%}"
    kappa = "not defined" if found.kappa is None else f"{found.kappa:.3f}"
    say(
        f"judge {judge.name} and person on {counted(found.pairs, 'pair')}: agreement {share}, "
        f"Cohen's kappa {kappa}\n"
        f"  both same {found.both_same}, both different {found.both_different}, "
        f"only person same {found.only_person_same}, only judge same {found.only_judge_same}, "
        f"unsure {found.unsure}"
    )
