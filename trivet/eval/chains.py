"""Opens the chain that eval measures, by the names that policies use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import click

from trivet.errors import ConfigError, Problem
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.fitted import Fitted
from trivet.policies.intents import Intent
from trivet.progress import busy
from trivet.semantic.chain import Chain
from trivet.semantic.types import Embedder, IntentClassifier


def open_eval_chain(
    embedder: str,
    chain: str,
    *,
    gate: bool,
    cross_encoder: str | None = None,
    fitted: Fitted | None = None,
) -> Chain:
    """The chain over an embedder; `fitted` are a calibration's weights. Loads weights; raises
    `CacheError` where they are missing, and as `check_named` does."""
    check_named((chain,), cross_encoder)
    try:
        with busy("loading the models"):
            opened = _over(_open_embedder(embedder), chain, cross_encoder, fitted)
            return replace(opened, gate=_open_gate() if gate else None)
    except ImportError as error:
        raise _missing(error) from None


def open_eval_chains(
    embedder: str,
    chains: Sequence[str],
    *,
    gate: bool,
    cross_encoder: str | None = None,
    fitted: Fitted | None = None,
) -> list[Chain]:
    """Several chains over one embedder and one gate. Raises as `open_eval_chain` does."""
    check_named(chains, cross_encoder)
    try:
        with busy("loading the models"):
            before = _open_gate() if gate else None
            opened = _open_embedder(embedder)
            return [
                replace(_over(opened, chain, cross_encoder, fitted), gate=before)
                for chain in chains
            ]
    except ImportError as error:
        raise _missing(error) from None


def check_named(chains: Sequence[str], cross_encoder: str | None) -> None:
    """Raises `UsageError` where a cross-encoder is among the chains and has no name."""
    if "cross-encoder" in chains and not cross_encoder:
        raise click.UsageError("The chain cross-encoder needs --cross-encoder NAME.")


def check_used(chains: Sequence[str], cross_encoder: str | None) -> None:
    """Raises `UsageError` where a cross-encoder is named and no chain here would ask it."""
    if cross_encoder and "cross-encoder" not in chains:
        told = f"--cross-encoder goes with --chain cross-encoder; the chain here is {chains[0]}."
        raise click.UsageError(told)


def _open_embedder(embedder: str) -> Embedder:
    from trivet.semantic.embedders import open_embedder

    return open_embedder(embedder)


def _over(
    embedder: Embedder, chain: str, cross_encoder: str | None, fitted: Fitted | None
) -> Chain:
    if chain == "cosine":
        return Chain("cosine", embedder)
    from trivet.semantic.verifiers import open_chain

    return open_chain(cast(ChainName, chain), embedder, None, cross_encoder, fitted)


def _missing(error: ImportError) -> ConfigError:
    told = "is not installed: pip install 'trivet[semantic]'"
    return ConfigError(Problem(str(error.name), 0, 0, "", told))


def _open_gate() -> IntentClassifier:
    from trivet.semantic.gate import load_gate

    return load_gate()


def read_intents(names: str) -> tuple[Intent, ...]:
    """Intents by name, with commas between them. Raises `ConfigError` for one that is none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {intent.value: intent for intent in Intent}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        told = f"{unknown[0]!r} is no intent" if unknown else "names no intent"
        raise ConfigError(Problem("--open", 0, 0, "", f"{told}; there are {', '.join(known)}"))
    return tuple(dict.fromkeys(known[name] for name in wanted))
