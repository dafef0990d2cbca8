"""The official Python SDKs against the proxy: recorded each way, replayed each way, one answer.

What the SDK's own accumulators return is compared field by field with what it returns straight
from the upstream. Ids are compared by shape only: each call of the mock has new ones, and each hit
has ids of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from proxy import Proxy, serving

from trivet.middleware.mock_upstream.commands import in_baggage

POLICY = """\
tenant: sdk
credentials:
  - sha256: {digest}
exact:
  sampled: cache
  refusals: true
"""
KEY = "sk-sdk-tests"
_IDS = re.compile(r"^(chatcmpl|cmpl|resp|msg|rs|fc|call|toolu|ctc|req)[_-]")
_VOLATILE = {"created", "created_at", "completed_at", "_request_id"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "day": {"type": "string"}},
                "required": ["city", "day"],
            },
        },
    }
]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    from trivet.policies.keygen import key_hash

    folder: Path = tmp_path_factory.mktemp("policies")
    (folder / "sdk.yaml").write_text(POLICY.format(digest=key_hash(KEY)))
    with serving(None, "--policies", str(folder)) as running:
        yield running


def plain(value: Any) -> Any:
    """An SDK object as JSON values, without what differs from call to call."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", exclude_unset=False)
    if isinstance(value, dict):
        kept = {name: plain(item) for name, item in value.items() if name not in _VOLATILE}
        # The API itself sends `annotations: []` in JSON and nothing in a stream.
        return {name: item for name, item in kept.items() if item is not None and item != []}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "(id)" if isinstance(value, str) and _IDS.match(value) else value


Ask = Callable[[str, bool, dict[str, Any], str], Any]


def _chat(base: str, stream: bool, options: dict[str, Any], mock: str) -> Any:
    with openai.OpenAI(base_url=base + "/v1", api_key=KEY, max_retries=0) as client:
        headers = {"baggage": in_baggage(mock)}
        if not stream:
            return client.chat.completions.create(**options, extra_headers=headers)
        options = {**options, "stream_options": {"include_usage": True}}
        with client.chat.completions.stream(**options, extra_headers=headers) as events:
            return events.get_final_completion()


def _responses(base: str, stream: bool, options: dict[str, Any], mock: str) -> Any:
    with openai.OpenAI(base_url=base + "/v1", api_key=KEY, max_retries=0) as client:
        headers = {"baggage": in_baggage(mock)}
        if not stream:
            return client.responses.create(**options, extra_headers=headers)
        with client.responses.stream(**options, extra_headers=headers) as events:
            return events.get_final_response()


def _messages(base: str, stream: bool, options: dict[str, Any], mock: str) -> Any:
    with anthropic.Anthropic(base_url=base, api_key=KEY, max_retries=0) as client:
        headers = {"baggage": in_baggage(mock)}
        if not stream:
            return client.messages.create(**options, extra_headers=headers)
        with client.messages.stream(**options, extra_headers=headers) as events:
            return events.get_final_message()


def _completions(base: str, stream: bool, options: dict[str, Any], mock: str) -> Any:
    with openai.OpenAI(base_url=base + "/v1", api_key=KEY, max_retries=0) as client:
        headers = {"baggage": in_baggage(mock)}
        if not stream:
            return client.completions.create(**options, extra_headers=headers)
        options = {**options, "stream_options": {"include_usage": True}}
        whole: dict[str, Any] = {}
        texts: dict[int, str] = {}
        for chunk in client.completions.create(**options, stream=True, extra_headers=headers):
            whole = whole or plain(chunk)
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
                if choice.finish_reason:
                    whole["choices"] = [
                        {"index": index, "text": text, "finish_reason": "stop"}
                        for index, text in sorted(texts.items())
                    ]
            if chunk.usage:
                whole["usage"] = plain(chunk.usage)
        return whole


USER = [{"role": "user", "content": "hello \U0001f469\u200d\U0001f680 \u2028 data: [DONE]"}]
CALLS = [{"role": "user", "content": "please call a tool"}]
CHAT = {"model": "mock", "messages": USER}
RESPONSE = {"model": "mock", "input": "hello \U0001f469\u200d\U0001f680 \u2028"}
MESSAGE = {"model": "mock", "messages": USER, "max_tokens": 2048}
FUNCTION = {"type": "function", **TOOLS[0]["function"], "strict": False}  # type: ignore[dict-item]
CLAUDE_TOOL = {"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}  # type: ignore[index]

SCENARIOS: dict[str, tuple[Ask, dict[str, Any], str]] = {
    "chat": (_chat, CHAT, ""),
    "chat echo": (_chat, CHAT, "echo"),
    "chat tools": (_chat, {**CHAT, "messages": CALLS, "tools": TOOLS}, ""),
    "chat choices": (_chat, {**CHAT, "n": 3}, ""),
    "chat logprobs": (_chat, {**CHAT, "logprobs": True, "top_logprobs": 2}, ""),
    "chat refusal": (_chat, CHAT, "refusal"),
    "chat reasoning": (_chat, CHAT, "reasoning"),
    "chat annotations": (_chat, CHAT, "annotations"),
    "chat long": (_chat, CHAT, "tokens=400"),
    "responses": (_responses, RESPONSE, ""),
    "responses not kept": (_responses, {**RESPONSE, "store": False}, ""),
    "responses tools": (
        _responses,
        {**RESPONSE, "input": "please call a tool", "tools": [FUNCTION], "store": False},
        "",
    ),
    "responses reasoning": (_responses, {**RESPONSE, "reasoning": {"summary": "auto"}}, ""),
    "responses refusal": (_responses, RESPONSE, "refusal"),
    "responses annotations": (_responses, RESPONSE, "annotations"),
    "messages": (_messages, MESSAGE, ""),
    "messages echo": (_messages, MESSAGE, "echo"),
    "messages tools": (_messages, {**MESSAGE, "messages": CALLS, "tools": [CLAUDE_TOOL]}, ""),
    "messages thinking": (
        _messages,
        {**MESSAGE, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        "",
    ),
    "messages annotations": (_messages, MESSAGE, "annotations"),
    "completions": (_completions, {"model": "mock", "prompt": "hello"}, ""),
    "completions choices": (_completions, {"model": "mock", "prompt": "hello", "n": 2}, ""),
}


@pytest.mark.parametrize("replayed", ["json", "stream"])
@pytest.mark.parametrize("recorded", ["json", "stream"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_replay_is_the_answer_that_was_recorded(
    proxy: Proxy, scenario: str, recorded: str, replayed: str
) -> None:
    ask, options, mock = SCENARIOS[scenario]
    assert proxy.mock is not None
    # An unknown field is in the key: each case has a key space of its own.
    space = {"temperature": 0, "x_case": f"{scenario} {recorded} {replayed}"}
    options = {**options, "extra_body": space}
    truth = ask(_upstream_of(proxy), replayed == "stream", options, mock)
    proxy.mock.calls.reset()
    ask(proxy.url, recorded == "stream", options, mock)
    replay = ask(proxy.url, replayed == "stream", options, mock)
    assert proxy.mock.calls.total == 1, "the second request was not a hit"
    assert plain(replay) == plain(truth)


def _upstream_of(proxy: Proxy) -> str:
    command = proxy.process.args
    assert isinstance(command, list)
    return str(command[command.index("--upstream") + 1])
