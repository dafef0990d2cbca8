"""Drives GPTCache for `peer.Peer`: run by its own Python, where `gptcache` is installed.

Reads JSON lines from standard input, answers on standard output, and imports nothing of Trivet.
The cache is the library's own `init_similar_cache`: SQLite and FAISS, distance evaluation.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from importlib import import_module
from typing import Any

ROOM = 1_000_000
"""Entries that it holds: its default of 1,000 would evict some of the data."""


class Embedding:
    """Hands over the vector that came with the text."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.vector: Any = None

    def to_embeddings(self, text: str, **_: object) -> Any:
        """The vector of the line at hand; `text` is that line's."""
        return self.vector


class GptCache:
    """One empty cache at one similarity threshold."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._api = import_module("gptcache.adapter.api")
        self._numpy = import_module("numpy")
        core = import_module("gptcache")
        folder = tempfile.mkdtemp(prefix="gptcache-")
        self._embedding = Embedding(setting["dimension"])
        self._cache = core.Cache()
        manager = import_module("gptcache.manager").manager_factory(
            "sqlite,faiss",
            data_dir=folder,
            vector_params={"dimension": setting["dimension"]},
            eviction_params={"max_size": ROOM},
        )
        self._api.init_similar_cache(
            cache_obj=self._cache,
            embedding=self._embedding,
            data_manager=manager,
            config=core.Config(
                similarity_threshold=setting["similarity_threshold"], disable_report=True
            ),
        )

    def store(self, line: dict[str, Any]) -> None:
        """Put a question and its answer."""
        self._see(line)
        self._api.put(line["text"], line["answer"], cache_obj=self._cache)

    def ask(self, line: dict[str, Any]) -> str | None:
        """The answer that it serves; a question that it misses is stored where the line says so."""
        self._see(line)
        found: str | None = self._api.get(line["text"], cache_obj=self._cache)
        if found is None and line["keep"]:
            self.store(line)
        return found

    def _see(self, line: dict[str, Any]) -> None:
        vector = base64.b64decode(line["vector"])
        self._embedding.vector = self._numpy.frombuffer(vector, dtype="<f4")


def main() -> None:
    """Serve until standard input ends. What the library prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    cache: GptCache | None = None
    for text in sys.stdin:
        line = json.loads(text)
        if line["do"] == "open":
            cache = GptCache(line)
        elif cache is not None and line["do"] == "store":
            cache.store(line)
        elif cache is not None:
            out.write(json.dumps({"served": cache.ask(line)}) + "\n")


if __name__ == "__main__":
    main()
