"""Drives vCache for `peer.Peer`: run by its own Python, where `vcache` is installed.

Reads JSON lines from standard input, answers on standard output, and imports nothing of Trivet.
The policy is the library's own `VerifiedDecisionPolicy`. What each miss teaches it is labelled by
the truth and taken in before the next question: the best that its background work could do.
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

UNUSED = frozenset({"chromadb", "langchain", "langchain_community", "torch", "vllm"})
"""Imported with the package for engines and stores that are not measured: not to be installed."""
ROOM = 20_000
"""Vectors that its index holds."""


class Placeholder(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Placeholders(MetaPathFinder, Loader):
    """Finds a placeholder for what is in `UNUSED`."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """A spec for a name in `UNUSED`, or below one."""
        if fullname.partition(".")[0] not in UNUSED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty package."""
        return Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


class AtOnce:
    """In place of the policy's thread pool: runs what it is given before it returns."""

    def submit(self, function: Callable[..., object], *arguments: object) -> None:
        """Run it."""
        function(*arguments)

    def shutdown(self, wait: bool = True) -> None:
        """Nothing is left to wait for."""


class VCache:
    """One empty cache at one delta."""

    def __init__(self, setting: dict[str, Any]) -> None:
        random.seed(setting["seed"])
        library = import_module("vcache")
        self._numpy = import_module("numpy")
        self._engine = library.BenchmarkInferenceEngine()
        self._embedding = library.BenchmarkEmbeddingEngine()
        self._policy = library.VerifiedDecisionPolicy(delta=setting["delta"])
        config = library.VCacheConfig(
            inference_engine=self._engine,
            embedding_engine=self._embedding,
            vector_db=library.HNSWLibVectorDB(max_capacity=ROOM),
            embedding_metadata_storage=library.InMemoryEmbeddingMetadataStorage(),
            eviction_policy=library.NoEvictionPolicy(),
            similarity_evaluator=library.BenchmarkComparisonSimilarityEvaluator(),
        )
        self._cache = library.VCache(config, self._policy)
        self._policy.executor.shutdown()
        self._policy.executor = AtOnce()

    def store(self, line: dict[str, Any]) -> None:
        """Add a question and its answer without a look-up."""
        self._see(line)
        answer = line["answer"]
        self._policy.cache.add(prompt=line["text"], response=answer, id_set=int(answer))

    def ask(self, line: dict[str, Any]) -> str | None:
        """The answer that it serves. What it stores of a miss is its own to decide."""
        self._see(line)
        hit, response, _, _ = self._cache.infer_with_cache_info(
            line["text"], id_set=int(line["answer"])
        )
        self._policy.callback_queue.join()
        return response if hit else None

    def close(self) -> None:
        """Stop its thread."""
        self._policy.shutdown()

    def _see(self, line: dict[str, Any]) -> None:
        vector = base64.b64decode(line["vector"])
        self._embedding.set_next_embedding(self._numpy.frombuffer(vector, dtype="<f4").copy())
        self._engine.set_next_response(line["answer"])


def main() -> None:
    """Serve until standard input ends. What the library prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.meta_path.insert(0, Placeholders())
    cache: VCache | None = None
    for text in sys.stdin:
        line = json.loads(text)
        if line["do"] == "open":
            if cache is not None:
                cache.close()
            cache = VCache(line)
        elif cache is not None and line["do"] == "store":
            cache.store(line)
        elif cache is not None:
            out.write(json.dumps({"served": cache.ask(line)}) + "\n")
    if cache is not None:
        cache.close()


if __name__ == "__main__":
    main()
