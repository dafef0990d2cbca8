"""The simulators of Anthropic, OpenAI and DeepSeek, judged by the official SDKs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from trivet.middleware.mock_upstream.run import running

Body = dict[str, Any]
LONG = "Rules of the house. " * 400
"""2,000 tokens."""


def at(seconds: float) -> dict[str, str]:
    return {"x-mock": f"at={seconds}"}


def advance(seconds: float) -> dict[str, str]:
    return {"x-mock": f"advance={seconds}"}


def block(text: str, ttl: str | None = None) -> Any:
    control: Body = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
    return {"type": "text", "text": text, "cache_control": control}


@pytest.fixture(scope="module")
def claude_url() -> Iterator[str]:
    with running(provider="anthropic") as (url, _):
        yield url


@pytest.fixture
def claude(claude_url: str) -> Iterator[anthropic.Anthropic]:
    httpx2.post(f"{claude_url}/_mock/reset")
    with anthropic.Anthropic(
        base_url=claude_url, api_key="sk-one", max_retries=0, timeout=20
    ) as client:
        yield client


def say(
    client: anthropic.Anthropic, *messages: Body | str, **fields: Any
) -> anthropic.types.Message:
    turns: list[Any] = [
        {"role": "user", "content": one} if isinstance(one, str) else one for one in messages
    ]
    given: Body = {"model": "claude-opus-5-5", "max_tokens": 50} | fields
    return client.messages.create(messages=turns, **given)


def counts(usage: Any) -> tuple[int, int, int]:
    """Uncached, read, written."""
    return usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens


class TestAnthropic:
    def test_a_write_then_a_read(self, claude: anthropic.Anthropic) -> None:
        first = say(claude, "one", system=[block(LONG)]).usage
        again = say(claude, "another", system=[block(LONG)]).usage
        assert counts(first)[1] == 0
        assert counts(again)[1:] == (counts(first)[2], 0)
        assert first.cache_creation is not None
        assert first.cache_creation.ephemeral_5m_input_tokens == counts(first)[2] > 2000

    def test_a_stream_reports_the_same_at_its_start_and_its_end(
        self, claude: anthropic.Anthropic
    ) -> None:
        whole = say(claude, "one", system=[block(LONG)], extra_headers=at(0)).usage
        seen: Body = {}
        given: Any = {"model": "claude-opus-5-5", "max_tokens": 50, "system": [block(LONG)]}
        turn: Any = {"role": "user", "content": "one"}
        with claude.messages.stream(**given, messages=[turn], extra_headers=at(9000)) as stream:
            for event in stream:
                if event.type == "message_start":
                    seen["start"] = counts(event.message.usage)
                elif event.type == "message_delta":
                    seen["end"] = counts(event.usage)
        assert seen["start"] == seen["end"] == counts(whole)
        assert counts(stream.get_final_message().usage) == counts(whole)

    def test_the_clock_moves_by_command(self, claude: anthropic.Anthropic, claude_url: str) -> None:
        for moment, read in ((0, False), (299, True), (599, False), (600, True)):
            found = say(claude, "q", system=[block(LONG)], extra_headers=at(moment)).usage
            assert bool(found.cache_read_input_tokens) == read
        httpx2.post(f"{claude_url}/_mock/advance/300")
        assert not say(claude, "q", system=[block(LONG)]).usage.cache_read_input_tokens
        found = say(claude, "q", system=[block(LONG)], extra_headers=advance(299)).usage
        assert found.cache_read_input_tokens
        assert httpx2.get(f"{claude_url}/_mock/clock").json() == {"now": 1199}

    def test_it_can_be_read_once_the_first_answer_begins(self, claude: anthropic.Anthropic) -> None:
        slow = {"x-mock": "at=10; first-byte=2"}
        say(claude, "q", system=[block(LONG)], extra_headers=slow)
        found = [
            say(claude, "q", system=[block(LONG)], extra_headers=at(moment)).usage
            for moment in (11, 12)
        ]
        assert [bool(one.cache_read_input_tokens) for one in found] == [False, True]

    def test_keys_and_workspaces_share_nothing(
        self, claude: anthropic.Anthropic, claude_url: str
    ) -> None:
        say(claude, "q", system=[block(LONG)])
        with anthropic.Anthropic(base_url=claude_url, api_key="sk-two", max_retries=0) as other:
            assert not say(other, "q", system=[block(LONG)]).usage.cache_read_input_tokens
        elsewhere = {"anthropic-workspace-id": "wrk_2"}
        found = say(claude, "q", system=[block(LONG)], extra_headers=elsewhere).usage
        assert not found.cache_read_input_tokens

    def test_both_lifetimes_are_reported_apart(self, claude: anthropic.Anthropic) -> None:
        turn = {"role": "user", "content": [block("A question. " * 200)]}
        found = say(claude, turn, system=[block(LONG, "1h")]).usage.cache_creation
        assert found is not None
        assert found.ephemeral_1h_input_tokens > found.ephemeral_5m_input_tokens > 500

    def test_the_automatic_breakpoint_moves_along(self, claude: anthropic.Anthropic) -> None:
        auto: Body = {"cache_control": {"type": "ephemeral"}}
        first = say(claude, LONG, **auto)
        said = {"role": "assistant", "content": first.content}
        second = say(claude, LONG, said, "and then?", **auto).usage
        assert counts(second)[1] == counts(first.usage)[2]
        assert counts(second)[0] == 0

    @pytest.mark.parametrize(
        "fields",
        [
            {"system": [block(LONG)] * 5},
            {"system": [block(LONG), block(LONG, "1h")]},
            {"system": [block(LONG, "2h")]},
            {"system": [{"type": "text", "text": LONG, "cache_control": {"type": "lasting"}}]},
            {"system": [{"type": "text", "text": LONG, "prompt_cache_breakpoint": {}}]},
            {"extra_body": {"cache_salt": "abc"}},
            {"extra_body": {"prompt_cache_key": "abc"}},
            {
                "extra_body": {"temperature": 1},
                "extra_headers": {"anthropic-version": "2026-10-21"},
            },
            {"max_tokens": 0, "thinking": {"type": "adaptive"}},
        ],
    )
    def test_what_the_provider_rejects_gets_its_400(
        self, claude: anthropic.Anthropic, fields: Body
    ) -> None:
        with pytest.raises(anthropic.BadRequestError) as failed:
            say(claude, "q", **fields)
        told: Any = failed.value.body
        assert told["error"]["type"] == "invalid_request_error"

    def test_a_prewarming_request_writes(self, claude: anthropic.Anthropic) -> None:
        first = say(claude, "q", system=[block(LONG)], max_tokens=0)
        assert (first.content, first.stop_reason) == ([], "max_tokens")
        assert say(claude, "q", system=[block(LONG)]).usage.cache_read_input_tokens

    def test_counted_tokens_are_billed_tokens(self, claude: anthropic.Anthropic) -> None:
        turn: Any = {"role": "user", "content": LONG}
        counted = claude.messages.count_tokens(model="claude-opus-5-5", messages=[turn])
        assert counted.input_tokens == sum(counts(say(claude, LONG).usage))

    def test_diagnostics_name_the_level_that_changed(self, claude: anthropic.Anthropic) -> None:
        first = say(claude, "q", system=[block(LONG)])
        asked: Body = {"diagnostics": {"previous_message_id": first.id}}
        reason = say(claude, "q", system=[block("Other." + LONG)], **asked).diagnostics
        assert reason is not None
        assert reason.cache_miss_reason is not None
        assert reason.cache_miss_reason.type == "system_changed"

    def test_it_says_that_it_is_a_simulator(
        self, claude: anthropic.Anthropic, claude_url: str
    ) -> None:
        told = httpx2.get(claude_url).json()
        assert told["model"] is False
        assert "simulator" in told["notice"]
        said = say(claude, "q").content[0]
        assert said.type == "text"
        assert "not a model" in said.text


@pytest.fixture(scope="module")
def openai_url() -> Iterator[str]:
    with running(provider="openai") as (url, _):
        yield url


@pytest.fixture
def gpt(openai_url: str) -> Iterator[openai.OpenAI]:
    httpx2.post(f"{openai_url}/_mock/reset")
    with openai.OpenAI(
        base_url=f"{openai_url}/v1", api_key="sk-one", max_retries=0, timeout=20
    ) as client:
        yield client


def part(text: str, kind: str = "text", **point: Any) -> Any:
    return {"type": kind, "text": text, "prompt_cache_breakpoint": {"mode": "explicit", **point}}


def chat(client: openai.OpenAI, question: str, **fields: Any) -> openai.types.CompletionUsage:
    turns: Any = [{"role": "system", "content": fields.pop("system", LONG)}]
    turns.append({"role": "user", "content": question})
    made = client.chat.completions.create(messages=turns, **{"model": "gpt-5.6"} | fields)
    assert made.usage is not None
    return made.usage


def details(usage: openai.types.CompletionUsage) -> tuple[int | None, int | None]:
    """Cached, written."""
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens_details.cache_write_tokens


class TestOpenAi:
    def test_a_shared_system_prompt_needs_a_breakpoint(self, gpt: openai.OpenAI) -> None:
        assert details(chat(gpt, "one")) == (0, chat(gpt, "one").prompt_tokens)
        assert details(chat(gpt, "two"))[0] == 0
        chat(gpt, "one", system=[part(LONG)])
        cached, written = details(chat(gpt, "three", system=[part(LONG)]))
        assert (cached or 0) > 2000
        assert 0 < (written or 0) < 20

    def test_cached_and_written_are_part_of_the_prompt(self, gpt: openai.OpenAI) -> None:
        usage = chat(gpt, "one", system=[part(LONG)])
        assert sum(one or 0 for one in details(usage)) == usage.prompt_tokens
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    def test_mode_explicit_without_a_breakpoint_caches_nothing(self, gpt: openai.OpenAI) -> None:
        explicit: Body = {"prompt_cache_options": {"mode": "explicit"}}
        assert [details(chat(gpt, "q", **explicit)) for _ in range(2)] == [(0, 0), (0, 0)]

    def test_a_key_keeps_reuse_apart(self, gpt: openai.OpenAI) -> None:
        chat(gpt, "one", prompt_cache_key="t1")
        assert details(chat(gpt, "one", prompt_cache_key="t2"))[0] == 0
        assert details(chat(gpt, "one", prompt_cache_key="t1"))[0]

    def test_older_models_round_down_to_128_and_write_for_nothing(self, gpt: openai.OpenAI) -> None:
        chat(gpt, "one", model="gpt-4o")
        cached, written = details(chat(gpt, "two", model="gpt-4o"))
        assert (cached, written) == (1920, None)

    def test_thirty_minutes(self, gpt: openai.OpenAI) -> None:
        found = [chat(gpt, "q", extra_headers=at(moment)) for moment in (0, 1799, 3599)]
        assert [bool(details(one)[0]) for one in found] == [False, True, False]

    def test_a_stream_reports_usage_when_asked(self, gpt: openai.OpenAI) -> None:
        turns: Any = [{"role": "user", "content": LONG}]
        for _ in range(2):
            stream = gpt.chat.completions.create(
                model="gpt-5.6", messages=turns, stream=True, stream_options={"include_usage": True}
            )
            usage = [chunk.usage for chunk in stream][-1]
        assert usage is not None
        assert details(usage)[0] == usage.prompt_tokens

    def test_responses_report_writes_by_lifetime(self, gpt: openai.OpenAI) -> None:
        turns: Any = [{"role": "user", "content": [part(LONG, "input_text", ttl="12h")]}]
        turns.append({"role": "user", "content": "q"})
        made = gpt.responses.create(model="gpt-5.6", input=turns)
        assert made.usage is not None
        told = made.usage.input_tokens_details
        assert told.cache_write_tokens_details is not None
        assert told.cache_write_tokens_details.ttl_12h_tokens > 2000
        assert 0 < told.cache_write_tokens_details.ttl_30m_tokens < 20
        assert told.cache_write_tokens == made.usage.input_tokens

    def test_a_prewarming_response_has_no_output(self, gpt: openai.OpenAI) -> None:
        warm: Any = {"prewarm": True}
        made = gpt.responses.create(model="gpt-5.6", input=LONG, prompt_cache_options=warm)
        again = gpt.responses.create(model="gpt-5.6", input=LONG)
        assert made.output == []
        assert again.usage is not None
        assert again.usage.input_tokens_details.cached_tokens == again.usage.input_tokens

    @pytest.mark.parametrize(
        "fields",
        [
            {"extra_body": {"cache_salt": "abc"}},
            {"extra_body": {"cache_control": {"type": "ephemeral"}}},
            {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"system": [part(LONG)], "model": "gpt-4o"},
            {"prompt_cache_options": {"mode": "implicit"}, "model": "gpt-4o"},
            {"prompt_cache_options": {"mode": "sometimes"}},
            {"prompt_cache_options": {"ttl": "12h"}},
            {"prompt_cache_retention": "in_memory", "model": "gpt-5.5"},
        ],
    )
    def test_what_the_provider_rejects_gets_its_400(self, gpt: openai.OpenAI, fields: Body) -> None:
        with pytest.raises(openai.BadRequestError) as failed:
            chat(gpt, "q", **fields)
        assert failed.value.type == "invalid_request_error"
        assert failed.value.param

    def test_responses_reject_unknown_fields_in_their_own_words(self, gpt: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as failed:
            gpt.responses.create(model="gpt-5.6", input="q", extra_body={"extra_key": "x"})
        assert failed.value.code == "unknown_parameter"

    def test_the_messages_api_is_not_there(self, openai_url: str) -> None:
        assert httpx2.post(f"{openai_url}/v1/messages", json={}).status_code == 404


@pytest.fixture(scope="module")
def deepseek_url() -> Iterator[str]:
    with running(provider="deepseek") as (url, _):
        yield url


class TestDeepSeek:
    @staticmethod
    @contextlib.contextmanager
    def client(url: str) -> Iterator[openai.OpenAI]:
        httpx2.post(f"{url}/_mock/reset")
        with openai.OpenAI(base_url=url, api_key="sk", max_retries=0, timeout=20) as made:
            yield made

    def test_hits_and_misses_add_up(self, deepseek_url: str) -> None:
        with self.client(deepseek_url) as client:
            told = [chat(client, name, model="deepseek-chat").model_dump() for name in "abc"]
        hits = [one["prompt_cache_hit_tokens"] for one in told]
        assert hits[:2] == [0, 0]
        assert hits[2] > 1900
        for one in told:
            assert (
                sum(one[f"prompt_cache_{kind}_tokens"] for kind in ("hit", "miss"))
                == (one["prompt_tokens"])
            )

    def test_users_of_one_key_share_nothing(self, deepseek_url: str) -> None:
        with self.client(deepseek_url) as client:
            hits = []
            for user in ("one", "one", "two"):
                usage = chat(client, "q", model="deepseek-chat", extra_body={"user_id": user})
                hits.append(usage.model_dump()["prompt_cache_hit_tokens"] > 0)
        assert hits == [False, True, False]

    def test_a_user_id_with_other_signs_is_refused(self, deepseek_url: str) -> None:
        with self.client(deepseek_url) as client, pytest.raises(openai.BadRequestError):
            chat(client, "q", model="deepseek-chat", extra_body={"user_id": "a b"})

    def test_anthropics_shape_works_too(self, deepseek_url: str) -> None:
        httpx2.post(f"{deepseek_url}/_mock/reset")
        with anthropic.Anthropic(
            base_url=f"{deepseek_url}/anthropic", api_key="sk", max_retries=0, timeout=20
        ) as client:
            found = [say(client, LONG, model="deepseek-chat").usage for _ in range(2)]
        assert counts(found[1])[1] > 1900
        assert counts(found[1])[2] == 0
