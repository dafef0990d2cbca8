"""The models behind the tier: opened in the background when a policy first needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from trivet.errors import CacheError
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.telemetry import Observer, StoreState, ignore

_AGAIN_S = 30.0
"""Seconds between two tries to open what could not be opened."""
_NAME = "semantic-models"

OpenChain = Callable[[str, ChainName], Chain]
"""Blocking: loads weights. Raises `CacheError`."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A chain that is ready, and its embedder behind a queue."""

    chain: Chain
    embedder: BatchedEmbedder


class Engines:
    """One engine for each embedder and chain that the policies name. For one event loop."""

    def __init__(
        self,
        open_chain: OpenChain,
        batched: Callable[[Chain], BatchedEmbedder],
        observer: Observer = ignore,
    ) -> None:
        self._open_chain = open_chain
        self._batched = batched
        self._observe = observer
        self._engines: dict[tuple[str, ChainName], Engine] = {}
        self._opening: dict[tuple[str, ChainName], asyncio.Task[None]] = {}
        self._refused: dict[tuple[str, ChainName], tuple[float, str]] = {}
        self._embedders: dict[str, BatchedEmbedder] = {}

    def ready(self, policy: SemanticPolicy) -> Engine | str:
        """The engine for a policy; a string is why there is none: `loading`, or an error's reason.

        Never waits: a request that comes while the models load goes on without them.
        """
        measured = policy.measured
        name = (policy.embedder, "cosine" if measured is None else measured.fingerprint.chain)
        found = self._engines.get(name)
        if found is not None:
            return found
        loop = asyncio.get_running_loop()
        at, reason = self._refused.get(name, (0.0, "loading"))
        if name not in self._opening and loop.time() >= at:
            self._opening[name] = loop.create_task(self._open(name))
        return reason

    @property
    def open_engines(self) -> tuple[Engine, ...]:
        """Those that are ready."""
        return tuple(self._engines.values())

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why models could not be opened, by embedder and chain; for readiness."""
        return tuple(
            f"{embedder} ({chain}): {reason}"
            for (embedder, chain), (_, reason) in self._refused.items()
        )

    async def close(self) -> None:
        """Let go of models and threads."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for embedder in self._embedders.values():
            await embedder.close()

    async def _open(self, name: tuple[str, ChainName]) -> None:
        try:
            chain = await asyncio.to_thread(self._open_chain, *name)
        except CacheError as error:
            self._refuse(name, str(error))
        except Exception as error:  # Whatever a model's library raises, requests go on.
            self._refuse(name, f"{type(error).__name__}: {error}")
        else:
            embedder = self._embedders.get(chain.embedder.fingerprint)
            if embedder is None:
                embedder = self._batched(chain)
                self._embedders[chain.embedder.fingerprint] = embedder
            self._engines[name] = Engine(chain, embedder)
            if self._refused.pop(name, None) is not None and not self._refused:
                self._observe(StoreState(_NAME, "up", ""))
        finally:
            self._opening.pop(name, None)

    def _refuse(self, name: tuple[str, ChainName], reason: str) -> None:
        told = name in self._refused
        self._refused[name] = (asyncio.get_running_loop().time() + _AGAIN_S, "embedder-missing")
        if not told:
            self._observe(StoreState(_NAME, "down", f"{name[0]} ({name[1]}): {reason}"))
