"""The `prefix:` section of a policy file: how the model call asks for prefix caching."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError, WrapValidator

from trivet.policies.model_base import Seconds, Section

MarkPlace = Literal["tools", "system", "history", "last"]
"""Where a breakpoint may stand: the end of the tools, of the stable system part, of the history
before the newest user turn, and of the whole prompt."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return pattern


class PrefixRepairs(Section):
    """Changes to what goes upstream, each off by default and shown by `trivet explain` as a diff.

    They are made before the key is derived: the key is of what is sent.
    """

    sort_tools: bool = Field(default=False, description="Tools in the order of their names.")
    tool_json: bool = Field(
        default=False, description="Keys of tool definitions in one order, spacing removed."
    )
    move_lines: tuple[Annotated[str, AfterValidator(_compiles)], ...] = Field(
        default=(),
        max_length=16,
        description="Regular expressions: a line of the system prompt that one of them matches "
        "whole goes to the end of the newest user message.",
    )


class FanOut(Section):
    """The first request of a new prefix goes alone; its siblings wait until it can be read."""

    wait: Seconds = Field(default=0.0, description="Longest wait of a sibling; 0 switches it off.")


class KeepWarm(Section):
    """Reads of a prefix that is about to expire, where by the arithmetic they pay."""

    budget_usd: float = Field(
        default=0.0, ge=0, description="Most that pings may cost in a day; 0 switches them off."
    )


def _mark(value: Any, read: Callable[[Any], Any]) -> Any:
    """One finding in place of one for each kind of value."""
    try:
        return read(value)
    except ValidationError:
        places = ", ".join(get_args(MarkPlace))
        raise ValueError(f"has to be auto, never, or a list out of {places}") from None


class PrefixPolicy(Section):
    """How a tenant's model calls use the upstream's prefix cache. It never changes an answer."""

    enabled: bool = Field(
        default=True,
        description="Whether Trivet asks for caching. Salts that keep tenants apart are sent "
        "even where it is off.",
    )
    mark: Annotated[Literal["auto", "never"] | tuple[MarkPlace, ...], WrapValidator(_mark)] = Field(
        default="auto",
        description="Breakpoints for providers that take them. `auto` marks what was seen to be "
        "stable; a list marks these places. A request that has marks of its own gets none.",
    )
    ttl: Literal["auto", "5m", "1h"] = Field(
        default="auto", description="`auto` takes what the gaps between requests pay for."
    )
    epoch: int = Field(
        default=0, ge=0, description="Part of the tenant's salt: a new one flushes its prefixes."
    )
    fan_out: FanOut = FanOut()
    keep_warm: KeepWarm = KeepWarm()
    repair: PrefixRepairs = PrefixRepairs()
    keep_text: bool = Field(
        default=False,
        description="Whether the layout doctor may show the text around a break; it keeps hashes "
        "and numbers otherwise. Recorded traffic then holds whole request bodies too.",
    )
    record: bool = Field(
        default=False,
        description="Record model calls, with the shape of their prompts, for `trivet prefix "
        "report`; `semantic.record` does so too.",
    )
