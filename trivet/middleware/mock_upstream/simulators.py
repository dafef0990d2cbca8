"""Which simulator stands for which provider: `trivet upstream --as ...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trivet.middleware.mock_upstream.routes import Routes
from trivet.middleware.mock_upstream.simulate_anthropic import AnthropicRoutes
from trivet.middleware.mock_upstream.simulate_bedrock import BedrockRoutes
from trivet.middleware.mock_upstream.simulate_deepseek import DeepSeekRoutes
from trivet.middleware.mock_upstream.simulate_gemini import GeminiRoutes
from trivet.middleware.mock_upstream.simulate_openai import OpenAiRoutes

_ROUTES: Final[Mapping[str, Callable[[float], Routes]]] = {
    "anthropic": AnthropicRoutes,
    "openai": OpenAiRoutes,
    "gemini": GeminiRoutes,
    "bedrock": BedrockRoutes,
    "deepseek": DeepSeekRoutes,
}


def routes_of(provider: str | None, delay_ms: float = 0) -> Routes:
    """The routes of `provider`, of no provider in particular for `None`."""
    return Routes() if provider is None else _ROUTES[provider](delay_ms)
