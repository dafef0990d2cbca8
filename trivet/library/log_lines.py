"""Trivet's log lines in an app: through `logging`, as the logger `trivet`.

An app that has configured structlog gets them there. Where nothing is configured, structlog would
print to standard output, which belongs to the app.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

_LEVELS: Final = {"warn": "warning", "exception": "error", "fatal": "critical"}
_NAME: Final = "trivet"
_inside: Final = threading.local()
"""`line` is true within a line of this thread's: a handler of the app's may hand what `logging`
gets back to structlog, and the line would go round."""


class _Ours:
    """Stands for the logger of lines that are Trivet's own."""

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **named: None


def tell_through_logging() -> None:
    """Send Trivet's lines to `logging`, unless structlog is configured. Idempotent.

    What else is logged by way of structlog stays as it was.
    """
    if structlog.is_configured():
        return
    before = structlog.get_config()
    others = before["logger_factory"]

    def logger_of(*names: Any) -> Any:
        named = str(names[0]) if names else ""
        return _Ours() if named.partition(".")[0] == _NAME else others(*names)

    structlog.configure(processors=[_forward, *before["processors"]], logger_factory=logger_of)


def _forward(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if not isinstance(logger, _Ours):
        return event
    level = getattr(logging, _LEVELS.get(method, method).upper(), logging.INFO)
    told = " ".join(f"{name}={value!r}" for name, value in event.items() if name != "event")
    if not getattr(_inside, "line", False):
        _inside.line = True
        try:
            logging.getLogger(_NAME).log(level, "%s", f"{event.get('event', '')} {told}".strip())
        finally:
            _inside.line = False
    raise structlog.DropEvent
