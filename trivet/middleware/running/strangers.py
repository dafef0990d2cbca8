"""Tells the log of tenants that a gateway names and no policy has. The caller is not told."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from trivet.policies.tenants import Identified, RawHeaders, TenantDirectory

_REPEAT_S = 60.0
_LONGEST = 64
_log = structlog.get_logger("trivet")


class Strangers:
    """Identifies callers, and logs a gateway's unknown tenants, one line a minute at most."""

    def __init__(
        self, tenants: Callable[[], TenantDirectory], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tenants` gives the directory in use."""
        self._tenants = tenants
        self._clock = clock
        self._told = float("-inf")

    def identify(self, raw: RawHeaders, peer: str | None) -> Identified | None:
        """See `TenantDirectory.identify`."""
        tenants = self._tenants()
        found = tenants.identify(raw, peer)
        if found is None and self._clock() - self._told >= _REPEAT_S:
            named = tenants.named_by_gateway(raw, peer)
            if named is not None:
                self._told = self._clock()
                _log.warning(
                    "gateway-tenant-unknown",
                    tenant=named[:_LONGEST],
                    reason="no policy has this name under credentials: [{gateway: NAME}]",
                    effect="answered 401",
                )
        return found
