"""What models told of their usage, by any way through the proxy, is what the books hold."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from proxy import Proxy, Reply, chat_body, request, serving

from trivet.middleware.mock_upstream.run import running

RULES = "Answer in one word. " * 600
FIXED: Any = {"extra_body": {"temperature": 0}}
VERSION = {"anthropic-version": "2023-06-01"}
"""Of the API, the one that takes a temperature."""


@contextmanager
def behind(provider: str | None, **config: Any) -> Iterator[Proxy]:
    with running(provider=provider) as (url, _):
        given = {"name": provider or "mock", "base_url": url, "cache": provider or "none"}
        with serving(config=json.dumps({"upstreams": [given], **config})) as proxy:
            yield proxy


def booked(
    proxy: Proxy, name: str = "trivet_model_tokens_total", **labels: str
) -> dict[str, float]:
    """Sums by the last label (`kind` or `post`)."""
    text = proxy.get("/metrics", admin=True).body.decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                last = sample.labels.get("kind") or sample.labels.get("post") or "all"
                found[last] = found.get(last, 0) + sample.value
    return found


def settled(proxy: Proxy, kind: str, least: float) -> dict[str, float]:
    """The tokens, once the last answer's end has been counted."""
    deadline = time.monotonic() + 10
    while (found := booked(proxy)).get(kind, 0) < least and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_every_way_through_the_proxy_is_counted_once_and_priced() -> None:
    """JSON and streams, stored and not, bypassed and collapsed: the sums are what the SDK saw."""
    sums = dict.fromkeys(("input", "output", "cache_read", "cache_write", "cache_write_long"), 0)

    def told(usage: Any) -> None:
        read, wrote = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        sums["input"] += usage.input_tokens + read + wrote
        sums["output"] += usage.output_tokens
        sums["cache_read"] += read
        sums["cache_write"] += wrote
        details = usage.cache_creation
        sums["cache_write_long"] += details.ephemeral_1h_input_tokens if details else 0

    hour: Any = [
        {"type": "text", "text": "1h " + RULES, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    with (
        behind("anthropic") as proxy,
        anthropic.Anthropic(api_key="k", base_url=proxy.url, max_retries=0) as client,
    ):

        def ask(text: str, **more: Any) -> Any:
            given: dict[str, Any] = {"system": RULES, "max_tokens": 64, **FIXED, **more}
            given["extra_headers"] = {**VERSION, **more.get("extra_headers", {})}
            messages: Any = [{"role": "user", "content": text}]
            return client.messages.create(model="claude-opus-5", messages=messages, **given)

        told(ask("one").usage)
        ask("one")
        told(ask("two").usage)
        told(ask("sampled", extra_body={}).usage)
        told(ask("three", system=hour).usage)
        told(ask("four", extra_headers={"x-mock": "length"}).usage)
        told(ask("five", extra_headers={"cache-control": "no-store"}).usage)
        for number, headers in enumerate([{}, {"cache-control": "no-store"}]):
            with client.messages.stream(
                model="claude-opus-5",
                max_tokens=64,
                system=RULES,
                messages=[{"role": "user", "content": f"stream {number}"}],
                extra_headers={**VERSION, **headers},
                **FIXED,
            ) as stream:
                told(stream.get_final_message().usage)
        found = settled(proxy, "output", sums["output"])
        assert found == {kind: count for kind, count in sums.items() if count}
        assert sums["cache_write_long"] > 1_000
        money = booked(proxy, "trivet_money_usd_total", model="claude-opus-5", route="messages")
        short = sums["cache_write"] - sums["cache_write_long"]
        plain = sums["input"] - sums["cache_read"] - sums["cache_write"]
        spent = plain * 5e-6 + sums["output"] * 25e-6 + sums["cache_read"] * 0.5e-6
        spent += short * 6.25e-6 + sums["cache_write_long"] * 10e-6
        assert money["spent"] == pytest.approx(spent)
        assert money["saved-prefix"] == pytest.approx(sums["cache_read"] * 4.5e-6)
        extra = short * 1.25e-6 + sums["cache_write_long"] * 5e-6
        assert money["prefix-writes"] == pytest.approx(extra)
        assert money["saved-exact"] > 0
        stats = proxy.get("/trivet/stats", admin=True).json
        total = stats["money"]["total"]
        saved = money["saved-exact"] + money["saved-prefix"] - extra
        assert total["net-saved"] == pytest.approx(saved)
        assert stats["money"]["models"].keys() == {"claude-opus-5"}
        assert stats["flood"]["load"] == 1.0


def test_what_warms_is_the_caches_cost_and_its_hits_save_nothing() -> None:
    """Only whoever asks afterwards was saved anything, and only what it would have cost."""
    with (
        behind("anthropic") as proxy,
        anthropic.Anthropic(api_key="k", base_url=proxy.url, max_retries=0) as client,
    ):

        def ask(**headers: str) -> Any:
            messages: Any = [{"role": "user", "content": "one"}]
            given: dict[str, Any] = {"system": RULES, "max_tokens": 64, **FIXED}
            return client.messages.with_raw_response.create(
                model="claude-opus-5",
                messages=messages,
                extra_headers={**VERSION, **headers},
                **given,
            )

        def posts() -> dict[str, float]:
            return booked(proxy, "trivet_money_usd_total", model="claude-opus-5")

        usage = ask(**{"trivet-purpose": "warm"}).parse().usage
        settled(proxy, "output", usage.output_tokens)
        warmed = posts()
        assert warmed.keys() == {"warm"}
        again = [ask(**{"trivet-purpose": "warm"}).headers["cache-status"] for _ in range(3)]
        assert all("; hit" in one for one in again)
        assert posts() == warmed
        assert all("; hit" in ask().headers["cache-status"] for _ in range(2))
        assert posts() == pytest.approx({**warmed, "saved-exact": 2 * warmed["warm"]})
        total = proxy.get("/trivet/stats", admin=True).json["money"]["total"]
        assert total["net-saved"] == pytest.approx(warmed["warm"])
        with pytest.raises(anthropic.BadRequestError, match="Trivet-Purpose"):
            ask(**{"trivet-purpose": "free"})


def test_openai_s_streams_are_counted_with_and_without_the_callers_asking() -> None:
    with (
        behind("openai") as proxy,
        openai.OpenAI(api_key="k", base_url=proxy.url + "/v1", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hi"}]
        ways: list[Any] = [{}, {"stream_options": {"include_usage": True}}]
        for asked in ways:
            for chunk in client.chat.completions.create(
                model="gpt-5.4",
                messages=messages,
                stream=True,
                extra_headers={"cache-control": "no-store"} if asked else {},
                **asked,
            ):
                usage = chunk.usage or None
        response = client.responses.create(
            model="gpt-5.4", input="hi", store=True, extra_headers={"cache-control": "no-store"}
        )
        assert usage is not None
        assert response.usage is not None
        sums = {
            "input": 2 * usage.prompt_tokens + response.usage.input_tokens,
            "output": 2 * usage.completion_tokens + response.usage.output_tokens,
        }
        assert settled(proxy, "output", sums["output"]) == sums
        money = booked(proxy, "trivet_money_usd_total", model="gpt-5.4")
        assert money == {
            "spent": pytest.approx(sums["input"] * 2.5e-6 + sums["output"] * 15e-6),
        }


@pytest.mark.parametrize(
    ("provider", "path", "body"),
    [
        ("gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "contents"),
        ("gemini", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "contents"),
        ("gemini", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "contents"),
        ("bedrock", "/model/anthropic.claude-opus-5-v1:0/converse", "messages"),
        ("bedrock", "/model/anthropic.claude-opus-5-v1:0/converse-stream", "messages"),
    ],
)
def test_native_apis_that_pass_through_are_counted(provider: str, path: str, body: str) -> None:
    content: Any = [{"role": "user", "content": [{"text": "hi"}], "parts": [{"text": "hi"}]}]
    content[0].pop("content" if body == "contents" else "parts")
    with behind(provider) as proxy:
        headers = {"content-type": "application/json", "x-goog-api-key": "k"}
        headers["authorization"] = "Bearer k"
        sent = json.dumps({body: content}).encode()
        reply = request("POST", proxy.url + path, sent, headers, 30)
        assert reply.status == 200
        found = settled(proxy, "output", 1)
    assert found["input"] > 0
    assert found["output"] > 0


def test_a_native_call_says_what_it_is_for() -> None:
    path = "/v1beta/models/gemini-2.5-pro:generateContent"
    sent = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}).encode()
    with behind("gemini") as proxy:
        headers = {"content-type": "application/json", "x-goog-api-key": "k"}
        statuses = [
            request("POST", proxy.url + path, sent, {**headers, "trivet-purpose": word}, 30).status
            for word in ("warming", "warm")
        ]
        assert statuses == [400, 200]
        settled(proxy, "output", 1)
        assert set(booked(proxy, "trivet_money_usd_total")) == {"warm"}


def test_a_caller_who_leaves_a_stream_is_billed_what_was_told_until_then() -> None:
    with behind("anthropic") as proxy:
        parts = urlsplit(proxy.url)
        body = {
            "model": "claude-opus-5",
            "max_tokens": 64,
            "stream": True,
            "messages": [{"role": "user", "content": "a story " * 50}],
        }
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01", "x-mock": "slow_chunks=500"}
        link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        link.request("POST", "/v1/messages", json.dumps(body), headers)
        answer = link.getresponse()
        answer.fp.readline()
        answer.close()
        link.close()
        assert settled(proxy, "input", 1)["input"] > 50


def test_an_error_is_not_billed() -> None:
    with behind(None) as proxy:
        assert proxy.chat("hi", x_mock="status=503").status == 503
        assert booked(proxy) == {}
        assert booked(proxy, "trivet_unpriced_calls_total") == {}


def test_while_the_caches_are_cold_calls_beyond_the_limit_get_a_503_in_their_dialect() -> None:
    flood = {"max_calls": 1, "queue": 1, "wait": 20, "baseline": 0.9}
    with behind(None, flood=flood) as proxy:
        for number in range(30):
            proxy.chat(f"cold {number}")
        time.sleep(1.1)
        proxy.chat("cold last")
        assert proxy.get("/trivet/stats", admin=True).json["flood"]["flooded"]
        replies: list[Reply] = []

        def ask(number: int) -> None:
            replies.append(
                proxy.post(
                    "/v1/chat/completions", chat_body(f"at once {number}"), x_mock="delay=1500"
                )
            )

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [reply for reply in replies if reply.status == 503]
        assert sorted(reply.status for reply in replies) == [200, 200, 503, 503]
        assert {reply.headers["retry-after"] for reply in refused} == {"1"}
        assert refused[0].json["error"]["code"] == "flood"
        assert proxy.chat("cold 3").exact["hit"] is True
        assert booked(proxy, "trivet_flood_shed_total")["all"] == 2
        assert any("caches-cold" in line for line in proxy.lines())
