"""Models that are opened in the background, and tried again where they could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from parts import calibration, policy
from stand_ins import ToldEmbedder

from trivet.errors import ConfigError, EmbedderError, Problem
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.calibration import Fingerprint
from trivet.policies.fitted import Fitted
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic import engines as engines_module
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.semantic.engines import Engine, EngineKey, Engines
from trivet.semantic.types import TextPair, Verdict
from trivet.telemetry import Event, StoreState


class Rig:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.opened: list[EngineKey] = []
        self.told: list[Event] = []
        self.engines = Engines(
            self.open, lambda chain: BatchedEmbedder(chain.embedder), self.told.append
        )

    def open(self, key: EngineKey) -> Chain:
        self.opened.append(key)
        if self.error is not None:
            raise self.error
        return Chain(key.chain, ToldEmbedder(), None if key.chain == "cosine" else Half())

    async def ready(self, named: SemanticPolicy) -> Engine:
        """The engine of a policy, once it is open."""
        await until(lambda: isinstance(self.engines.ready(named), Engine))
        found = self.engines.ready(named)
        assert isinstance(found, Engine)
        return found


class Half:
    """Every pair scores a half; it fails where it is told to."""

    name, fingerprint = "half", "h1"
    error: Exception | None = None

    def verify(self, pairs: Sequence[TextPair]) -> list[Verdict]:
        if self.error is not None:
            raise self.error
        return [Verdict(0.5)] * len(pairs)


def by(chain: ChainName, cross_encoder: str | None) -> SemanticPolicy:
    """A policy that names a cross-encoder, and whose calibration is of the chain."""
    made = policy(cross_encoder=cross_encoder)
    made.attach(calibration(fingerprint=Fingerprint(chain=chain, embedder="e1")))
    return made


def fitted(intercept: float) -> SemanticPolicy:
    """A policy whose calibration has weights of its own."""
    layer = Fitted(
        features="few",
        pairs=100,
        intercept=intercept,
        trust=1.0,
        weights=(0.0, 0.0),
        means=(0.0, 0.0),
        scales=(1.0, 1.0),
    )
    made = policy()
    print_ = Fingerprint(chain="fitted", embedder="e1", verifier="v1")
    made.attach(calibration(fingerprint=print_, fitted=layer))
    return made


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
    assert rig.opened == [EngineKey("default", "cosine")]
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


async def test_a_policy_s_cross_encoder_is_opened_for_the_chain_of_that_name_alone() -> None:
    rig = Rig()
    assert (await rig.ready(by("cross-encoder", "one"))).slow is not None
    assert (await rig.ready(by("verifier", "one"))).slow is None
    assert await rig.ready(by("verifier", None)) is await rig.ready(by("verifier", "one"))
    await rig.ready(by("cross-encoder", "two"))
    assert rig.opened == [
        EngineKey("default", "cross-encoder", "one"),
        EngineKey("default", "verifier"),
        EngineKey("default", "cross-encoder", "two"),
    ]
    await rig.engines.close()


async def test_other_weights_are_an_engine_of_their_own_and_equal_ones_are_not() -> None:
    rig = Rig()
    one, equal, other = fitted(0.5), fitted(0.5), fitted(0.6)
    assert one.measured is not None
    assert await rig.ready(one) is await rig.ready(equal)
    assert await rig.ready(one) is not await rig.ready(other)
    assert (await rig.ready(one)).slow is None
    assert len(rig.opened) == 2
    assert rig.opened[0] == EngineKey("default", "fitted", None, one.measured.fitted)
    await rig.engines.close()


async def test_weights_that_cannot_be_opened_are_the_verifiers_trouble() -> None:
    rig = Rig()
    rig.error = ConfigError(Problem("", 0, 0, "fitted.weights", "7 weights"))
    made = fitted(0.5)
    rig.engines.ready(made)
    await until(lambda: rig.engines.ready(made) == "verifier-missing")
    assert rig.engines.trouble([made]) == ["default (fitted): fitted.weights: 7 weights"]
    await rig.engines.close()


async def test_a_cross_encoder_that_cannot_be_opened_is_named() -> None:
    rig = Rig()
    rig.error = ConfigError(Problem("", 0, 0, "cross_encoder", "There is no folder /x."))
    named = by("cross-encoder", "/x")
    await until(lambda: rig.engines.ready(named) == "verifier-missing")
    (told,) = rig.engines.trouble([named])
    assert told == "default (cross-encoder /x): cross_encoder: There is no folder /x."
    assert rig.told == [StoreState("semantic-models", "down", told)]
    await rig.engines.close()


async def test_a_cross_encoder_that_fails_is_trouble_of_who_names_it() -> None:
    rig = Rig()
    engine = await rig.ready(by("cross-encoder", "one"))
    assert engine.slow is not None
    assert await engine.slow.verify(TextPair("a", "b", 0.9)) == Verdict(0.5)
    assert isinstance(engine.chain.verifier, Half)
    engine.chain.verifier.error = ValueError("odd")
    for _ in range(3):
        assert await engine.slow.verify(TextPair("a", "b", 0.9)) == "verifier-crash"
    told = ["default (cross-encoder one): half failed: ValueError('odd')"]
    assert rig.engines.trouble([by("cross-encoder", "one")]) == told
    assert rig.engines.trouble([by("cross-encoder", "two"), by("cosine", None)]) == []
    await rig.engines.close()
    assert await engine.slow.verify(TextPair("a", "b", 0.9)) == "verifier-closed"
