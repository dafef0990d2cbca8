"""Models that are opened in the background, and tried again where they could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from parts import policy
from stand_ins import ToldEmbedder

from trivet.errors import EmbedderError
from trivet.policies.calibration import Chain as ChainName
from trivet.semantic import engines as engines_module
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.semantic.engines import Engine, Engines
from trivet.telemetry import Event, StoreState


class Rig:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.opened: list[tuple[str, ChainName]] = []
        self.told: list[Event] = []
        self.engines = Engines(
            self.open, lambda chain: BatchedEmbedder(chain.embedder), self.told.append
        )

    def open(self, embedder: str, chain: ChainName) -> Chain:
        self.opened.append((embedder, chain))
        if self.error is not None:
            raise self.error
        return Chain(chain, ToldEmbedder())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_nobody_waits_for_models() -> None:
    rig = Rig()
    assert rig.engines.ready(policy()) == "loading"
    assert rig.engines.loading
    await until(lambda: isinstance(rig.engines.ready(policy()), Engine))
    assert not rig.engines.loading
    assert rig.opened == [("default", "cosine")]
    assert rig.told == []
    await rig.engines.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EmbedderError("missing", "There is no folder x."), "There is no folder x."),
        (ValueError("odd weights"), "ValueError: odd weights"),
    ],
)
async def test_what_cannot_be_opened_is_named_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    monkeypatch.setattr(engines_module, "_AGAIN_S", 0.02)
    rig = Rig()
    rig.error = error
    rig.engines.ready(policy())
    await until(lambda: rig.engines.ready(policy()) == "embedder-missing")
    assert rig.engines.trouble([policy()]) == [f"default (cosine): {told}"]
    await until(lambda: bool(rig.engines.ready(policy())) and len(rig.opened) > 3)
    rig.error = None
    await until(lambda: isinstance(rig.engines.ready(policy()), Engine))
    assert rig.engines.trouble([policy()]) == []
    assert rig.told == [
        StoreState("semantic-models", "down", f"default (cosine): {told}"),
        StoreState("semantic-models", "up", ""),
    ]
    await rig.engines.close()


async def test_only_what_a_policy_names_is_trouble() -> None:
    rig = Rig()
    rig.error = EmbedderError("missing", "gone")
    rig.engines.ready(policy(embedder="x"))
    await until(lambda: bool(rig.engines.trouble([policy(embedder="x")])))
    assert rig.engines.trouble([policy(), policy(embedder="x", mode="off")]) == []
    await rig.engines.close()
