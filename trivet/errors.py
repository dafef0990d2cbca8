"""What can go wrong, and who is told.

    CacheError
    +-- ConfigError      a config or policy file is wrong; raised only while loading
    +-- RequestError     the caller's request is wrong; answered 4xx in the caller's dialect
    +-- StoreError       a store is in trouble; the tier steps aside, counts, goes on
    +-- UpstreamError    the upstream did not answer; reported as itself, never stored
    +-- EmbedderError    an embedder failed; the semantic tier steps aside, counts, goes on
    +-- OutOfBlocks      the engine's block pool is short; wait or preempt, never truncate

Foreign exceptions are translated where their library is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trivet.terminal import plain_lines


class CacheError(Exception):
    """Base of everything that Trivet raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding in a file: where, and what to do. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        told = ": ".join(filter(None, (place, self.field, self.message)))
        # A field's name may be the file's own word: nothing in it steers a terminal.
        return plain_lines(told)


class ConfigError(CacheError):
    """A config or policy that cannot be used; `problems` holds every finding."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class RequestError(CacheError):
    """The caller's mistake: an HTTP status, a sentence, and the field it is about."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are made anew from their positional arguments: a helper process that decodes
        # a large body has to hand this one back.
        made = partial(RequestError, field=self.field, code=self.code)
        return made, (self.status, self.message)


class StoreError(CacheError):
    """A store failed or ran out of its time budget. `reason` is a short metric label."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class UpstreamError(CacheError):
    """The upstream could not be reached or broke off. `reason` is a short metric label.

    `status` is what the caller is told: 502 unreachable or broken, 504 out of time.
    """

    def __init__(self, reason: str, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status


class EmbedderError(CacheError):
    """An embedder is missing, failed, or ran out of time. `reason` is a short metric label."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class OutOfBlocks(CacheError):  # noqa: N818 - the field's term
    """The block pool cannot serve a request now."""
