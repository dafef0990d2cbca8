"""The LangChain cache, with the real package: what is found again, by whom, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from trivet import AsyncTrivetTransport, TrivetTransport
from trivet.library.langchain import TrivetCache
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running

STOP = {"finish_reason": "stop"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, MockUpstream]]:
    with running() as up:
        yield up


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrivetCache]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = TrivetCache("acme", store="memory")
    yield made
    made.close()


def said(text: str, **metadata: Any) -> list[Generation]:
    return [ChatGeneration(message=AIMessage(text, response_metadata=metadata))]


def model(cache: TrivetCache, *answers: AIMessage) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter(answers), cache=cache)


def test_a_prompt_that_came_before_does_not_reach_the_model(cache: TrivetCache) -> None:
    answer = AIMessage("Paris", response_metadata=STOP, id="run-1")
    one = model(cache, answer)
    assert [one.invoke("Capital of France?").content for _ in range(3)] == ["Paris"] * 3


async def test_callers_with_and_without_an_event_loop_share_answers(cache: TrivetCache) -> None:
    one = model(cache, AIMessage("Paris", response_metadata=STOP))
    assert (await one.ainvoke("q")).content == "Paris"
    assert (await one.ainvoke("q")).content == "Paris"
    assert (await asyncio.to_thread(one.invoke, "q")).content == "Paris"


def test_tool_calls_come_back_whole(cache: TrivetCache) -> None:
    call = {"name": "f", "args": {"x": 1}, "id": "call_1", "type": "tool_call"}
    answer = AIMessage("", tool_calls=[call], response_metadata={"finish_reason": "tool_calls"})
    one = model(cache, answer)
    first, second = one.invoke("q"), one.invoke("q")
    assert first.tool_calls == second.tool_calls == [call]


def test_a_plain_completion_comes_back_as_one(cache: TrivetCache) -> None:
    cache.update("p", "llm", [Generation(text="t", generation_info=STOP)])
    assert cache.lookup("p", "llm") == [Generation(text="t", generation_info=STOP)]


@pytest.mark.parametrize(
    "answer",
    [
        said("cut", finish_reason="length"),
        said("filtered", finish_reason="content_filter"),
        said("max", stop_reason="max_tokens"),
        said("nothing told"),
        [*said("one", finish_reason="stop"), *said("two", finish_reason="length")],
        [],
        [
            ChatGeneration(
                message=AIMessage("no", additional_kwargs={"refusal": "no"}, response_metadata=STOP)
            )
        ],
        said("not JSON", finish_reason="stop", raw=b"bytes"),
    ],
    ids=["length", "filter", "max", "none", "one-of-two", "empty", "refusal", "not-json"],
)
def test_what_is_not_known_to_be_complete_is_not_kept(
    cache: TrivetCache, answer: list[Generation]
) -> None:
    cache.update("p", "llm", answer)
    assert cache.lookup("p", "llm") is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "stop"},
        {"stop_reason": "end_turn"},
        {"stopReason": "tool_use"},
        {"done_reason": "stop"},
        {"finish_reason": "STOP"},
        {"status": "completed"},
    ],
)
def test_terminal_states_are_known_as_the_providers_write_them(
    cache: TrivetCache, metadata: dict[str, str]
) -> None:
    cache.update("p", "llm", said("x", **metadata))
    found = cache.lookup("p", "llm")
    assert found is not None
    assert found[0].text == "x"


def test_nothing_crosses_a_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name = "acme"
    cache = TrivetCache(lambda: name)
    cache.update("p", "llm", said("acme's", **STOP))
    assert cache.lookup("p", "llm") is not None
    name = "other"
    assert cache.lookup("p", "llm") is None
    cache.clear()
    name = "acme"
    assert cache.lookup("p", "llm") is not None
    cache.close()


def test_a_prompt_and_a_model_never_run_together(cache: TrivetCache) -> None:
    cache.update("ab", "c", said("x", **STOP))
    assert cache.lookup("a", "bc") is None
    assert cache.lookup("abc", "") is None


def test_cleared_answers_are_gone(cache: TrivetCache) -> None:
    cache.update("p", "llm", said("x", **STOP))
    cache.clear()
    assert cache.lookup("p", "llm") is None


def test_an_answer_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cache = TrivetCache("acme", store="memory", ttl=0.0)
    cache.update("p", "llm", said("x", **STOP))
    assert cache.lookup("p", "llm") is None
    cache.close()


def test_answers_outlive_the_process_in_a_file_that_others_cannot_read_or_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a"))
    file = tmp_path / "cache.sqlite"
    for found in (False, True):
        cache = TrivetCache("acme", store=f"sqlite:{file}")
        assert (cache.lookup("p", "llm") is not None) is found
        cache.update("p", "llm", said("x", **STOP))
        cache.close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-secret"))
    stranger = TrivetCache("acme", store=f"sqlite:{file}")
    assert stranger.lookup("p", "llm") is None
    stranger.close()


def test_a_store_in_trouble_costs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cache = TrivetCache("acme", store=f"sqlite:{tmp_path}")
    answers = [AIMessage(text, response_metadata=STOP) for text in ("one", "two")]
    one = model(cache, *answers)
    assert [one.invoke(text).content for text in ("q", "another q")] == ["one", "two"]
    cache.close()


def openai_model(url: str, **settings: Any) -> ChatOpenAI:
    settings = {"model": "mock", "temperature": 0, "base_url": url + "/v1", **settings}
    return ChatOpenAI(**{"api_key": SecretStr("sk-a"), "max_retries": 0, **settings})


def test_langchains_key_leaves_the_account_out_and_holds_the_base_url(
    upstream: tuple[str, MockUpstream], cache: TrivetCache
) -> None:
    # What docs/library.md says of the key, as it is in the version that is pinned.
    url, mock = upstream
    before = mock.calls.total
    openai_model(url, cache=cache).invoke("which account?")
    openai_model(url, cache=cache, api_key=SecretStr("sk-b")).invoke("which account?")
    assert mock.calls.total == before + 1
    openai_model(url, cache=cache, default_headers={"x-a": "1"}).invoke("which account?")
    assert mock.calls.total == before + 2


def test_by_the_transport_each_account_is_its_own_and_streams_are_cached_too(
    upstream: tuple[str, MockUpstream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url, mock = upstream
    before = mock.calls.total
    with httpx2.Client(transport=TrivetTransport(store="memory")) as http:
        behind = httpx2.AsyncClient(transport=AsyncTrivetTransport(store="memory"))
        settings: dict[str, Any] = {"http_client": http, "http_async_client": behind}
        one = openai_model(url, **settings)
        texts = ["".join(str(part.content) for part in one.stream("by")) for _ in range(2)]
        assert texts[0] == texts[1] != ""
        assert mock.calls.total == before + 1
        openai_model(url, api_key=SecretStr("sk-b"), **settings).invoke("by")
        assert mock.calls.total == before + 2
