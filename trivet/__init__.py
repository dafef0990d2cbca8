"""Trivet: the three-tier cache between an LLM app and its model.

Can a hit change the answer? Exact: no, if the key is complete. Semantic: yes, so it is measured
first. Prefix: never.
"""

from trivet.errors import CacheError, ConfigError, RequestError, StoreError, UpstreamError
from trivet.messages import Answer, Api, Request, Scope, Usage

__all__ = [
    "Answer",
    "Api",
    "CacheError",
    "ConfigError",
    "Request",
    "RequestError",
    "Scope",
    "StoreError",
    "UpstreamError",
    "Usage",
]
__version__ = "0.1.0"
