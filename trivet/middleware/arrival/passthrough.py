"""Paths that Trivet does not read: what may be asked there, and what is kept both ways."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from trivet.errors import RequestError
from trivet.middleware.arrival.headers import RawHeaders, RequestHeaders, to_caller
from trivet.middleware.upstream import UpstreamResponse
from trivet.policies.model import TenantPolicy

_STATUS: Final = (b"cache-status", b"trivet-exact; fwd=bypass; detail=passthrough")
_READING: Final = ("GET", "HEAD", "OPTIONS")
_SLASH: Final = re.compile(r"[/\\]")
_DOTS: Final = frozenset((".", ".."))


def refuse_dots(path: str) -> None:
    """A path must not climb out of the upstream's base path. Raises `RequestError` 400.

    Some servers leave a segment's parameters away first, so that `..;` climbs too (RFC 3986
    section 3.3).
    """
    if "." not in path and "%" not in path:
        return
    segments = _SLASH.split(unquote(path))
    if not _DOTS.isdisjoint(segment.partition(";")[0] for segment in segments):
        raise RequestError(400, "The path has a segment that is '.' or '..'.", code="invalid_path")


def check_shared(policy: TenantPolicy, method: str, path: str) -> None:
    """What is open where all tenants ask the upstream with one key of the proxy's.

    Files, batches and stored answers belong to the provider's account, so one tenant could read
    another's: only what belongs to nobody passes. Raises `RequestError` 403.
    """
    inner = path.removeprefix("/v1")
    nobodys = inner == "/models" or inner.startswith("/models/")
    if policy.passthrough or (nobodys and method in _READING):
        return
    if policy.passthrough is None and inner == "/messages/count_tokens":
        return
    raise RequestError(
        403,
        f"{path} is not open here: tenants share the upstream's account, and what lies there is "
        "not told apart by tenant (passthrough: true in the policy would open it).",
        code="passthrough_closed",
    )


def check_open(policy: TenantPolicy, method: str, path: str) -> None:
    """Raises `RequestError` 403 where the tenant may not write to a path that is not read."""
    open_to_all = policy.passthrough is True or method in _READING
    unlimited = policy.passthrough is None and policy.models is None
    counts = policy.passthrough is None and path.removeprefix("/v1") == "/messages/count_tokens"
    if not (open_to_all or unlimited or counts):
        raise RequestError(
            403,
            f"{path} is not open to this tenant: a path that Trivet does not read is not checked "
            "for the models that its policy allows (passthrough: true would open it).",
            code="passthrough_closed",
        )


def has_body(headers: RequestHeaders) -> bool:
    """Whether the request's head announces a body."""
    declared = headers.get_raw(b"content-length")
    return headers.get_raw(b"transfer-encoding") is not None or declared not in (None, b"0")


def framing(headers: RequestHeaders) -> RawHeaders:
    """The length to forward with a body.

    Beside a transfer coding none: the coding counts (RFC 9112 section 6.3), and a length that
    contradicts it must not be believed further on.
    """
    declared = headers.get_raw(b"content-length")
    if declared in (None, b"0") or headers.get_raw(b"transfer-encoding") is not None:
        return []
    return [(b"content-length", declared)]


def returned(response: UpstreamResponse) -> RawHeaders:
    """The head's fields for the caller; with the length, for who shows progress or asked HEAD."""
    kept = to_caller(response.headers)
    if response.status not in (204, 304):
        lengths = [value for name, value in response.headers if name.lower() == b"content-length"]
        kept += [(b"content-length", value) for value in lengths[:1] if value.isdigit()]
    return [*kept, _STATUS]
