"""Where a request goes, as a transport sees it: the upstream's base URL, and the API's path.

Pure functions on URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from trivet.middleware.dialects.registry import route_of
from trivet.middleware.running.config import UpstreamConfig

_PROVIDERS: Final = {"api.openai.com": "openai", "api.anthropic.com": "anthropic"}
"""Hosts whose upstreams bear their provider's name, by which answers are priced."""
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST: Final = 64
_PORTS: Final = {"http": 80, "https": 443}
_FAMILY: Final = "/chat/completions"
_VERSION: Final = "/v1"


class Address(NamedTuple):
    """One URL in two parts: `root + path` is the URL without its query."""

    root: str
    """Scheme, host, port, and the path in front of the API's own; no closing slash."""
    path: str
    """As the provider documents it: `/v1/chat/completions`."""


def address_of(origin: str, path: str) -> Address:
    """Split `path` where the API's own begins.

    The API's path begins at the first `/v1`, or at the path of a known API without it. A path in
    which neither is found belongs to the origin as a whole.
    """
    for at in _boundaries(path):
        if _begins(path, at):
            return Address(origin + path[:at], path[at:])
    return Address(origin, path)


def _boundaries(path: str) -> Iterable[int]:
    return (at for at, letter in enumerate(path) if letter == "/")


def _begins(path: str, at: int) -> bool:
    rest = path[at:]
    route = route_of(rest)
    if route is None:
        # `/v1/files/x`: read by nobody here, but the base URL is told by it. A gateway may have
        # a `/v1` of its own in front of a chat API, which is then the one that counts.
        return rest.startswith(_VERSION + "/") and not path.endswith(_FAMILY)
    if rest.startswith(_VERSION) or rest == _FAMILY:
        return True
    # `/v1/threads/x/messages` and `/v1/agents/completions` are other APIs with known last words.
    return at == 0 or (route.family == "openai" and _VERSION + "/" not in path[:at] + "/")


def declared_at(
    address: Address, upstreams: Iterable[UpstreamConfig]
) -> tuple[UpstreamConfig, str] | None:
    """The declared upstream that `root + path` lies under, and the path below it.

    The longest base URL wins, and of equal ones the first.
    """
    asked = _normal(address.root) + address.path
    found = [(_normal(one.root), one) for one in upstreams]
    under = [pair for pair in found if asked.startswith(pair[0] + "/")]
    if not under:
        return None
    root, upstream = max(under, key=lambda pair: len(pair[0]))
    return upstream, asked[len(root) :]


def _normal(url: str) -> str:
    """A base URL as httpx writes it: host in lower case, no default port (RFC 3986, 6.2.3)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    if parts.port not in (None, _PORTS.get(parts.scheme)):
        shown = f"{shown}:{parts.port}"
    return f"{parts.scheme}://{shown}{parts.path}"


def name_of(root: str) -> str:
    """What an upstream at `root` is called in metrics, logs and keys."""
    host = urlsplit(root).hostname or ""
    known = _PROVIDERS.get(host)
    if known is not None:
        return known
    return _UNNAMEABLE.sub("-", host)[:_LONGEST].strip("-._") or "upstream"
