"""The policies in use, and their replacement while requests are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from trivet.errors import ConfigError
from trivet.policies.loader import load
from trivet.policies.pasted import Pasted, check_pasted
from trivet.policies.settling import PAUSE_S, FileState, Settling, state_of
from trivet.policies.tenants import UNDECLARED, GatewayTrust, PolicySet, TenantDirectory
from trivet.telemetry import PolicyReload

_LOOK_MS = 500
"""How often the watch looks whether the directory is still the same one."""
_PATIENCE_S = 5.0
"""How long who asks for a reload waits for files that go on changing."""
_RESTLESS = (
    "The policy files are being changed. They are read once they have stayed the same "
    f"for {PAUSE_S:g} second."
)


class PolicySource:
    """Holds the current policies and the directory of tenants made from them.

    `tenants` is replaced by one assignment: a request takes it once and keeps it to its end.
    Without a policy directory each credential is its own tenant. The constructor raises
    `ConfigError`; a later bad file keeps the old set.
    """

    def __init__(
        self,
        directory: Path | None,
        secret: bytes,
        gateway: GatewayTrust | None = None,
        upstreams: Collection[str] | None = None,
    ) -> None:
        """`upstreams` are the names that policies may use; None: any."""
        self._directory = directory
        self._upstreams = upstreams
        self._secret = secret
        self._gateway = gateway
        self._read = None if directory is None else state_of(directory)
        """The policy files as they were just before they were last read."""
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
            return PolicyReload(False, self.current.version, len(error.problems), detail=str(error))
        self.problem = None
        return PolicyReload(True, self.current.version, 0)

    @property
    def has_gateway(self) -> bool:
        """Whether a gateway is declared, which may name tenants."""
        return self._gateway is not None

    def check(self, text: str) -> Pasted:
        """What a text would be as one of the policy files. Reads files, changes nothing."""
        return check_pasted(text, self.current, self._directory, self._upstreams)

    async def reload_at_rest(self, pause_s: float = PAUSE_S) -> PolicyReload:
        """`reload`, once the files have stayed the same for `pause_s`; at once where they are
        those that were read last. Where they go on changing, the old set is kept."""
        for _ in range(max(1, round(_PATIENCE_S / pause_s))):
            seen = self._now()
            if seen != self._read:
                await asyncio.sleep(pause_s)
                if self._now() != seen:
                    continue
            result = self._reload_unstirred()
            if result is not None:
                return result
        return PolicyReload(False, self.current.version, 1, detail=_RESTLESS)

    async def watch(self) -> AsyncIterator[PolicyReload]:
        """Reload whenever something in the directory has changed and is at rest again (see
        `Settling`); yields each reload's result.

        A directory that is removed and made again is followed. Ends at once when no directory is
        in use, else never: cancel the task to stop.
        """
        if self._directory is None:
            return
        from watchfiles import awatch

        settling = Settling(self._directory)
        polling = False
        while True:
            if state_of(self._directory) != self._read:
                settling.stir()
            watched = _identity(self._directory)
            try:
                # Kubernetes swaps a whole directory through a symlink whose name begins with two
                # dots, so nothing is filtered by name: reading again for nothing is cheap.
                async for changes in awatch(
                    self._directory,
                    watch_filter=None,
                    rust_timeout=_LOOK_MS,
                    yield_on_timeout=True,
                    force_polling=polling,
                ):
                    # A directory made anew may get the old one's inode, so the identity alone
                    # does not tell.
                    paths = [path for _, path in changes]
                    moved = _identity(self._directory) != watched or str(self._directory) in paths
                    if changes or moved:
                        settling.stir()
                    for result in self._settled(settling):
                        yield result
                    if moved:
                        break
            except (OSError, RuntimeError):
                # No such directory now, or watchfiles' RuntimeError: no watches are left.
                polling = True
                await asyncio.sleep(_LOOK_MS / 1000)
                for result in self._settled(settling):
                    yield result

    def _settled(self, settling: Settling) -> list[PolicyReload]:
        """The result of a reload, where it is time for one."""
        if self._directory is None or not settling.settled():
            return []
        result = self._reload_unstirred()
        if result is None:
            settling.stir()
            return []
        return [result]

    def _reload_unstirred(self) -> PolicyReload | None:
        """`reload`; None, with the old set kept, where somebody wrote meanwhile."""
        before = self.tenants, self.problem
        result = self.reload()
        if self._now() != self._read:
            self.tenants, self.problem = before
            return None
        return result

    def _now(self) -> tuple[FileState, ...] | None:
        return None if self._directory is None else state_of(self._directory)

    def _build(self) -> TenantDirectory:
        policies = UNDECLARED
        if self._directory is not None:
            self._read = state_of(self._directory)
            policies = load(self._directory, self._upstreams)
        return TenantDirectory(policies, self._secret, self._gateway)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
