"""The models behind the tier: opened in the background when a policy first needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trivet.errors import CacheError, ConfigError
from trivet.policies.calibration import Chain as ChainName
from trivet.policies.fitted import Fitted
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.bounded_verifier import DEADLINE_S, BoundedVerifier
from trivet.semantic.chain import Chain
from trivet.telemetry import Observer, StoreState, ignore

_AGAIN_S = 1.0
_LONGEST_S = 30.0
"""Seconds until what could not be opened is tried again: doubled each time, at most this many."""
_NAME = "semantic-models"
_OF_VERIFIER = frozenset({"cross_encoder", "fitted", "fitted.weights"})
"""Fields of a problem that is not the embedder's."""


class EngineKey(NamedTuple):
    """The names of an engine's models. Prints as people read it."""

    embedder: str
    chain: ChainName
    cross_encoder: str | None = None
    """None for the other chains."""
    fitted: Fitted | None = None
    """Likewise: the weights."""

    def __str__(self) -> str:
        chain = f"{self.chain} {self.cross_encoder}" if self.cross_encoder else self.chain
        return f"{self.embedder} ({chain})"


OpenChain = Callable[[EngineKey], Chain]
"""Blocking: loads weights. Raises `CacheError`."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why models could not be opened."""

    told: str
    reason: str
    wait_s: float
    until: float
    """The loop's time from which on they are tried again."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A chain that is ready, and its embedder behind a queue."""

    chain: Chain
    embedder: BatchedEmbedder
    slow: BoundedVerifier | None = None
    """The chain's verifier behind a queue, where it is a cross-encoder."""

    @property
    def trouble(self) -> str:
        """Why one of the models does not answer; empty while all do."""
        return self.embedder.trouble or ("" if self.slow is None else self.slow.trouble)


class Engines:
    """One engine for all models that a policy names together. For one event loop."""

    def __init__(
        self,
        open_chain: OpenChain,
        batched: Callable[[Chain], BatchedEmbedder],
        observer: Observer = ignore,
        verify_s: float = DEADLINE_S,
    ) -> None:
        """`verify_s`: seconds that a lookup waits for a cross-encoder."""
        self._open_chain = open_chain
        self._batched = batched
        self._observe = observer
        self._verify_s = verify_s
        self._engines: dict[EngineKey, Engine] = {}
        self._opening: dict[EngineKey, asyncio.Task[None]] = {}
        self._refused: dict[EngineKey, _Refused] = {}
        self._embedders: dict[str, BatchedEmbedder] = {}

    def ready(self, policy: SemanticPolicy) -> Engine | str:
        """The engine for a policy; a string is why there is none: `loading`, `embedder-missing`,
        `verifier-missing`.

        Never waits: a request that comes while the models load goes on without them.
        """
        key = key_of(policy)
        found = self._engines.get(key)
        if found is not None:
            return found
        loop = asyncio.get_running_loop()
        refused = self._refused.get(key)
        if key not in self._opening and (refused is None or loop.time() >= refused.until):
            self._opening[key] = loop.create_task(self._open(key))
        return "loading" if refused is None else refused.reason

    @property
    def loading(self) -> bool:
        """Whether models are being opened that were not refused before."""
        return not self._opening.keys() <= self._refused.keys()

    def trouble(self, policies: Iterable[SemanticPolicy]) -> list[str]:
        """Why models that these policies name cannot be opened or do not answer, for people."""
        if not self._refused and not any(one.trouble for one in self._engines.values()):
            return []
        told: set[str] = set()
        for key in {key_of(policy) for policy in policies if policy.mode != "off"}:
            engine, refused = self._engines.get(key), self._refused.get(key)
            if engine is not None and engine.embedder.trouble:
                told.add(f"{key.embedder}: {engine.embedder.trouble}")
            elif engine is not None and engine.trouble:
                told.add(f"{key}: {engine.trouble}")
            elif refused is not None:
                told.add(f"{key}: {refused.told}")
        return sorted(told)

    async def close(self) -> None:
        """Let go of models and threads."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for engine in self._engines.values():
            if engine.slow is not None:
                await engine.slow.close()
        for embedder in self._embedders.values():
            await embedder.close()

    async def _open(self, key: EngineKey) -> None:
        try:
            chain = await asyncio.to_thread(self._open_chain, key)
        except ConfigError as error:
            of_verifier = any(one.field in _OF_VERIFIER for one in error.problems)
            reason = "verifier-missing" if of_verifier else "embedder-missing"
            self._refuse(key, str(error), reason)
        except CacheError as error:
            self._refuse(key, str(error))
        except Exception as error:  # Whatever a model's library raises, requests go on.
            self._refuse(key, f"{type(error).__name__}: {error}")
        else:
            embedder = self._embedders.get(chain.embedder.fingerprint)
            if embedder is None:
                embedder = self._batched(chain)
                self._embedders[chain.embedder.fingerprint] = embedder
            self._engines[key] = Engine(chain, embedder, self._slow(chain))
            if self._refused.pop(key, None) is not None and not self._refused:
                self._observe(StoreState(_NAME, "up", ""))
        finally:
            self._opening.pop(key, None)

    def _slow(self, chain: Chain) -> BoundedVerifier | None:
        if chain.name != "cross-encoder" or chain.verifier is None:
            return None
        return BoundedVerifier(chain.verifier, self._verify_s, self._observe)

    def _refuse(self, key: EngineKey, told: str, reason: str = "embedder-missing") -> None:
        before = self._refused.get(key)
        wait_s = _AGAIN_S if before is None else min(2 * before.wait_s, _LONGEST_S)
        until = asyncio.get_running_loop().time() + wait_s
        self._refused[key] = _Refused(told, reason, wait_s, until)
        if before is None:
            self._observe(StoreState(_NAME, "down", f"{key}: {told}"))


def key_of(policy: SemanticPolicy) -> EngineKey:
    """The models that a policy names together."""
    measured = policy.measured
    chain = "cosine" if measured is None else measured.fingerprint.chain
    slow = policy.cross_encoder if chain == "cross-encoder" else None
    return EngineKey(policy.embedder, chain, slow, None if measured is None else measured.fitted)
