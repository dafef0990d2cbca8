"""The official SDKs in front, simulators of the providers behind: what really goes upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from proxy import Proxy, request, serving

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running

RULES = "Answer in one word. " * 400
TOOL: Any = {
    "name": "look",
    "description": "Looks something up. " * 60,
    "input_schema": {"type": "object", "properties": {"z": {"type": "string"}, "a": {}}},
}


@contextmanager
def behind(provider: str, **upstream: Any) -> Iterator[tuple[Proxy, MockUpstream]]:
    """A proxy in front of a provider's simulator."""
    with running(provider=provider) as (url, mock):
        given = {"name": provider, "base_url": url, "cache": provider, **upstream}
        with serving(config=json.dumps({"upstreams": [given]})) as proxy:
            yield proxy, mock


def _bodies(mock: MockUpstream) -> list[Any]:
    return [json.loads(raw) for raw in _raw(mock)]


def _raw(mock: MockUpstream) -> list[bytes]:
    return [call["body"] for call in mock.calls.last if call["method"] == "POST"]


@pytest.fixture(scope="module")
def claude() -> Iterator[tuple[Proxy, MockUpstream]]:
    with behind("anthropic") as both:
        yield both


@pytest.fixture(scope="module")
def gpt() -> Iterator[tuple[Proxy, MockUpstream]]:
    with behind("openai") as both:
        yield both


def _ask_claude(proxy: Proxy, text: str, **more: Any) -> Any:
    given: dict[str, Any] = {"system": RULES, "tools": [TOOL], **more}
    with anthropic.Anthropic(api_key="k", base_url=proxy.url, max_retries=0) as client:
        return client.messages.create(
            model="claude-opus-5",
            max_tokens=16,
            messages=[{"role": "user", "content": text}],
            **given,
        )


