"""What an isolation probe of a server asks, and what its answers mean. Pure.

Both have to be seen: the same salt hits, another salt gets nothing. The second alone also holds
where caching is off (vllm-project/vllm#53347).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

State = Literal["isolated", "leaks", "unverified", "failed"]
"""`unverified`: what it would have to tell is not told, so nothing is known; `failed`: it could not
be asked, so neither is anything, and it has to be asked again."""

SIZES: Final = (2400, 800, 12_000)
"""Characters of the prompts, tried in this order: for short contexts and for large blocks."""
SLOT_SIZES: Final = (800,)
"""The same for a server with slots: it reuses single tokens, so more would only take longer."""

_WORDS: Final = (
    *("river", "stone", "cloud", "table", "green", "seven", "paper", "light"),
    *("north", "glass", "apple", "wheel", "sound", "house", "train", "ocean"),
)
_SHARED: Final = 4
"""Tokens that any two prompts may share on a slot: what the server puts in front of all."""

_MENDS: Final = {
    "llamacpp": "start llama-server with --cache-ram 0 (its host prompt cache crosses slots), and "
    "say how many slots (-np) it has",
    "vllm": "use a vLLM that knows cache_salt (0.9 or later), without a KV connector that drops it",
    "sglang": "use an SGLang that knows cache_salt, without a cache layer that drops it",
    "tensorrt": "use a TensorRT-LLM that knows cache_salt",
    "trivet": "give both ends the secret (engine_secret_env)",
}
_TELLS: Final = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
    "tensorrt": "use a trtllm-serve that reports cached_tokens",
}
_CACHES: Final = {
    "vllm": "is it started with --no-enable-prefix-caching?",
    "sglang": "is it started with --disable-radix-cache?",
    "llamacpp": "does it have fewer slots than the config says?",
    "tensorrt": "is block reuse off?",
    "trivet": "is its KV memory too small?",
}


class Seen(NamedTuple):
    """Cached tokens of the three requests; None where the answer did not tell."""

    first: int | None
    same: int | None
    other: int | None


class Verdict(NamedTuple):
    """`detail` is a sentence, with what mends it."""

    state: State
    detail: str = ""
    disturbed: bool = False
    """It may be so because somebody else asked the server in between, another probe perhaps: worth
    another try."""


def prompt(size: int, draws: Sequence[int]) -> str:
    """Words that nobody has sent before, given enough random `draws`."""
    words = (_WORDS[draw % len(_WORDS)] for draw in draws)
    return " ".join(words)[:size]


def verdict(kind: str, seen: Seen, *, between: bool = False) -> Verdict:
    """What the answers of a server of `kind` mean. `between`: its counters tell of others' requests
    between ours."""
    if seen.other is not None and seen.other > _SHARED:
        return Verdict(
            "leaks",
            f"a tenant was given {seen.other} cached tokens of another's prompt: "
            + _MENDS.get(kind, "keep it to one tenant"),
        )
    if seen.same is None or (seen.other is None and kept(seen.same)):
        untold = "it does not tell how many tokens were cached: " + _tell(kind)
        return Verdict("unverified", untold, disturbed=between)
    if not kept(seen.same):
        return Verdict(
            "unverified",
            "nothing was cached of a prompt that came twice: "
            + _CACHES.get(kind, "is caching on?"),
            disturbed=True,
        )
    return Verdict("isolated", f"{seen.same} tokens cached under one salt, 0 under another")


def kept(seen: int | None) -> bool:
    """Whether a prompt that came twice was there the second time, or it is not told."""
    return seen is None or seen > _SHARED


def _tell(kind: str) -> str:
    return _TELLS.get(kind, "switch its usage details on")


_COUNTERS: Final = {
    "vllm": ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    "sglang": ("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
}


class Counted(NamedTuple):
    """Tokens looked up and found, since the server started."""

    queries: float
    hits: float


def counted(kind: str, metrics: str) -> Counted | None:
    """What a `/metrics` body says of the cache; None where it does not."""
    names = _COUNTERS.get(kind)
    if names is None:
        return None
    sums = [_sum(name, metrics) for name in names]
    if sums[0] is None or sums[1] is None:
        return None
    return Counted(sums[0], sums[1])


def _sum(name: str, metrics: str) -> float | None:
    found = re.findall(rf"^{re.escape(name)}(?:{{[^\n]*}})? ([0-9.eE+]+)$", metrics, re.MULTILINE)
    return sum(map(float, found)) if found else None


def hits_between(before: Counted | None, after: Counted | None, prompt_tokens: int) -> int | None:
    """Cached tokens of the one request between two readings; None where others came between."""
    if before is None or after is None or after.queries - before.queries != prompt_tokens:
        return None
    return int(after.hits - before.hits)
