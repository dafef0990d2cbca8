"""What readiness says of the stores."""

from __future__ import annotations

import asyncio

import pytest

from trivet.errors import StoreError
from trivet.exact.memory import MemoryStore
from trivet.middleware.admin import health as module
from trivet.middleware.admin.control import Component
from trivet.middleware.admin.health import StoreHealth
from trivet.telemetry import StoreState


class Store(MemoryStore):
    """A store that is ready unless told otherwise."""

    def __init__(self, trouble: Exception | None = None, *, hangs: bool = False) -> None:
        super().__init__()
        self._trouble = trouble
        self._hangs = hangs

    async def ready(self) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        if self._trouble is not None:
            raise self._trouble


UP = Component("store:memory", True, "up")


async def test_a_store_that_answers_is_up() -> None:
    assert await StoreHealth().components(Store()) == (UP,)


async def test_a_store_that_fails_is_down_with_its_reason_and_no_reason_to_send_nobody() -> None:
    (part,) = await StoreHealth().components(Store(StoreError("refused", "refused: no")))
    assert (part.ok, part.state) == (True, "down")
    assert part.detail == (
        "refused: answers come from this process's memory, where it holds them, or from the "
        "upstream"
    )


async def test_a_store_that_does_not_answer_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.01)
    health = StoreHealth()
    (part,) = await health.components(Store(hangs=True))
    assert (part.ok, part.state) == (True, "down")
    assert part.detail.startswith("timeout: ")
    health(StoreState("memory", "down", "locked: database is locked"))
    (part,) = await health.components(Store(hangs=True))
    assert part.detail.startswith("locked: ")


async def test_a_store_that_takes_no_writes_is_degraded_until_it_does() -> None:
    health = StoreHealth()
    health(StoreState("memory", "degraded", "full: no room"))
    (part,) = await health.components(Store())
    assert (part.ok, part.state) == (True, "degraded")
    assert part.detail.startswith("full: no room: stored answers are served")
    health(StoreState("memory", "up", ""))
    assert await health.components(Store()) == (UP,)


async def test_the_fleet_is_a_component_where_there_is_one() -> None:
    health = StoreHealth()
    health(StoreState("fleet", "down", "timeout"))
    _, fleet = await health.components(Store())
    assert fleet == Component(
        "fleet", True, "down", "timeout: requests of several machines are not collapsed"
    )
    health(StoreState("fleet", "up", ""))
    assert await health.components(Store()) == (UP, Component("fleet", True, "up"))


async def test_another_secret_on_the_store_is_told_while_it_is_in_use() -> None:
    health = StoreHealth()
    told = StoreState("redis-secret", "degraded", "another secret is in use there")
    health(told)
    parts = await health.components(Store())
    assert parts == (UP, Component("redis-secret", True, "degraded", told.reason))
    health(StoreState("redis-secret", "up", ""))
    assert await health.components(Store()) == (UP,)
