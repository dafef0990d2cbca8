"""vLLM: automatic prefix caching, kept apart by `cache_salt` in the first block's hash.

vLLM 0.32, `vllm/entrypoints/openai/*/protocol.py`: 1 to 128 characters without `@ / \\` and NUL on
chat, completions, responses, messages and pooling. `usage` tells of hits only where the server
runs with `--enable-prompt-tokens-details`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trivet.messages import Usage
from trivet.prefix.backends.base import Ask, Isolation, Prepared
from trivet.prefix.backends.servers import salted
from trivet.prefix.backends.usage import usage_of


class VllmBackend:
    """A vLLM server."""

    kind = "vllm"
    isolates: Isolation = "salt"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The tenant's salt over whatever the caller sent."""
        return salted(ask)

    def read_usage(self, answer: Mapping[str, Any]) -> Usage | None:
        """See `usage`."""
        return usage_of(answer)
