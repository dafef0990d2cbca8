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

_OPENAI, _ANTHROPIC, _GENAI = "OpenAI's SDK", "Anthropic's SDK", "google-genai"
_SDKS: Final[Mapping[str | None, Mapping[str, str]]] = {
    None: {_OPENAI: "/v1", _ANTHROPIC: ""},
    "anthropic": {_ANTHROPIC: ""},
    "openai": {_OPENAI: "/v1"},
    "gemini": {_GENAI: "", _OPENAI: "/v1beta/openai"},
    "bedrock": {"boto3 (endpoint_url)": ""},
    "deepseek": {_OPENAI: "", _ANTHROPIC: "/anthropic"},
}
"""What follows the address in the base URL that each provider's clients want. Anthropic's SDK and
google-genai add the version themselves."""


def base_urls(url: str, provider: str | None) -> dict[str, str]:
    """The base URL by SDK, the provider's own first, of a server at `url`."""
    return {sdk: url + path for sdk, path in _SDKS[provider].items()}


def routes_of(provider: str | None, delay_ms: float = 0) -> Routes:
    """The routes of `provider`, of no provider in particular for `None`."""
    return Routes() if provider is None else _ROUTES[provider](delay_ms)
