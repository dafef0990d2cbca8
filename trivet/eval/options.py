"""Options that several commands of `trivet eval` have."""

from __future__ import annotations

import click

cross_encoder = click.option(
    "--cross-encoder",
    metavar="NAME",
    help="Folder or hub model for the chain cross-encoder.",
)
cross_encoder_of = click.option(
    "--cross-encoder",
    metavar="NAME",
    help="Folder or hub model for the chain cross-encoder.  [default: the calibration's]",
)
