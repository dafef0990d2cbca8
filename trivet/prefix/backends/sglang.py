"""SGLang: a radix tree for each pair of `extra_key` and `cache_salt`.

SGLang 0.5.23, `srt/entrypoints/openai/protocol.py` and `srt/managers/schedule_batch.py`. The engine
appends the LoRA id to `extra_key` by plain concatenation, so a caller's never goes on. `usage`
tells of hits only where the server runs with `--enable-cache-report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.messages import Usage
from trivet.prefix.backends.base import Ask, Isolation, Prepared
from trivet.prefix.backends.servers import salted
from trivet.prefix.backends.usage import usage_of


class SglangBackend:
    """An SGLang server."""

    kind = "sglang"
    isolates: Isolation = "salt"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's salt over whatever the caller sent."""
        return salted(ask)

    def read_usage(self, answer: Mapping[str, Any]) -> Usage | None:
        """See `usage`."""
        return usage_of(answer)
