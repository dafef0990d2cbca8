"""A server config as it is written: the file's YAML, and where in it a problem is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from trivet.errors import ConfigError, Problem
from trivet.policies.nodes import Position, Source, field_path, read_yaml
from trivet.policies.problems import sentence_of

FLAGS = "command line"
"""Where what comes from flags is said to be: they have no lines."""
_LARGEST = 1 << 20


def read_config(file: Path) -> Source:
    """The file as YAML with positions. Raises `ConfigError`."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LARGEST + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(Problem(str(file), 0, 0, "", error.strerror or "unreadable")) from None
    except UnicodeDecodeError as error:
        told = f"is not UTF-8 at byte {error.start}"
        raise ConfigError(Problem(str(file), 0, 0, "", told)) from None
    if len(raw) > _LARGEST:
        raise ConfigError(Problem(str(file), 0, 0, "", f"is larger than {_LARGEST} bytes"))
    source = read_yaml(str(file), text)
    if not isinstance(source.value, dict):
        raise ConfigError(Problem(str(file), 1, 1, "", "a server config is a YAML mapping"))
    return source


def problems_of(
    source: Source, flagged: Mapping[str, Any], error: ValidationError, model: type[BaseModel]
) -> list[Problem]:
    """What the model refuses, each where it is written."""
    found = error.errors(include_url=False)
    places = [item["loc"] for item in found]
    no_file = Source(FLAGS, {}, {})
    return [
        placed(
            no_file if flagged.keys() & {item["loc"][0], field_path(item["loc"])} else source,
            item["loc"],
            sentence_of(item, model),
        )
        for item in found
        # A list whose only item is wrong is called too short as well: that helps nobody.
        if item["type"] != "too_short"
        or not any(place[: len(item["loc"])] == item["loc"] != place for place in places)
    ]


def placed(source: Source, position: Position, message: str) -> Problem:
    """A problem at this place of the file, or of the command line."""
    if source.file == FLAGS:
        return Problem(FLAGS, 0, 0, field_path(position), message)
    return source.problem(position, message)
