"""One HTTP request as the proxy sees it, from its first byte to the event that reports it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from trivet.messages import Api
from trivet.middleware.arrival.direct import DIRECT, Direct
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.intake import Receive
from trivet.middleware.arrival.watch import Watch
from trivet.middleware.call import Asked, Call, Note
from trivet.middleware.dialects.base import Dialect
from trivet.middleware.dialects.registry import Route, route_of, voice_of
from trivet.middleware.running.config import DialectFamily
from trivet.policies.tenants import Identified

ASKED: Final = "trivet.asked"
"""Where an ASGI scope says what the tier was asked about the request, and what it said."""
NEW: Final = "trivet.new"
"""Where an ASGI scope says whose request it is, of one that was found not to have come before."""


@dataclass(slots=True)
class Visit:
    """One HTTP request, from its first byte to the event that reports it."""

    method: str
    path: str
    arrived: str
    """Path and query as they came."""
    target: str
    """Path and query as they go upstream."""
    query: str
    raw_headers: RawHeaders
    peer: str | None
    receive: Receive
    direct: Direct | None
    watch: Watch
    dialect: Dialect
    family: DialectFamily
    route: Route | None
    began: float
    note: Note = field(default_factory=Note)
    caller: Identified | None = None
    tenant: str = ""
    api: Api | Literal["passthrough"] = "passthrough"
    model: str = ""
    upstream: str = ""
    stream: bool = False
    size: int = 0
    body: bytes = b""
    traceparent: str | None = None
    on_end: Callable[[], None] | None = None
    waits_since: float = 0.0
    new: bool = False
    """It is known not to have come before."""
    asked: Asked | None = None
    """What the tier was asked about this very request already."""
    called: str = ""
    """What the request's route is called in figures; empty while it is not known."""
    purpose: Literal["request", "warm"] = "request"
    call: Call | None = None
    """What the request was decided to be, for its record."""

    def wait(self) -> None:
        """From here on the caller is watched, and the time counted."""
        self.waits_since = self.waits_since or time.perf_counter()
        self.watch.start()

    def end_wait(self) -> None:
        """Note, once, how long a follower waited. Who asked the upstream itself has noted it."""
        if self.waits_since and self.note.collapsed:
            self.note.upstream_s = time.perf_counter() - self.waits_since
            self.waits_since = 0.0


def visit_of(scope: dict[str, Any], receive: Receive) -> Visit:
    """Read an ASGI scope. The path counts as it came: with escapes it is another path."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path, query = raw.decode("latin-1"), scope["query_string"].decode("latin-1")
    route = route_of(path)
    if route is not None:
        voice, family = route.voice, route.family
    else:
        names = {name for name, _ in scope["headers"]}
        voice, family = voice_of(path, b"anthropic-version" in names)
    target = f"{path}?{query}" if query else path
    direct: Direct | None = scope.get(DIRECT)
    caller: Identified | None = scope.get(NEW)
    return Visit(
        method=scope["method"],
        path=path,
        arrived=target,
        target=target,
        query=query,
        raw_headers=scope["headers"],
        peer=scope["client"][0] if scope.get("client") else None,
        receive=receive,
        direct=direct,
        watch=Watch(receive, direct),
        dialect=voice,
        family=family,
        route=route,
        began=time.perf_counter(),
        caller=caller,
        new=caller is not None,
        asked=scope.get(ASKED),
    )
