"""What `trivet explain` says of the prefix tier."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trivet.middleware.dialects.registry import CHAT, MESSAGES
from trivet.middleware.explain.prefix import prefix_view
from trivet.middleware.prefix_tier.native import Native, native_of
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import TenantPolicy
from trivet.prefix.prompts.outline import NativeApi


def _view(cache: str, body: dict[str, Any], **policy: Any) -> tuple[bool, str, str]:
    dialect = MESSAGES if "max_tokens" in body else CHAT
    upstream = UpstreamConfig.model_validate(
        {"name": "u", "base_url": "http://127.0.0.1:1", "cache": cache}
    )
    owner = TenantPolicy.model_validate({"tenant": "t", "prefix": policy})
    return prefix_view(dialect.decode(json.dumps(body).encode(), {}), owner, upstream, [])


def _claude(system: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x"}]
    return {"model": "claude-opus-4-5", "max_tokens": 1, "system": system, "messages": messages}


CHATTED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "x"}],
    "cache_salt": "s",
}


def test_breakpoints_are_shown_with_their_places() -> None:
    taking, reason, detail = _view("anthropic", _claude("Rules. " * 5000))
    assert (taking, reason) == (True, "")
    assert "breakpoint at system" in detail


def test_a_prefix_below_the_minimum_is_called_so() -> None:
    """Case L9: no error, and the reason is said."""
    assert "(below-minimum)" in _view("anthropic", _claude("short"))[2]
    assert "minimum of 4096" in _view("anthropic", _claude("short"))[2]


def test_the_policy_is_named_where_it_is_the_reason() -> None:
    assert "prefix.mark" in _view("anthropic", _claude("Rules. " * 5000), mark="never")[2]


def test_the_salt_is_named_and_never_shown() -> None:
    detail = _view("vllm", {**CHATTED, "extra_key": "e"})[2]
    assert "cache_salt set for the tenant" in detail
    assert "extra_key dropped" in detail
    assert "000000" not in detail


def test_an_upstream_without_backend_takes_no_part() -> None:
    taking, reason, _ = _view("none", CHATTED)
    assert (taking, reason) == (False, "no-backend")


@pytest.mark.parametrize(
    ("kind", "path", "found"),
    [
        ("gemini", "/v1beta/models/g-2.5:generateContent", Native(NativeApi.GENERATE, "g-2.5")),
        (
            "gemini",
            "/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent",
            Native(NativeApi.GENERATE, "g"),
        ),
        ("gemini", "/v1beta/models/g:countTokens", None),
        ("gemini", "/model/m/converse", None),
        ("bedrock", "/model/a.b-v1%3A0/converse", Native(NativeApi.CONVERSE, "a.b-v1:0")),
        ("bedrock", "/model/m/converse-stream", Native(NativeApi.CONVERSE, "m")),
        ("bedrock", "/model/m/invoke", None),
        ("openai", "/model/m/converse", None),
    ],
)
def test_native_calls_are_told_by_their_path(kind: str, path: str, found: Native | None) -> None:
    assert native_of(kind, "POST", path) == found
    assert native_of(kind, "GET", path) is None
