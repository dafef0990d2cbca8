"""Which prefix cache is behind an upstream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from trivet.prefix.backends.anthropic import AnthropicBackend
from trivet.prefix.backends.base import Ask, Isolation, PrefixBackend, Prepared
from trivet.prefix.backends.bedrock import BedrockBackend
from trivet.prefix.backends.deepseek import DeepSeekBackend
from trivet.prefix.backends.engine import SignedEngine
from trivet.prefix.backends.gemini import GeminiBackend
from trivet.prefix.backends.llamacpp import LlamaCppBackend
from trivet.prefix.backends.openai import OpenAIBackend
from trivet.prefix.backends.servers import SaltedServer
from trivet.prefix.backends.tensorrt import TensorrtBackend


class NoBackend:
    """An upstream of which nothing is known: requests go as they came."""

    kind = "none"
    isolates: Isolation = "none"
    takes_marks = False

    def prepare(self, ask: Ask) -> Prepared:
        """The request as it is."""
        return Prepared(ask.raw)


_NONE: Final = NoBackend()
_BACKENDS: Final[Mapping[str, PrefixBackend]] = {
    one.kind: one
    for one in (
        _NONE,
        AnthropicBackend(),
        OpenAIBackend(),
        GeminiBackend(),
        BedrockBackend(),
        DeepSeekBackend(),
        SaltedServer("vllm"),
        SaltedServer("sglang"),
        SaltedServer("trivet"),
        LlamaCppBackend(),
        TensorrtBackend(),
    )
}
_HOSTS: Final = (
    ("api.anthropic.com", "anthropic"),
    ("api.openai.com", "openai"),
    ("openai.azure.com", "openai"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "gemini"),
    ("api.deepseek.com", "deepseek"),
)
"""A host, or the end of one behind a dot or a hyphen (`eu.api.openai.com`,
`europe-west1-aiplatform.googleapis.com`)."""


@lru_cache(maxsize=256)
def backend_of(kind: str, base_url: str, engine_secret_env: str | None = None) -> PrefixBackend:
    """The backend of an upstream; `auto` knows the hosted APIs by their host. Raises `KeyError`
    for a kind that is not known."""
    if engine_secret_env is not None and kind in ("auto", "trivet"):
        return SignedEngine()
    return _BACKENDS[_kind_at(base_url) if kind == "auto" else kind]


def _kind_at(base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    if host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws")):
        return "bedrock" if host.startswith("bedrock") else "none"
    for known, kind in _HOSTS:
        if host == known or host.endswith(("." + known, "-" + known)):
            return kind
    return "none"
