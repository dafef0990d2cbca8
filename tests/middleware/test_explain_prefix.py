"""What `trivet explain` says of the prefix tier."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from trivet.messages import Api
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.dialects.registry import CHAT, MESSAGES
from trivet.middleware.explain.considered import Destination
from trivet.middleware.explain.prefix import prefix_view
from trivet.middleware.prefix_tier.native import Native, native_of
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import TenantPolicy
from trivet.prefix.prompts.outline import NativeApi


def _view(
    cache: str,
    body: dict[str, Any],
    warmth: str = "",
    headers: RawHeaders | None = None,
    doubt: str = "",
    **policy: Any,
) -> tuple[bool, str, str]:
    dialect = MESSAGES if "max_tokens" in body else CHAT
    upstream = UpstreamConfig.model_validate(
        {"name": "u", "base_url": "http://127.0.0.1:1", "cache": cache}
    )
    owner = TenantPolicy.model_validate({"tenant": "t", "prefix": policy})
    request = dialect.decode(json.dumps(body).encode(), {})
    to = Destination("u", upstream.root, None, upstream, warmth, doubt)
    taking, reason, said = prefix_view(request, owner, to, headers or [])
    return taking, reason, "; ".join(said)


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


@pytest.mark.parametrize(
    ("cache", "model", "ttl", "lasts"),
    [
        ("anthropic", "claude-opus-4-5", "auto", "5m"),
        ("anthropic", "claude-opus-4-5", "1h", "1h"),
        ("openai", "gpt-5.6", "auto", "30m"),
    ],
)
def test_a_breakpoint_is_shown_with_its_lifetime(
    cache: str, model: str, ttl: str, lasts: str
) -> None:
    body: dict[str, Any] = _claude("Rules. " * 5000)
    if cache == "openai":
        turns = [{"role": "system", "content": body["system"]}, *body["messages"]]
        body = {"model": model, "messages": turns}
    assert f" for {lasts}" in _view(cache, body, ttl=ttl)[2]


class TestWarmth:
    """Whether a prefix is kept warm, and why not."""

    BUDGET: ClassVar[dict[str, Any]] = {"keep_warm": {"budget_usd": 2}}
    LONG = "Rules. " * 5000

    def test_without_a_budget_it_is_off(self) -> None:
        said = _view("anthropic", _claude(self.LONG))[2]
        assert "not kept warm: prefix.keep_warm.budget_usd is 0" in said

    def test_with_one_it_is_said_what_became_of_the_last_one(self) -> None:
        said = _view("anthropic", _claude(self.LONG), **self.BUDGET)[2]
        assert said.endswith("kept warm where the gaps pay for it, for 2 USD a day at most")
        last = _view("anthropic", _claude(self.LONG), "over-budget", **self.BUDGET)[2]
        assert "the last one here: prefix.keep_warm.budget_usd is spent for today" in last

    @pytest.mark.parametrize(
        ("cache", "body", "reason"),
        [
            ("anthropic", _claude("short"), "no-breakpoint"),
            ("anthropic", {**_claude(LONG), "thinking": {"type": "enabled", "budget_tokens": 1024},
                           "max_tokens": 2000}, "no-ping-form"),
            ("openai", CHATTED, "no-ping-api"),
        ],
    )  # fmt: skip
    def test_a_request_that_has_no_ping_is_told_why(
        self, cache: str, body: dict[str, Any], reason: str
    ) -> None:
        assert f"({reason})" in _view(cache, body, **self.BUDGET)[2]


def test_what_the_probe_says_against_it_stands_beside_how_tenants_are_apart() -> None:
    said = _view("vllm", CHATTED, doubt="unverified: nothing was cached")[2]
    assert said.startswith("vllm: tenants apart by salt (unverified: nothing was cached); ")


def test_fields_and_headers_of_the_caller_s_own_that_go_no_further_are_named() -> None:
    body = {**CHATTED, "extra_key": "k"}
    said = _view("vllm", body, headers=[(b"X-Session-Id", b"s"), (b"x-a", b"b")])[2]
    assert "cache_salt set for the tenant, in place of the caller's" in said
    assert "extra_key dropped: " in said
    assert "X-Session-Id dropped: " in said
    assert "x-a" not in said
    unsalted = {name: value for name, value in CHATTED.items() if name != "cache_salt"}
    assert "in place of" not in _view("vllm", unsalted)[2]


def test_siblings_are_said_to_wait() -> None:
    said = _view("anthropic", _claude("Rules. " * 5000), fan_out={"wait": 5})[2]
    assert "siblings of a new prefix wait 5 s for it at most" in said


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
        (
            "bedrock",
            "/model/us.anthropic.claude-opus-5-v1%3A0/invoke",
            Native(Api.MESSAGES, "us.anthropic.claude-opus-5-v1:0"),
        ),
        (
            "bedrock",
            "/model/anthropic.claude-opus-5/invoke-with-response-stream",
            Native(Api.MESSAGES, "anthropic.claude-opus-5"),
        ),
        ("bedrock", "/model/anthropic.claude-opus-5/invoke/more", None),
        ("openai", "/model/m/converse", None),
    ],
)
def test_native_calls_are_told_by_their_path(kind: str, path: str, found: Native | None) -> None:
    assert native_of(kind, "POST", path) == found
    assert native_of(kind, "GET", path) is None
