"""Every file that is written from code, and what writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from generate import alerts, dashboard, pages

ROOT = Path(__file__).parent.parent
FILES: dict[str, Callable[[], str]] = {
    "docs/reference/policy.md": pages.policy,
    "docs/reference/config.md": pages.config,
    "docs/reference/commands.md": pages.commands,
    "docs/reference/metrics.md": pages.metrics,
    "deploy/alerts/trivet.yaml": alerts.rules,
    "deploy/grafana/trivet.json": dashboard.dashboard,
}
