"""Trivet: the three-tier cache between an LLM app and its model.

Can a hit change the answer? Exact: no, if the key is complete. Semantic: yes, so it is measured
first. Prefix: never.

In an app's own process: `TrivetTransport` and `AsyncTrivetTransport` for clients that use httpx2,
`TrivetMiddleware` for ASGI apps. They are imported when they are first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trivet.errors import CacheError, ConfigError, RequestError, StoreError, UpstreamError
from trivet.messages import Answer, Api, Request, Scope, Usage

if TYPE_CHECKING:
    from trivet.library.middleware import TrivetMiddleware
    from trivet.library.transport import AsyncTrivetTransport, TrivetTransport

__all__ = [
    "Answer",
    "Api",
    "AsyncTrivetTransport",
    "CacheError",
    "ConfigError",
    "Request",
    "RequestError",
    "Scope",
    "StoreError",
    "TrivetMiddleware",
    "TrivetTransport",
    "UpstreamError",
    "Usage",
]
__version__ = "0.1.0"

_LATER = {
    "AsyncTrivetTransport": "trivet.library.transport",
    "TrivetMiddleware": "trivet.library.middleware",
    "TrivetTransport": "trivet.library.transport",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'trivet' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
