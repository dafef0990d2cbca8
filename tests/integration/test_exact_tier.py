"""The main job, end to end: the real process, real HTTP, the mock upstream behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from proxy import Proxy, chat_body, serving

from trivet.middleware.mock_upstream.commands import in_baggage


@pytest.fixture(scope="module")
def shared() -> Iterator[Proxy]:
    with serving() as proxy:
        yield proxy


@pytest.fixture
def proxy(shared: Proxy) -> Proxy:
    assert shared.mock is not None
    shared.mock.calls.reset()
    return shared


def calls(proxy: Proxy) -> int:
    assert proxy.mock is not None
    return proxy.mock.calls.total


def test_an_identical_request_is_answered_from_the_cache(proxy: Proxy) -> None:
    first, second = proxy.chat("twice"), proxy.chat("twice")
    assert first.exact == {"fwd": "miss", "stored": True}
    assert second.exact["hit"] is True
    assert 86390 <= int(second.exact["ttl"]) <= 86400
    assert int(second.headers["age"]) >= 0
    assert calls(proxy) == 1
    a, b = first.json, second.json
    assert a.pop("id") != b.pop("id")
    assert a == b


def test_a_hit_has_a_request_id_of_its_own(proxy: Proxy) -> None:
    replies = [proxy.chat("request ids") for _ in range(3)]
    assert len({reply.headers["x-request-id"] for reply in replies}) == 3


def test_a_bearer_of_another_key_gets_his_own_answer(proxy: Proxy) -> None:
    proxy.chat("mine")
    other = proxy.chat("mine", key="sk-other")
    assert other.exact == {"fwd": "miss", "stored": True}
    assert calls(proxy) == 2


def test_keys_shown_to_two_tenants_differ(proxy: Proxy) -> None:
    shown = set()
    for key in ("sk-a", "sk-b"):
        proxy.chat("shown key", key=key)
        shown.add(proxy.chat("shown key", key=key).exact["key"])
    assert len(shown) == 2


def test_a_sampled_request_bypasses_with_its_reason(proxy: Proxy) -> None:
    replies = [proxy.chat("sampled", temperature=1) for _ in range(2)]
    assert [reply.exact for reply in replies] == [{"fwd": "bypass", "detail": "sampled"}] * 2
    assert calls(proxy) == 2


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("length", "finish-length"),
        ("filter", "finish-content-filter"),
        ("refusal", "refusal"),
        ("empty", "empty"),
        ("garbage", "not-json"),
    ],
)
def test_an_incomplete_answer_is_passed_on_and_never_stored(
    proxy: Proxy, commands: str, reason: str
) -> None:
    text = f"bad answer {reason}"
    first = proxy.chat(text, baggage=in_baggage(commands))
    second = proxy.chat(text)
    assert first.status == 200
    assert first.exact == {"fwd": "miss", "detail": reason}
    assert second.exact == {"fwd": "miss", "stored": True}


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_an_upstream_error_keeps_its_status_and_body_and_is_not_stored(
    proxy: Proxy, status: int
) -> None:
    text = f"error {status}"
    first = proxy.chat(text, baggage=in_baggage(f"status={status}; retry-after=7"))
    assert first.status == status
    assert first.headers["retry-after"] == "7"
    assert first.json["error"]["message"]
    assert first.exact == {"fwd": "miss", "detail": f"status-{status}"}
    assert proxy.chat(text).exact == {"fwd": "miss", "stored": True}


def test_the_body_goes_upstream_as_it_came(proxy: Proxy) -> None:
    question = b'[{"role":"user","content":"\\u00e9"}]'
    raw = b'{ "model":"mock",\n "temperature": 0.0, "messages":' + question + b" }"
    assert proxy.post("/v1/chat/completions", raw).status == 200
    assert proxy.mock is not None
    assert proxy.mock.calls.last[-1]["body"] == raw


def test_spacing_and_envelope_order_make_no_difference(proxy: Proxy) -> None:
    body = chat_body("orders", max_tokens=50)
    proxy.post("/v1/chat/completions", json.dumps(body).encode())
    turned = dict(reversed(body.items()))
    again = proxy.post("/v1/chat/completions", json.dumps(turned, indent=2).encode())
    assert again.exact["hit"] is True


def test_schema_property_order_makes_a_difference(proxy: Proxy) -> None:
    def ask(*names: str) -> dict[str, str | int | bool]:
        properties = {name: {"type": "string"} for name in names}
        schema = {"type": "object", "properties": properties}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        return proxy.chat("schema order", response_format=form).exact

    assert ask("a", "b") == {"fwd": "miss", "stored": True}
    assert ask("b", "a") == {"fwd": "miss", "stored": True}
    assert ask("a", "b")["hit"] is True


def test_an_unknown_field_is_in_the_key(proxy: Proxy) -> None:
    assert proxy.chat("unknown field", num_ctx=2048).exact["fwd"] == "miss"
    assert proxy.chat("unknown field", num_ctx=8192).exact["fwd"] == "miss"
    assert proxy.chat("unknown field", num_ctx=8192).exact["hit"] is True


@pytest.mark.parametrize("name", ["x_tenant_id", "x_roles", "x_on_behalf_of", "x_unheard_of"])
def test_an_unknown_header_is_in_the_key(proxy: Proxy, name: str) -> None:
    for value in ("alice", "bob"):
        asked = [proxy.chat(f"header {name}", **{name: value}) for _ in range(3)]
        assert asked[0].exact == {"fwd": "miss", "stored": True}
        assert [reply.exact.get("hit") for reply in asked[1:]] == [True, True]
    assert "hit" not in proxy.chat(f"header {name}").exact


def test_headers_of_tracing_and_proxies_cost_no_hit(proxy: Proxy) -> None:
    proxy.chat("traced", x_request_start="t=1", x_datadog_trace_id="1", x_forwarded_for="10.0.0.1")
    again = proxy.chat("traced", x_request_start="t=2", x_azure_ref="2", x_railway_request_id="2")
    assert again.exact["hit"] is True


def test_a_request_version_is_a_key_space_of_its_own(proxy: Proxy) -> None:
    proxy.chat("versions")
    newer = proxy.chat("versions", trivet_version="prompt=8")
    assert newer.exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("versions", trivet_version="prompt=8").exact["hit"] is True


def test_no_cache_skips_the_lookup_and_renews_the_entry(proxy: Proxy) -> None:
    proxy.chat("directives")
    fresh = proxy.chat("directives", cache_control="no-cache")
    assert fresh.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}
    assert calls(proxy) == 2
    assert proxy.chat("directives").exact["hit"] is True


def test_no_store_leaves_nothing_behind(proxy: Proxy) -> None:
    kept = proxy.chat("no store", cache_control="no-store")
    assert kept.exact == {"fwd": "bypass", "detail": "no-store"}
    assert proxy.chat("no store").exact == {"fwd": "miss", "stored": True}


def test_only_if_cached_is_answered_504_on_a_miss(proxy: Proxy) -> None:
    missed = proxy.chat("only if cached", cache_control="only-if-cached")
    assert missed.status == 504
    assert missed.json["error"]["code"] == "only_if_cached"
    assert calls(proxy) == 0
    proxy.chat("only if cached")
    assert proxy.chat("only if cached", cache_control="only-if-cached").exact["hit"] is True


def test_only_if_cached_is_answered_504_on_a_bypass(proxy: Proxy) -> None:
    missed = proxy.chat("only", temperature=1, cache_control="only-if-cached")
    assert missed.status == 504
    assert calls(proxy) == 0


def test_the_cache_field_of_litellm_is_understood_and_stripped(proxy: Proxy) -> None:
    proxy.chat("litellm")
    fresh = proxy.chat("litellm", cache={"no-cache": True})
    assert fresh.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}
    assert proxy.mock is not None
    assert b'"cache"' not in proxy.mock.calls.last[-1]["body"]


def test_a_stream_and_a_json_request_share_one_entry(proxy: Proxy) -> None:
    proxy.chat("one entry", stream=True)
    whole = proxy.chat("one entry")
    assert whole.exact["hit"] is True
    assert whole.json["usage"]["total_tokens"] > 0
    assert calls(proxy) == 1


def test_usage_that_trivet_asked_for_is_not_shown_to_who_did_not_ask(proxy: Proxy) -> None:
    stream = proxy.chat("usage hidden", stream=True)
    assert b"usage" not in stream.body
    assert proxy.mock is not None
    assert b'"stream_options":{"include_usage":true}' in proxy.mock.calls.last[-1]["body"]
    asked = proxy.chat("usage hidden", stream=True, stream_options={"include_usage": True})
    assert asked.exact["hit"] is True
    assert b'"total_tokens"' in asked.body


def test_a_stream_that_ends_early_is_not_stored(proxy: Proxy) -> None:
    proxy.chat("ends early", stream=True, baggage=in_baggage("end=2"))
    assert proxy.chat("ends early").exact == {"fwd": "miss", "stored": True}


def test_a_tool_call_is_replayed_for_the_same_conversation_with_an_id_of_its_own(
    proxy: Proxy,
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

    def ask(
        messages: list[dict[str, object]],
    ) -> tuple[dict[str, str | int | bool], dict[str, object]]:
        reply = proxy.chat(messages=messages, tools=tools)
        return reply.exact, reply.json["choices"][0]["message"]

    question: dict[str, object] = {"role": "user", "content": "please call a tool"}
    _, live = ask([question])
    status, replayed = ask([question])
    assert status["hit"] is True
    live_id, replayed_id = (message["tool_calls"][0]["id"] for message in (live, replayed))  # type: ignore[index]
    assert live_id != replayed_id

    def goes_on(message: dict[str, object], call_id: str) -> dict[str, str | int | bool]:
        result: dict[str, object] = {"role": "tool", "tool_call_id": call_id, "content": "4"}
        return ask([question, message, result])[0]

    assert goes_on(live, live_id) == {"fwd": "miss", "stored": True}
    assert goes_on(replayed, replayed_id)["hit"] is True


def test_embeddings_are_cached_item_by_item(proxy: Proxy) -> None:
    def embed(*texts: str, **more: object) -> tuple[dict[str, str | int | bool], list[object]]:
        body = {"model": "mock-embed", "input": list(texts), **more}
        reply = proxy.post("/v1/embeddings", body)
        data = reply.json["data"]
        assert [item["index"] for item in data] == list(range(len(texts)))
        return reply.exact, [item["embedding"] for item in data]

    _, (apple, pear) = embed("apple", "pear")
    status, mixed = embed("pear", "plum", "apple", "pear")
    assert status == {"fwd": "miss", "stored": True, "detail": "partial"}
    assert mixed[0] == pear
    assert mixed[2] == apple
    assert mixed[3] == pear
    assert proxy.mock is not None
    assert json.loads(proxy.mock.calls.last[-1]["body"])["input"] == ["plum"]
    status, again = embed("plum", encoding_format="float")
    assert status["hit"] is True
    assert again == [mixed[1]]


def test_another_path_passes_through_untouched(proxy: Proxy) -> None:
    models = proxy.get("/v1/models")
    assert models.status == 200
    assert models.exact == {"fwd": "bypass", "detail": "passthrough"}
    assert "x-trivet-mock" in models.headers


def test_counting_tokens_passes_through(proxy: Proxy) -> None:
    body = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
    counted = proxy.post("/v1/messages/count_tokens", body)
    assert counted.status == 200
    assert counted.json["input_tokens"] > 0


def test_anthropic_messages_are_cached(proxy: Proxy) -> None:
    body = {
        "model": "mock",
        "max_tokens": 100,
        "temperature": 0,
        "messages": [{"role": "user", "content": "hi"}],
    }
    version: dict[str, Any] = {"anthropic_version": "2023-06-01", "x_api_key": "sk-ant"}
    assert proxy.post("/v1/messages", body, **version).exact == {"fwd": "miss", "stored": True}
    hit = proxy.post("/v1/messages", body, **version)
    assert hit.exact["hit"] is True
    assert hit.headers["request-id"].startswith("req_trivet_")
    newer = {**version, "anthropic_version": "2026-10-21"}
    assert proxy.post("/v1/messages", body, **newer).exact["fwd"] == "miss"
