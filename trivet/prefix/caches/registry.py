"""Which cache model stands for which provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from trivet.prefix.caches.base import CacheModel, RulesFor
from trivet.prefix.caches.deepseek import DeepSeekCache
from trivet.prefix.caches.gemini import GeminiCache
from trivet.prefix.caches.marked import MarkedCache
from trivet.prefix.caches.openai import OpenAiCache
from trivet.prefix.markers.rules import rules_for

_MODELS: Final[Mapping[str, Callable[[RulesFor], CacheModel]]] = {
    "anthropic": partial(MarkedCache, "anthropic"),
    "openai": OpenAiCache,
    "gemini": GeminiCache,
    "bedrock": partial(MarkedCache, "bedrock"),
    "deepseek": DeepSeekCache,
}

PROVIDERS: Final = tuple(_MODELS)
"""Those with a model of their cache."""


def make_cache(provider: str, model_rules: RulesFor = rules_for) -> CacheModel:
    """An empty cache of `provider`. Raises `ValueError` for one without a model."""
    made = _MODELS.get(provider)
    if made is None:
        raise ValueError(f"no cache model of {provider!r}: there are {', '.join(PROVIDERS)}")
    return made(model_rules)
