"""The LiteLLM cache, with the real package: its key, its tenants, and what it does not keep."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM fetches prices when it is imported.
import litellm

from trivet.library.litellm import TrivetCache
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running

# Pydantic warns of types of LiteLLM's when those are first looked at.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly.*:UserWarning")


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, MockUpstream]]:
    with running() as up:
        yield up


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TrivetCache]]:
    """Makes the cache that LiteLLM uses."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    caches: list[TrivetCache] = []

    def make(tenant: Any = "acme", **settings: Any) -> TrivetCache:
        caches.append(TrivetCache(tenant, store="memory", **settings))
        monkeypatch.setattr(litellm, "cache", caches[-1])
        return caches[-1]

    yield make
    for cache in caches:
        cache.close()


def chat(upstream: tuple[str, MockUpstream], text: str, **options: Any) -> dict[str, Any]:
    return {
        "model": "openai/mock",
        "api_base": upstream[0] + "/v1",
        "api_key": "sk-a",
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
        "caching": True,
        **options,
    }


def store_of(cache: TrivetCache) -> Any:
    """What LiteLLM calls with its keys and values; its base class has no types."""
    return cache.cache


def asked(upstream: tuple[str, MockUpstream], **options: Any) -> bool:
    """Whether the upstream was asked by this call."""
    before = upstream[1].calls.total
    litellm.completion(**options)
    return upstream[1].calls.total > before


def test_a_call_that_came_before_does_not_reach_the_upstream(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    made()
    answers = [litellm.completion(**chat(upstream, "twice")) for _ in range(2)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    assert answers[1]._hidden_params["cache_hit"] is True


@pytest.mark.parametrize(
    "other",
    [
        {"api_key": "sk-b"},
        {"extra_headers": {"x-own": "1"}},
        {"temperature": 0.5},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        {"extra_body": {"own": 1}},
        {"user": "u"},
    ],
    ids=str,
)
def test_whatever_shapes_an_answer_tells_calls_apart(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache], other: dict[str, Any]
) -> None:
    made()
    text = f"apart {other}"
    assert asked(upstream, **chat(upstream, text))
    assert asked(upstream, **chat(upstream, text, **other))
    assert not asked(upstream, **chat(upstream, text))


def test_another_base_url_is_another_answer(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    made()
    with running() as other:
        assert asked(upstream, **chat(upstream, "where"))
        before = other[1].calls.total
        litellm.completion(**chat(other, "where"))
        assert other[1].calls.total == before + 1


def test_nothing_crosses_a_tenant(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    made(lambda arguments: (arguments.get("metadata") or {}).get("tenant", "none"))
    acme, other = {"tenant": "acme"}, {"tenant": "other/acme"}
    assert asked(upstream, **chat(upstream, "whose", metadata=acme))
    assert not asked(upstream, **chat(upstream, "whose", metadata=acme))
    assert asked(upstream, **chat(upstream, "whose", metadata=other))


def test_streams_are_stored_once_they_are_complete(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    made()
    before = upstream[1].calls.total
    texts = []
    for _ in range(2):
        stream = litellm.completion(**chat(upstream, "stream", stream=True))
        texts.append("".join(part.choices[0].delta.content or "" for part in stream))
    assert texts[0] == texts[1] != ""
    assert upstream[1].calls.total == before + 1


async def test_callers_with_and_without_an_event_loop_share_answers(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    cache = made()
    value = {"timestamp": 0.0, "response": json.dumps(CHAT)}
    key = cache.get_cache_key(model="m", messages=[])
    await store_of(cache).async_set_cache(key, value)
    assert store_of(cache).get_cache(key) == value
    assert await store_of(cache).async_get_cache(key) == value
    await store_of(cache).delete_cache_keys([key])
    assert await store_of(cache).async_get_cache(key) is None


async def test_embeddings_are_kept_one_by_one(
    upstream: tuple[str, MockUpstream], made: Callable[..., TrivetCache]
) -> None:
    made()
    at: dict[str, Any] = {"model": "openai/mock", "api_base": upstream[0] + "/v1", "api_key": "k"}
    first = await litellm.aembedding(input=["a", "b"], **at)
    before = upstream[1].calls.total
    again = await litellm.aembedding(input=["b", "a"], **at)
    assert upstream[1].calls.total <= before + 1
    assert len(first.data) == len(again.data) == 2


def test_a_call_that_cannot_be_told_by_its_content_has_no_key_twice(
    made: Callable[..., TrivetCache],
) -> None:
    cache = made()
    keys = {cache.get_cache_key(model="m", messages=[], client=object()) for _ in range(2)}
    assert len(keys) == 2


def test_the_order_of_arguments_means_nothing(made: Callable[..., TrivetCache]) -> None:
    cache = made()
    one = cache.get_cache_key(model="m", messages=[{"role": "user", "content": "x"}], top_p=1)
    two = cache.get_cache_key(top_p=1, messages=[{"role": "user", "content": "x"}], model="m")
    assert one == two


CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
CHAT = {"object": "chat.completion", "choices": [CHOICE]}


@pytest.mark.parametrize(
    "response",
    [
        {"choices": [{**CHOICE, "finish_reason": "length"}]},
        {"choices": [{**CHOICE, "finish_reason": "content_filter"}]},
        {"choices": [{**CHOICE, "finish_reason": None}]},
        {"choices": [CHOICE, {**CHOICE, "finish_reason": "length"}]},
        {"choices": [{**CHOICE, "message": {"content": None, "refusal": "no"}}]},
        {"choices": []},
        {"object": "response", "status": "incomplete"},
        {"object": "list", "data": []},
        {"error": "x"},
        [],
        "not JSON",
        None,
    ],
    ids=str,
)
def test_what_is_not_known_to_be_complete_is_not_kept(
    made: Callable[..., TrivetCache], response: Any
) -> None:
    cache = made()
    store_of(cache).set_cache("acme/k", {"timestamp": 0.0, "response": response})
    assert store_of(cache).get_cache("acme/k") is None


@pytest.mark.parametrize(
    "response",
    [
        CHAT,
        json.dumps(CHAT),
        {"object": "response", "status": "completed"},
        {"object": "list", "data": [{"embedding": [1.0]}]},
        {"embedding": [1.0], "index": 0, "object": "embedding"},
    ],
    ids=str,
)
def test_complete_answers_are_kept(made: Callable[..., TrivetCache], response: Any) -> None:
    cache = made()
    value = {"timestamp": 0.0, "response": response}
    store_of(cache).set_cache("acme/k", value)
    assert store_of(cache).get_cache("acme/k") == value


def test_a_call_can_ask_for_a_shorter_life_only(made: Callable[..., TrivetCache]) -> None:
    cache = made(ttl=0.0)
    store_of(cache).set_cache("acme/k", {"timestamp": 0.0, "response": CHAT}, ttl=1000)
    assert store_of(cache).get_cache("acme/k") is None
    cache = made(ttl=1000.0)
    store_of(cache).set_cache("acme/k", {"timestamp": 0.0, "response": CHAT}, ttl=0)
    assert store_of(cache).get_cache("acme/k") is None
