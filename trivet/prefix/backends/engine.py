"""An engine of our own that shares a secret with the proxy: told the tenant in a signed header."""

from __future__ import annotations

from trivet.prefix.backends.base import Ask, Isolation, Prepared


class SignedEngine:
    """Requests go as they are: `cache_salt` divides the signed tenant's own space only."""

    kind = "trivet"
    isolates: Isolation = "tenant"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The request as it is."""
        return Prepared(ask.raw, notes=("the tenant is told in a signed header",))
