"""The `trivet warm` command. What it does is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click


@click.command("warm")
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The proxy.")
@click.option("--tenant", "tenants", multiple=True, help="Only this tenant's requests.")
@click.option("--budget-usd", type=click.FloatRange(0), help="Most that all runs may cost.")
@click.option(
    "--key", "keys", multiple=True, metavar="TENANT=VARIABLE", help="Variable with its API key."
)
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="As the callers send it."
)
@click.option(
    "--key-header",
    type=click.Choice(["authorization", "x-api-key", "api-key"]),
    help="Where the callers send their key.  [default: x-api-key for /v1/messages, else "
    "authorization]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--again", is_flag=True, help="Send what earlier runs sent, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def warm(log: Path, url: str, budget_usd: float | None, as_json: bool, **given: Any) -> None:
    """Send the most valuable requests of LOG to a cold deployment.

    LOG is recorded traffic with request bodies: the policy has to say `prefix: {record: true,
    keep_text: true}`. A request is worth the tokens it saves times how often they came. The key of
    each tenant is in an environment variable that --key names (TRIVET_WARM_KEY for a log of one
    tenant).

    What was sent is kept in LOG.warm: a run that was broken off goes on, and the budget holds for
    all runs together, those before --again included.
    """
    from trivet.middleware.prefix_commands.warm_run import run

    if not run(log, url, budget_usd, as_json=as_json, **given):
        sys.exit(1)
