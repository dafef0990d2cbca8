"""`trivet eval gate`: what the gate makes of texts, and how that agrees with labels."""

from __future__ import annotations

from pathlib import Path

import click

from trivet.terminal import say, say_json


def register(group: click.Group) -> None:
    """Add `gate` to `trivet eval`."""
    group.add_command(gate)


@click.command()
@click.argument("texts_file", metavar="TEXTS", type=click.Path(path_type=Path))
@click.option(
    "--open",
    "opened",
    default="informational",
    show_default=True,
    metavar="INTENT,...",
    help="Intents that a policy would let through.",
)
@click.option("--no-vectors", is_flag=True, help="Judge by words alone, as beside other embedders.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def gate(texts_file: Path, opened: str, no_vectors: bool, as_json: bool) -> None:
    """Say of each text in TEXTS (JSON lines with a "text") its intent and whether it may pass.

    Rows that carry a "label" also give a table of labels against what was said.
    """
    from trivet.eval.chains import read_intents
    from trivet.eval.gated import as_table, gate_rows, read_texts

    rows = read_texts(texts_file)
    judged = gate_rows(rows, read_intents(opened), use_vectors=not no_vectors)
    if as_json:
        say_json([one.data for one in judged])
    else:
        say(as_table(judged))
