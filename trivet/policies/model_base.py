"""The base of every section of a policy file, and how durations and sizes are written.

Durations are seconds in the model; files write `90`, `90s`, `15m`, `1h` or `7d`. Sizes are bytes
in the model; files write `4096`, `64KiB`, `8MiB` or `1GiB`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _seconds(value: Any) -> Any:
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value.strip())
        if not found:
            raise ValueError("a duration is a number of seconds, or a number with s, m, h or d")
        return float(found[1]) * _UNITS[found[2]]
    return value


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", value.strip())
        if not found:
            raise ValueError("a size is a number of bytes, or a number with KiB, MiB or GiB")
        return int(found[1]) * _SIZES[found[2] or ""]
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)]
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]


class Section(BaseModel):
    """Base of every section: frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
