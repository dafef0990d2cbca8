"""The models behind the tier: opened in the background when a policy first needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trivet.errors import CacheError
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.chain import Chain
from trivet.telemetry import Observer, StoreState, ignore

_AGAIN_S = 1.0
_LONGEST_S = 30.0
"""Seconds until what could not be opened is tried again: doubled each time, at most this many."""
_NAME = "semantic-models"

OpenChain = Callable[[str, ChainName], Chain]
"""Blocking: loads weights. Raises `CacheError`."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why models could not be opened."""

    told: str
    wait_s: float
    until: float
    """The loop's time from which on they are tried again."""


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
        self._refused: dict[tuple[str, ChainName], _Refused] = {}
        self._embedders: dict[str, BatchedEmbedder] = {}

    def ready(self, policy: SemanticPolicy) -> Engine | str:
        """The engine for a policy; a string is why there is none: `loading` or `embedder-missing`.

        Never waits: a request that comes while the models load goes on without them.
        """
        name = _name_of(policy)
        found = self._engines.get(name)
        if found is not None:
            return found
        loop = asyncio.get_running_loop()
        refused = self._refused.get(name)
        if name not in self._opening and (refused is None or loop.time() >= refused.until):
            self._opening[name] = loop.create_task(self._open(name))
        return "loading" if refused is None else "embedder-missing"

    @property
    def loading(self) -> bool:
        """Whether models are being opened that were not refused before."""
        return not self._opening.keys() <= self._refused.keys()

    def trouble(self, policies: Iterable[SemanticPolicy]) -> list[str]:
        """Why models that these policies name cannot be opened or do not answer, for people."""
        if not self._refused and not any(one.trouble for one in self._embedders.values()):
            return []
        told: dict[str, None] = {}
        for name in {_name_of(policy) for policy in policies if policy.mode != "off"}:
            engine, refused = self._engines.get(name), self._refused.get(name)
            if engine is not None and engine.embedder.trouble:
                told[f"{name[0]}: {engine.embedder.trouble}"] = None
            elif refused is not None:
                told[f"{name[0]} ({name[1]}): {refused.told}"] = None
        return sorted(told)

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

    def _refuse(self, name: tuple[str, ChainName], told: str) -> None:
        before = self._refused.get(name)
        wait_s = _AGAIN_S if before is None else min(2 * before.wait_s, _LONGEST_S)
        self._refused[name] = _Refused(told, wait_s, asyncio.get_running_loop().time() + wait_s)
        if before is None:
            self._observe(StoreState(_NAME, "down", f"{name[0]} ({name[1]}): {told}"))


def _name_of(policy: SemanticPolicy) -> tuple[str, ChainName]:
    measured = policy.measured
    return policy.embedder, "cosine" if measured is None else measured.fingerprint.chain
