"""What the engine says on stderr: lines for people, or JSON with the fields of the proxy's logs.

No line carries prompt text, answers or header values.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

Format = Literal["console", "json"]

_log = logging.getLogger("trivet.engine")


def configure(format: Format, stream: TextIO | None = None) -> None:
    """Set up logging of this process, once at its start; run uvicorn with `log_config=None`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Console())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _log.setLevel(logging.INFO)
    logging.captureWarnings(True)


def say(event: str, sentence: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """One line: `event` and `fields` where it is JSON, the sentence for people."""
    _log.log(level, "%s", sentence, extra={"trivet": {"event": event, **fields}})


class _Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Part of `logging.Formatter`."""
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"trivet engine: {mark}{super().format(record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Part of `logging.Formatter`."""
        told: Mapping[str, Any] | None = getattr(record, "trivet", None)
        if told is None:
            told = {"event": record.getMessage(), "logger": record.name}
        at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        line = {"timestamp": at, "level": record.levelname.lower(), **told}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, separators=(",", ":"))
