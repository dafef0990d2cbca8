"""What is wrong with a line of a file of JSON lines."""

from __future__ import annotations

from pydantic import ValidationError

from trivet.errors import ConfigError, Problem


def wrong_line(error: ValidationError, file: str, line: int) -> ConfigError:
    """An error that names the file, the line, and each wrong field; no value is quoted."""
    return ConfigError(
        *(
            Problem(file, line, 1, ".".join(map(str, one["loc"])), one["msg"])
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        )
    )
