"""Opens the chain that a name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.errors import ConfigError, Problem
from trivet.policies.calibration import Chain as ChainName
from trivet.semantic.chain import Chain
from trivet.semantic.types import Embedder, IntentClassifier

if TYPE_CHECKING:
    from trivet.semantic.types import Verifier


def open_chain(
    name: ChainName,
    embedder: Embedder,
    gate: IntentClassifier | None = None,
    cross_encoder: str | None = None,
) -> Chain:
    """The chain `name` over an embedder. `cross_encoder` is a hub name or a folder, for the chain
    of that name.

    Raises `ConfigError` for another name, and where the cross-encoder is not named or not loaded.
    """
    return Chain(name, embedder, _verifier(name, cross_encoder), gate)


def _verifier(name: ChainName, cross_encoder: str | None) -> Verifier | None:
    if name == "cosine":
        return None
    if name == "cross-encoder":
        if cross_encoder is None:
            raise ConfigError(Problem("", 0, 0, "cross_encoder", "is needed for this chain"))
        from trivet.semantic.cross_encoder import CrossEncoderVerifier

        return CrossEncoderVerifier(cross_encoder)
    from trivet.semantic.verify import RuleVerifier, TrainedVerifier

    if name == "rules":
        return RuleVerifier()
    if name == "verifier":
        return TrainedVerifier()
    raise ConfigError(Problem("", 0, 0, "chain", f"no chain is called {name}"))
