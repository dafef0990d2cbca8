"""Opens the chain that eval measures, by the names that policies use."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from trivet.errors import ConfigError, Problem
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain
from trivet.semantic.types import IntentClassifier


def open_eval_chain(embedder: str, chain: str, *, gate: bool) -> Chain:
    """The chain over an embedder. Loads weights; raises `CacheError` where they are missing."""
    try:
        opened = _open_chain(embedder, chain)
        return replace(opened, gate=_open_gate()) if gate else replace(opened, gate=None)
    except ImportError as error:
        raise ConfigError(
            Problem(str(error.name), 0, 0, "", "is not installed: pip install 'trivet[semantic]'")
        ) from None


def _open_chain(embedder: str, chain: str) -> Chain:
    from trivet.semantic.embedders import open_embedder

    if chain == "cosine":
        return Chain("cosine", open_embedder(embedder))
    from trivet.semantic.verifiers import open_chain

    return open_chain(cast(ChainName, chain), open_embedder(embedder))


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
