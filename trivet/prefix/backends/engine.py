"""An engine of our own: told the tenant in a signed header, or by a salt as other servers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.messages import Usage
from trivet.prefix.backends.base import SERVER_HEADERS, Ask, Isolation, Prepared
from trivet.prefix.backends.servers import salted
from trivet.prefix.backends.usage import usage_of


class SignedEngine:
    """Requests go as they are: `cache_salt` divides the signed tenant's own space only."""

    kind = "trivet"
    isolates: Isolation = "tenant"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The request as it is."""
        return Prepared(ask.raw, notes=("the tenant is told in a signed header",))

    def read_usage(self, answer: Mapping[str, Any]) -> Usage | None:
        """See `usage`."""
        return usage_of(answer)


class UnsignedEngine:
    """An engine without the secret keeps spaces apart by `cache_salt` alone."""

    kind = "trivet"
    isolates: Isolation = "salt"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's salt over whatever the caller sent."""
        return salted(ask)._replace(dropped=SERVER_HEADERS)

    def read_usage(self, answer: Mapping[str, Any]) -> Usage | None:
        """See `usage`."""
        return usage_of(answer)