class TestAnthropic:
    def test_the_stable_part_is_read_by_the_second_question(
        self, claude: tuple[Proxy, MockUpstream]
    ) -> None:
        proxy, mock = claude
        first = _ask_claude(proxy, "one").usage
        second = _ask_claude(proxy, "two").usage
        assert first.cache_creation_input_tokens > 1000
        question = second.cache_creation_input_tokens
        assert second.cache_read_input_tokens == first.cache_creation_input_tokens - question
        sent = _bodies(mock)[-1]
        assert [block.pop("cache_control")["type"] for block in sent["system"]] == ["ephemeral"]
        assert sent["system"] == [{"type": "text", "text": RULES}]
        assert question < 10
        assert list(sent["tools"][0]["input_schema"]["properties"]) == ["z", "a"]

    def test_three_identical_requests_are_the_same_bytes(
        self, claude: tuple[Proxy, MockUpstream]
    ) -> None:
        """Case L6: written once, read ever after."""
        proxy, mock = claude
        usages = [
            _ask_claude(proxy, "again", extra_headers={"cache-control": "no-cache"}).usage
            for _ in range(3)
        ]
        last = _raw(mock)[-3:]
        assert len(set(last)) == 1
        assert usages[1].cache_read_input_tokens > 0
        assert usages[2].cache_creation_input_tokens == 0

    def test_the_callers_own_marks_are_the_only_ones(
        self, claude: tuple[Proxy, MockUpstream]
    ) -> None:
        proxy, mock = claude
        tool = {**TOOL, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        _ask_claude(proxy, "mine", tools=[tool])
        sent = _bodies(mock)[-1]
        assert sent["tools"] == [tool]
        assert sent["system"] == RULES

    def test_a_stream_reads_the_cache_too(self, claude: tuple[Proxy, MockUpstream]) -> None:
        proxy, _ = claude
        with anthropic.Anthropic(api_key="k", base_url=proxy.url, max_retries=0) as client:
            for text in ("s1", "s2"):
                with client.messages.stream(
                    model="claude-opus-5",
                    max_tokens=16,
                    system=RULES,
                    messages=[{"role": "user", "content": text}],
                ) as stream:
                    usage = stream.get_final_message().usage
        assert usage.cache_read_input_tokens

    def test_fields_of_other_servers_never_reach_it(
        self, claude: tuple[Proxy, MockUpstream]
    ) -> None:
        proxy, mock = claude
        extra = {"cache_salt": "x", "prompt_cache_key": "k", "id_slot": 1}
        _ask_claude(proxy, "extra", extra_body=extra)
        assert not _bodies(mock)[-1].keys() & extra.keys()


def _ask_gpt(proxy: Proxy, text: str, key: str = "k", **more: Any) -> Any:
    with _gpt_client(proxy, key) as client:
        return client.chat.completions.create(
            model="gpt-6-astra",
            temperature=0,
            messages=[{"role": "system", "content": RULES}, {"role": "user", "content": text}],
            **more,
        )


def _gpt_client(proxy: Proxy, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=f"{proxy.url}/v1", max_retries=0)


class TestOpenAI:
    def test_another_question_reads_the_system_prompt(
        self, gpt: tuple[Proxy, MockUpstream]
    ) -> None:
        """Without a breakpoint behind it the prompt is written at its own end only."""
        proxy, mock = gpt
        _ask_gpt(proxy, "one")
        usage = _ask_gpt(proxy, "two").usage
        assert usage.prompt_tokens_details.cached_tokens > 1000
        sent = _bodies(mock)[-1]
        assert sent["messages"][0]["content"] == [
            {"type": "text", "text": RULES, "prompt_cache_breakpoint": {"mode": "explicit"}}
        ]
        assert len(sent["prompt_cache_key"]) == 32

    def test_tenants_do_not_share_and_sessions_do(self, gpt: tuple[Proxy, MockUpstream]) -> None:
        proxy, mock = gpt
        for key, text in (("a", "t1"), ("a", "t2"), ("b", "t3")):
            usage = _ask_gpt(proxy, text, key=key).usage
        assert usage.prompt_tokens_details.cached_tokens == 0
        first, second, other = [one["prompt_cache_key"] for one in _bodies(mock)[-3:]]
        assert first == second != other

    def test_the_callers_key_is_kept_as_a_part(self, gpt: tuple[Proxy, MockUpstream]) -> None:
        proxy, mock = gpt
        for text in ("p1", "p2"):
            _ask_gpt(proxy, text, prompt_cache_key="mine")
        _ask_gpt(proxy, "p3")
        one, two, plain = [one["prompt_cache_key"] for one in _bodies(mock)[-3:]]
        assert one == two
        assert plain != one != "mine"

    def test_what_asks_for_caching_is_not_in_the_key(self, gpt: tuple[Proxy, MockUpstream]) -> None:
        """Markers and keys are transport: it is one question, answered once."""
        proxy, mock = gpt
        _ask_gpt(proxy, "one key")
        before = len(_bodies(mock))
        _ask_gpt(proxy, "one key", prompt_cache_key="another")
        assert len(_bodies(mock)) == before

    def test_responses_are_asked_in_the_same_way(self, gpt: tuple[Proxy, MockUpstream]) -> None:
        proxy, mock = gpt
        with _gpt_client(proxy) as client:
            for text in ("r1", "r2"):
                answer = client.responses.create(
                    model="gpt-6-astra",
                    store=False,
                    input=[
                        {"role": "developer", "content": RULES},
                        {"role": "user", "content": text},
                    ],
                )
        assert answer.usage is not None
        assert answer.usage.input_tokens_details.cached_tokens > 1000
        assert _bodies(mock)[-1]["input"][0]["content"][0]["type"] == "input_text"

    def test_marks_of_anthropics_kind_never_reach_it(self, gpt: tuple[Proxy, MockUpstream]) -> None:
        proxy, mock = gpt
        part: Any = {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}
        with _gpt_client(proxy) as client:
            client.chat.completions.create(
                model="gpt-6-astra", temperature=0, messages=[{"role": "user", "content": [part]}]
            )
        assert b"cache_control" not in _raw(mock)[-1]


def test_converse_gets_cache_points() -> None:
    with behind("bedrock") as (proxy, mock):
        body = {
            "system": [{"text": RULES}],
            "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        }
        reply = proxy.post("/model/anthropic.claude-opus-5-v1%3A0/converse", body)
        assert reply.status == 200
        sent = json.loads(_raw(mock)[-1])
        assert sent["system"] == [{"text": RULES}, {"cachePoint": {"type": "default"}}]
        assert reply.json["usage"]["cacheWriteInputTokens"] > 1000


def test_gemini_gets_the_bytes_that_came() -> None:
    with behind("gemini") as (proxy, mock):
        raw = b'{ "contents": [ {"role": "user", "parts": [{"text": "hi"}]} ] }'
        reply = proxy.post("/v1beta/models/gemini-2.5-pro:generateContent", raw)
        assert reply.status == 200
        assert _raw(mock)[-1] == raw


def test_explain_shows_what_would_be_sent() -> None:
    with behind("openai") as (proxy, _):
        body = {
            "model": "gpt-6-astra",
            "messages": [
                {"role": "system", "content": RULES},
                {"role": "user", "content": "x"},
            ],
            "cache_salt": "s",
        }
        asked = {"path": "/v1/chat/completions", "headers": {"authorization": "Bearer k"}}
        found = _explained(proxy, {**asked, "body": body})
        assert found["open"]
        assert "cache_salt dropped" in found["detail"]
        assert "prompt_cache_key set for the tenant" in found["detail"]
        assert "breakpoint at messages[0]" in found["detail"]


def _explained(proxy: Proxy, sample: Any) -> Any:
    reply = request(
        "POST",
        f"{proxy.admin}/trivet/explain",
        json.dumps(sample).encode(),
        {"content-type": "application/json"},
        30.0,
    )
    assert reply.status == 200, reply.body
    return next(tier for tier in reply.json["tiers"] if tier["tier"] == "prefix")
