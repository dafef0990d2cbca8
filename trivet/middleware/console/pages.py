"""What a page of the console is: a view asks the running proxy through `Control` and hands what it
was told to pure functions. `registry` has them by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from trivet.middleware.admin.control import Control
from trivet.middleware.console.history import History


class Asked(NamedTuple):
    """What a page was asked with."""

    control: Control
    history: History
    query: Mapping[str, str]
    body: Mapping[str, Any] = {}
    """What was sent, where the page takes something."""


View = Callable[[Asked], Awaitable[dict[str, Any]]]
"""Makes a page's JSON. Raises `RequestError` for what is wrong with the query or the body."""
