"""A person says of hits that were drawn for the label queue whether they were right.

A wrong one is taken out everywhere before it is counted, so that a verdict that is given again
after trouble does what is left to do.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from trivet.errors import RequestError, StoreError
from trivet.middleware.admin.control import Heard, Outcome, Said
from trivet.policies.model import TenantPolicy
from trivet.semantic.draws import GOOD_S, Draw, DrawNames
from trivet.semantic.monitor import Monitor
from trivet.semantic.tally import digest_of


class Verdicts:
    """Reads the names, takes wrong answers out, and lets the running measurement count."""

    def __init__(
        self,
        names: DrawNames,
        forget: Callable[[str, str], Awaitable[None]],
        monitor: Monitor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`forget` takes a tenant and a record's id, and may raise `StoreError`."""
        self._names = names
        self._forget = forget
        self._monitor = monitor
        self._clock = clock

    async def give(self, policy: TenantPolicy, said: Sequence[Said]) -> list[Heard]:
        """What became of each, in the order given.

        Raises `RequestError` 503 where a store is in trouble, or was not read yet: some may have
        been counted, and all can be given again.
        """
        if not self._monitor.book:
            message = "What was counted before is not known yet; send the verdicts again."
            raise RequestError(503, message, code="starting")
        calibration = digest_of(policy.semantic.measured)
        try:
            return [await self._hear(policy, calibration, one) for one in said]
        except StoreError as error:
            message = "Not every verdict could be counted; send them again: each counts once."
            raise RequestError(503, message, code=f"store-{error.reason}") from error

    async def _hear(self, policy: TenantPolicy, calibration: str, said: Said) -> Heard:
        draw = self._names.read(policy.tenant, said.id)
        if draw is None:
            return Heard(said.id, "unknown")
        refused = self._refused(draw, calibration)
        if refused is not None:
            return Heard(said.id, refused)
        if not said.same:
            await self._forget(policy.tenant, draw.record)
        at = draw.family, draw.intent
        first = await self._monitor.hear(policy.tenant, policy.semantic, at, said.same, draw.nonce)
        return Heard(said.id, "counted" if first else "repeated", not said.same)

    def _refused(self, draw: Draw, calibration: str) -> Outcome | None:
        if draw.book != self._monitor.book:
            return "unknown"
        if draw.calibration != calibration:
            return "recalibrated"
        return "expired" if self._clock() - draw.at > GOOD_S else None
