"""Opens the chain that a name stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import ConfigError, Problem
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.fitted import Fitted
from trivet.semantic.chain import Chain
from trivet.semantic.types import Embedder, IntentClassifier

if TYPE_CHECKING:
    from trivet.semantic.types import Verifier


def open_chain(
    name: ChainName,
    embedder: Embedder,
    gate: IntentClassifier | None = None,
    cross_encoder: str | None = None,
    fitted: Fitted | None = None,
) -> Chain:
    """The chain `name` over an embedder. `cross_encoder` is a hub name or a folder, and `fitted`
    the weights, each for the chain of that name.

    Raises `ConfigError` for another name, and where the cross-encoder is not named or not loaded,
    or the weights are not there or are not the verifier's.
    """
    if name == "fitted":
        return Chain(name, embedder, _fitted(fitted), gate)
    return Chain(name, embedder, _verifier(name, cross_encoder), gate)


def _fitted(layer: Fitted | None) -> Verifier:
    from trivet.semantic.fitted import FittedVerifier

    if layer is None:
        raise ConfigError(Problem("", 0, 0, "fitted", "weights are needed for this chain"))
    return FittedVerifier(layer)


def _verifier(name: ChainName, cross_encoder: str | None) -> Verifier | None:
    if name == "cosine":
        return None
    if name == "cross-encoder":
        return _cross_encoder(cross_encoder)
    from trivet.semantic.verify import RuleVerifier, TrainedVerifier

    if name == "rules":
        return RuleVerifier()
    if name == "verifier":
        return TrainedVerifier()
    raise ConfigError(Problem("", 0, 0, "chain", f"no chain is called {name}"))


def _cross_encoder(name: str | None) -> Verifier:
    if name is None or not name.strip():
        raise _refused("is needed for this chain")
    if name.startswith(("/", "./", "../", "~")) and not Path(name).expanduser().is_dir():
        # Told before torch is loaded, which takes seconds.
        raise _refused(f"There is no folder {name}.")
    try:
        from trivet.semantic.cross_encoder import CrossEncoderVerifier
    except ImportError as error:
        told = f"needs {error.name or error}: pip install 'trivet[semantic]'"
        raise _refused(told) from error
    return CrossEncoderVerifier(name)


def _refused(told: str) -> ConfigError:
    return ConfigError(Problem("", 0, 0, "cross_encoder", told))
