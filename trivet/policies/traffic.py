"""Recorded traffic: one JSON object a line, one line a request. The proxy writes it, eval reads it.

Digests are keyed with the deployment's secret, so that whoever has the file cannot test guesses.
What is equal in them was equal in the requests, within one secret.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from trivet.errors import ConfigError, Problem
from trivet.messages import Api
from trivet.policies.json_lines import wrong_line
from trivet.policies.model_base import Section

FORMAT: Final = 1
_DIGEST = r"^[0-9a-f]{64}$"


class RecordedUsage(Section):
    """Tokens of one answer, as in `messages.Usage`."""

    input: int = Field(ge=0)
    output: int = Field(ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)
    cache_write_long: int = Field(default=0, ge=0)
    """Of `cache_write`, those of the provider's longer lifetime."""


class RecordedAnswer(Section):
    """What the caller got. Of a similar question's answer, `text` is not kept."""

    tier: Literal["model", "exact", "semantic"]
    """Where it came from; `exact` for an answer of another caller's call too."""
    reason: str = ""
    """Why there is no stored answer to this request now; empty where there is one."""
    plain: bool
    """One text, without tool calls: what may stand for a similar question."""
    length: int | None = Field(default=None, ge=0)
    """Bytes of the answer in its JSON form; None where no copy was made."""
    text: str | None = None
    """What it says; None where texts are not recorded, or it is not `plain`."""
    usage: RecordedUsage | None = None
    price: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """US dollars of `usage`; None where that is not known."""
    upstream_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Seconds that the upstream, or another caller's call, was waited for."""


class RecordedExact(Section):
    """How the exact tier was allowed to take part. Times are seconds."""

    reason: str = ""
    """Why it took no part, or (`no-cache`) why it did not look; empty where it may answer."""
    store: bool = False
    """Whether it may keep the answer."""
    ttl: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    max_age: float | None = Field(default=None, allow_inf_nan=False)
    min_fresh: float | None = Field(default=None, allow_inf_nan=False)
    pool: int | None = Field(default=None, ge=2, le=64)
    """How many answers are collected and drawn from; None for one."""


_SHORT = r"^([0-9a-f]{16})?$"
Digest8 = Annotated[str, StringConstraints(pattern=_SHORT)]
Step = str | Annotated[int, Field(ge=0)]


class RecordedPart(Section):
    """One part of a prompt, without its text. Digests are keyed; guises say of which form of the
    text a digest is (`trivet.prefix.doctor.fingerprint`)."""

    level: Literal["tools", "system", "messages"]
    place: tuple[Step, ...]
    kind: str = Field(max_length=32)
    role: str = Field(default="", max_length=32)
    tokens: int = Field(ge=0, le=1 << 40)
    """Estimated."""
    mark: str | None = Field(default=None, max_length=16)
    """TTL of the breakpoint that it carried when it was sent; empty for the default one."""
    digest: str = Field(pattern=r"^[0-9a-f]{32}$")
    length: int = Field(default=0, ge=0)
    """Characters of its text."""
    guises: tuple[Digest8, ...] = ()
    """Masked, squeezed, words, keys, sets."""
    name: Digest8 = ""
    """Of a tool's name."""
    fields: dict[str, Digest8] = Field(default_factory=dict)
    spans: tuple[tuple[int, int, str, int], ...] = ()
    """Volatile pieces: first and last character, kind, and 32 bits of a digest."""


class RecordedSetting(Section):
    """A field beside the prompt that its prefix depends on."""

    level: Literal["tools", "system", "messages"]
    name: str = Field(max_length=32)
    value: Digest8
    fields: dict[str, Digest8] = Field(default_factory=dict)


class RecordedPrompt(Section):
    """The shape of a prompt that went to a model."""

    route: str = ""
    """The Trivet-Route header, or the API where there was none."""
    upstream: str = ""
    cache: str = ""
    """Whose prefix cache it was taken for: `anthropic`, `openai`, ...; empty if that is not
    known."""
    parts: tuple[RecordedPart, ...] = ()
    settings: tuple[RecordedSetting, ...] = ()
    automatic: str | None = None
    """TTL of the breakpoint that moves along, where one was asked for."""
    mode: str = ""
    ttl: str = ""
    retention: str = ""
    body: str | None = None
    """The request's body as it came; None where the policy does not keep it
    (`prefix.keep_text`), or it is too large."""


class Traffic(Section):
    """One recorded request."""

    format: Literal[1] = FORMAT
    at: float = Field(ge=0, allow_inf_nan=False)
    """When the request arrived, in Unix seconds."""
    tenant: str = Field(min_length=1)
    api: Api
    model: str
    key: str = Field(pattern=_DIGEST)
    """Keyed digest of the exact key: equal for equal requests only."""
    exact: RecordedExact
    rest: str | None = Field(default=None, pattern=_DIGEST)
    """Keyed digest of all but the compared text; None where there is no such text."""
    text: str | None = None
    """The compared text; None where it is redacted, or there is none."""
    text_digest: str | None = Field(default=None, pattern=_DIGEST)
    """Keyed digest of the compared text within its tenant."""
    unasked: str = ""
    """Why the semantic tier is not asked (`tools`, `turns`, `multi-part`, ...); empty if it is."""
    principal: str = Field(default="", pattern=r"^([0-9a-f]{16})?$")
    """Opaque name of the end user."""
    may_write: bool = True
    """Whether the policy lets this user write entries that others get."""
    answer: RecordedAnswer
    prompt: RecordedPrompt | None = None
    """None for what no model was asked, and in files of older versions."""


def write_line(row: Traffic) -> bytes:
    """The row as one line of JSON, its line feed included."""
    return row.model_dump_json().encode() + b"\n"


def read_line(raw: bytes, file: str, line: int) -> Traffic:
    """Read one line. Raises `ConfigError` that names the file, the line, and each wrong field."""
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        raise _wrong(file, line, "", "is not JSON") from None
    if type(value) is not dict:
        raise _wrong(file, line, "", "each line has to be one JSON object")
    if value.get("format") != FORMAT or type(value["format"]) is not int:
        known = f"has to be {FORMAT}: this Trivet knows no other format of recorded traffic"
        raise _wrong(file, line, "format", known)
    try:
        return Traffic.model_validate_json(raw)
    except ValidationError as error:
        raise wrong_line(error, file, line) from None


def _wrong(file: str, line: int, field: str, message: str) -> ConfigError:
    return ConfigError(Problem(file, line, 1, field, message))
