"""What the pipeline asks of a wire dialect, and the few shapes that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from trivet.errors import CacheError
from trivet.messages import Answer, Api, NotStored, Request

Headers = Mapping[str, str]
"""Request headers, names in lower case; the last value wins."""


class StoreRules(NamedTuple):
    """What the policy says about storing, as far as a dialect has to know."""

    tool_calls: bool
    refusals: bool
    max_entry: int


class Recorder(Protocol):
    """Builds the non-stream answer out of a stream while it passes by.

    `feed` takes whole server-sent events in order (each with its blank line, see `sse.split`)
    and must not raise on garbage: a stream that is not understood ends as `NotStored`.
    """

    ids: list[str]
    """Ids seen so far that a replay or a follower re-mints (answer id, tool-call ids)."""

    def feed(self, event: bytes) -> None:
        """Take the next event."""
        ...

    def is_usage_only(self, event: bytes) -> bool:
        """True for the chunk that exists only because `include_usage` was asked upstream."""
        ...

    def finish(self, rules: StoreRules) -> Answer | NotStored:
        """The complete answer, or why there is none to store. Called once, after the last byte."""
        ...


class Dialect(Protocol):
    """One API: how its requests are read, and how its answers are recorded and replayed."""

    api: Api
    path: str
    """Under the upstream's prefix, e.g. `/v1/chat/completions`."""
    request_id_header: str
    """Response header in which the dialect's SDKs look for the request id."""
    asks_usage: bool
    """Whether a recorded stream needs `stream_options.include_usage` added upstream."""

    def decode(self, raw: bytes, headers: Headers) -> Request:
        """Read a request. Raises `RequestError` naming the field that is wrong."""
        ...

    def record(self, request: Request, body: bytes, rules: StoreRules) -> Answer | NotStored:
        """Judge a 2xx JSON answer: whitelisted terminal state, all choices, valid JSON, size."""
        ...

    def recorder(self, request: Request) -> Recorder:
        """A recorder for a 2xx event stream that answers `request`."""
        ...

    def render_json(self, answer: Answer, request: Request) -> bytes:
        """The answer's body for a caller that did not ask for a stream."""
        ...

    def render_stream(self, answer: Answer, request: Request) -> bytes:
        """The answer as a complete event stream, terminal events included."""
        ...

    def follow(self, event: bytes, request: Request) -> bytes:
        """A whole event of a live stream that another caller leads, as it is for `request`."""
        ...

    def error(self, status: int, message: str, *, field: str | None, code: str | None) -> bytes:
        """An error body in the dialect's shape."""
        ...


def error_from(dialect: Dialect, error: CacheError) -> tuple[int, bytes]:
    """Status and body for an error that the caller is told of."""
    status = int(getattr(error, "status", 500))
    return status, dialect.error(
        status,
        str(error),
        field=getattr(error, "field", None),
        code=getattr(error, "code", None) or getattr(error, "reason", None),
    )


MAX_IDS = 256
"""Ids of one stored answer: each of them is made anew on each hit, in about 10 us."""


def tells_error(value: Mapping[str, Any]) -> bool:
    """Whether an answer, or an event of a stream, says at its top that it failed."""
    if value.get("object") == "error" or value.get("type") == "error":
        return True
    return (
        value.get("error") not in _NO_ERROR
        or value.get("errors") not in _NO_ERROR
        or value.get("detail") not in _NO_ERROR
    )


_NO_ERROR: tuple[Any, ...] = (None, [])


def as_mapping(value: Any) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if type(value) is dict else {}


def as_items(value: Any) -> Iterable[Any]:
    """`value` if it is a JSON array, else nothing."""
    return value if type(value) is list else ()
