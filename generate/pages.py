"""The reference pages under docs/reference."""

from __future__ import annotations

from collections.abc import Iterator

import click

from generate.alerts import ALERTS
from generate.fields import sections
from trivet.cli import main
from trivet.metric_names import METRICS
from trivet.middleware.observe.exposition import BOUNDS
from trivet.middleware.running.config import ServerConfig
from trivet.policies.model import TenantPolicy

_MADE = "<!-- Written by `python -m generate`: edit the code that it names, not this page. -->\n\n"
_FORMS = """Durations are seconds, or a number with `s`, `m`, `h` or `d`. Sizes are bytes, or a
number with `KiB`, `MiB` or `GiB`. A field that is not listed is an error: `trivet check` says
where. An empty default means absent.
"""


def policy() -> str:
    """docs/reference/policy.md, from `trivet/policies/model.py`."""
    told = "One YAML file for each tenant, in the directory that `--policies` names.\n"
    return _page("Policy reference", told + _FORMS, sections(TenantPolicy, "A policy file"))


def config() -> str:
    """docs/reference/config.md, from `trivet/middleware/running/config.py`."""
    told = (
        "The YAML file that `trivet serve --config` reads, once, at the start. Flags win over it.\n"
    )
    return _page("Server config reference", told + _FORMS, sections(ServerConfig, "The file"))


def commands() -> str:
    """docs/reference/commands.md, from the click commands."""
    told = """Exit codes: 0 fine, 1 a finding, 2 wrong usage or config, or a model that is not
there. Each command has `--help`, and `-h` for short.
"""
    return _page("Command reference", told, "\n".join(_commands(main, "trivet")))


def metrics() -> str:
    """docs/reference/metrics.md, from `trivet/metric_names.py` and the alerts."""
    told = """What `/metrics` on the admin port says, summed over the workers of a proxy (a gauge
keeps the worst of them). No label holds a text of a request: a value that does not look like a
name, and each beyond a bound, is `other`. [Engines](../engine.md#metrics) have figures of their
own.
"""
    rows = ["## Metrics", "", "| metric | kind | labels | |", "|---|---|---|---|"]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.help} |")
    rows += ["", "## Buckets", "", "Upper bounds of the histograms, in seconds.", ""]
    rows += ["| metric | buckets |", "|---|---|"]
    for name, bounds in BOUNDS.items():
        rows.append(f"| `{name}` | {', '.join(f'{bound:g}' for bound in bounds)} |")
    rows += ["", "## Alerts", ""]
    rows += ["`deploy/alerts/trivet.yaml` has them as Prometheus rules.", ""]
    rows += ["| alert | severity | after | when | what to do |", "|---|---|---|---|---|"]
    for alert in ALERTS:
        rows.append(
            f"| `{alert.name}` | {alert.severity} | {alert.after} | {alert.when} | {alert.todo} |"
        )
    return _page("Metrics reference", told, "\n".join(rows) + "\n")


def _page(title: str, told: str, body: str) -> str:
    return f"{_MADE}# {title}\n\n{told}\n{body}"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(
        command,
        info_name=name,
        terminal_width=96,
        max_content_width=96,
        # As under the group: a command remembers its help option from whoever asks first.
        help_option_names=["-h", "--help"],
    )
    yield f"## {name}\n\n```text\n{context.get_help()}\n```\n"
    if isinstance(command, click.Group):
        for inner in sorted(command.commands):
            yield from _commands(command.commands[inner], f"{name} {inner}")
