"""The `trivet doctor` command. What it does is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trivet.terminal import say, say_json


@click.command("doctor")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="Server config file."
)
@click.option("--policies", type=click.Path(path_type=Path), help="Directory of policy files.")
@click.option("--store", metavar="URL", help="memory | sqlite:PATH | redis://HOST:PORT/DB")
@click.option("--upstream", "upstreams", multiple=True, metavar="URL", help="With or without /v1.")
@click.option("--admin", metavar="URL", help="Admin port of the running proxy.")
@click.option("--admin-key", envvar="TRIVET_ADMIN_KEY", help="[env: TRIVET_ADMIN_KEY]")
@click.option("--models/--no-models", default=True, help="Load the models of calibrations, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def doctor(config_file: Path | None, as_json: bool, **given: Any) -> None:
    """Check a deployment, and say what to mend.

    Give what `trivet serve` is given, in the same environment. Stores, secrets, upstreams and their
    dialects, clocks, policies, calibrations, permissions and the admin port are looked at. Nothing
    is changed; upstreams are sent an empty request, which their API refuses.

    Exit code 0: all is well; 1: there are warnings; 2: something is at fault.
    """
    from trivet.middleware.deployment_doctor.deployment import Given
    from trivet.middleware.deployment_doctor.diagnosis import diagnose
    from trivet.middleware.deployment_doctor.findings import as_data, as_text, exit_code

    found = diagnose(config_file, Given(**given))
    if as_json:
        say_json(as_data(found))
    else:
        say(as_text(found))
    sys.exit(exit_code(found))
