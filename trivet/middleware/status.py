"""The `Cache-Status` response header (RFC 9211): one member for each tier that was consulted.

    trivet-exact; hit; ttl=3599; key="9f2c"
    trivet-exact; fwd=miss; stored
    trivet-exact; fwd=miss, trivet-semantic; fwd=bypass; detail=no-calibration

Values are structured fields (RFC 9651): `detail` is a token where it can be one, else a string.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from trivet.telemetry import Tier

Forward = Literal[
    "bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial"
]
"""Why a request went on to the upstream (RFC 9211, section 2.2)."""

_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_NOT_STRING = re.compile(r"[^\x20-\x7e]")
_MAX_INTEGER = 999_999_999_999_999
"""What an RFC 9651 integer holds: 15 digits."""


class CacheStatus(NamedTuple):
    """What one tier did with a request.

    `hit` excludes `fwd`. `ttl` is the freshness that is left, in seconds, negative for a stale
    answer. `key` must be opaque: it is shown to the caller. `fwd_status` is the upstream's HTTP
    status where it differs from the one sent (a stale answer that stands in for an error).

    A tuple, because one is made for every response: a frozen dataclass costs three times as much.
    """

    tier: Tier
    hit: bool = False
    fwd: Forward | None = None
    stored: bool = False
    collapsed: bool = False
    ttl: int | None = None
    key: str | None = None
    detail: str | None = None
    fwd_status: int | None = None


def member(status: CacheStatus) -> str:
    """One list member, its parameters in the order of RFC 9211, section 2."""
    tier, hit, fwd, stored, collapsed, ttl, key, detail, fwd_status = status
    text = "trivet-" + tier
    if hit:
        text += "; hit"
    elif fwd is not None:
        text += "; fwd=" + fwd
        if fwd_status is not None:
            text += f"; fwd-status={fwd_status}"
    if ttl is not None:
        text += f"; ttl={ttl if -_MAX_INTEGER <= ttl <= _MAX_INTEGER else _clamped(ttl)}"
    if stored:
        text += "; stored"
    if collapsed:
        text += "; collapsed"
    if key is not None:
        text += "; key=" + quote(key)
    if detail is not None:
        text += "; detail=" + token_or_string(detail)
    return text


def _clamped(value: int) -> int:
    return _MAX_INTEGER if value > 0 else -_MAX_INTEGER


def cache_status(*members: CacheStatus) -> str:
    """The header's value; the tiers in the order in which they were consulted."""
    return ", ".join(map(member, members))


def quote(text: str) -> str:
    """An RFC 9651 string. Characters that it cannot hold become `?`."""
    if not text.isascii() or not text.isprintable():
        text = _NOT_STRING.sub("?", text)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@lru_cache(maxsize=512)
def token_or_string(text: str) -> str:
    """An RFC 9651 token if `text` is one, else a string."""
    return text if _TOKEN.fullmatch(text) else quote(text)


_PARAMETER = re.compile(
    r"""\s*;\s*(?P<name>[a-z*][a-z0-9_.*-]*)
        (?:=(?:"(?P<string>(?:[^"\\]|\\["\\])*)"|(?P<bare>[^\s;,"]+)))?""",
    re.VERBOSE,
)
_NAME = re.compile(r"\s*([A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)")


def parse(value: str) -> dict[str, dict[str, str | int | bool]]:
    """Read a header value back: cache name to its parameters.

    Integers become `int`, parameters without a value True, strings and tokens `str`. Raises
    `ValueError` for what is not a list of that kind.
    """
    found: dict[str, dict[str, str | int | bool]] = {}
    at = 0
    while True:
        name = _NAME.match(value, at)
        if not name:
            raise ValueError(f"expected a cache name at offset {at} of {value!r}")
        at = name.end()
        parameters = found[name[1]] = {}
        while pair := _PARAMETER.match(value, at):
            at = pair.end()
            parameters[pair["name"]] = _value(pair)
        rest = value[at:].lstrip()
        if not rest:
            return found
        if rest[0] != ",":
            raise ValueError(f"expected a comma at offset {at} of {value!r}")
        at = len(value) - len(rest) + 1


def _value(pair: re.Match[str]) -> str | int | bool:
    if pair["string"] is not None:
        return re.sub(r"\\(.)", r"\1", pair["string"])
    bare = pair["bare"]
    if bare is None:
        return True
    return int(bare) if re.fullmatch(r"-?\d{1,15}", bare) else bare
