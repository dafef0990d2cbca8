"""The policies in use, and their replacement while requests are in flight."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from trivet.errors import ConfigError
from trivet.policies.loader import load
from trivet.policies.tenants import UNDECLARED, GatewayTrust, PolicySet, TenantDirectory
from trivet.telemetry import PolicyReload


class PolicySource:
    """Holds the current policies and the directory of tenants made from them.

    `tenants` is replaced by one assignment: a request takes it once and keeps it to its end.
    Without a policy directory each credential is its own tenant. The constructor raises
    `ConfigError`; a later bad file keeps the old set.
    """

    def __init__(
        self, directory: Path | None, secret: bytes, gateway: GatewayTrust | None = None
    ) -> None:
        self._directory = directory
        self._secret = secret
        self._gateway = gateway
        self.problem: ConfigError | None = None
        """Why the last reload kept the old set; None when it did not."""
        self.tenants = self._build()

    @property
    def current(self) -> PolicySet:
        """The policies in use."""
        return self.tenants.policies

    def reload(self) -> PolicyReload:
        """Read the directory again. `ok` is False when the old set was kept: see `problem`."""
        try:
            self.tenants = self._build()
        except ConfigError as error:
            self.problem = error
            return PolicyReload(False, self.current.version, len(error.problems))
        self.problem = None
        return PolicyReload(True, self.current.version, 0)

    async def watch(self) -> AsyncIterator[PolicyReload]:
        """Reload whenever a file of the directory changes; yields each reload's result.

        Ends when the directory is removed or no directory is in use. Cancel the task to stop.
        """
        if self._directory is None:
            return
        from watchfiles import DefaultFilter, awatch

        # Kubernetes swaps a whole directory through a symlink whose name begins with two dots,
        # so nothing is filtered by name; reading again when nothing changed is cheap.
        everything = DefaultFilter(ignore_dirs=(), ignore_entity_patterns=(), ignore_paths=())
        async for _ in awatch(self._directory, watch_filter=everything, recursive=True):
            yield self.reload()

    def _build(self) -> TenantDirectory:
        policies = UNDECLARED if self._directory is None else load(self._directory)
        return TenantDirectory(policies, self._secret, self._gateway)
