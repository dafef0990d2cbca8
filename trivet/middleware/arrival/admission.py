"""How much of a tenant's work may be under way at once."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.errors import RequestError
from trivet.policies.model import TenantPolicy


@dataclass(slots=True)
class _InFlight:
    requests: int = 0
    size: int = 0


class Admission:
    """Counts requests and body bytes in flight, by tenant. A tenant at rest costs no memory."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, _InFlight] = {}

    def enter(self, policy: TenantPolicy) -> None:
        """Count one request in. Raises `RequestError` 429 at the tenant's limit."""
        now = self._by_tenant.get(policy.tenant)
        limit = policy.limits.requests_in_flight
        if now is None:
            now = self._by_tenant[policy.tenant] = _InFlight()
        elif limit is not None and now.requests >= limit:
            raise RequestError(
                429,
                f"This tenant already has {limit} request{'' if limit == 1 else 's'} in flight, "
                "its limit.",
                code="requests_in_flight",
            )
        now.requests += 1

    def load(self, policy: TenantPolicy, size: int) -> None:
        """Count a body in. Raises `RequestError` 429 beyond the tenant's limit."""
        limit = policy.limits.bytes_in_flight
        now = self._by_tenant[policy.tenant]
        if limit is not None and now.size + size > limit:
            raise RequestError(
                429,
                f"This tenant's request bodies in flight would exceed its limit of {limit} bytes.",
                code="bytes_in_flight",
            )
        now.size += size

    def leave(self, policy: TenantPolicy, size: int) -> None:
        """Count a request out, with the body bytes that were counted in."""
        now = self._by_tenant[policy.tenant]
        now.requests -= 1
        now.size -= size
        if not now.requests:
            del self._by_tenant[policy.tenant]

    def requests(self, tenant: str) -> int:
        """Requests of the tenant that are in flight."""
        now = self._by_tenant.get(tenant)
        return now.requests if now else 0
