"""OpenAI Chat Completions: `POST /v1/chat/completions`.

Field lists: openai-python 3.57 `types/chat/completion_create_params.py`; vLLM, SGLang and
llama.cpp server documentation for theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Answer, Api, NotStored, Request
from trivet.middleware.dialects import chat_replay
from trivet.middleware.dialects import openai_shapes as shapes
from trivet.middleware.dialects.base import Headers, Recorder, StoreRules, as_items, as_mapping
from trivet.middleware.dialects.call_ids import in_chat, with_original_ids
from trivet.middleware.dialects.chat_answers import ChatRecorder, fault_of
from trivet.middleware.dialects.openai_record import follow_chunk, record_json

FIELDS = shapes.Fields(
    transport=shapes.SERVER_TRANSPORT
    | {
        "stream",
        "user",
        "safety_identifier",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    },
    numbers=shapes.SERVER_NUMBERS
    | {
        "frequency_penalty",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "temperature",
        "top_logprobs",
        "top_p",
    },
    nullable=frozenset(
        (
            "audio",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "modalities",
            "n",
            "prediction",
            "presence_penalty",
            "reasoning_effort",
            "seed",
            "stop",
            "temperature",
            "top_logprobs",
            "top_p",
            "verbosity",
        )
    ),
)

_LIVE_MODEL = re.compile(r"-search-preview|search-api|deep-research|:online$|(^|/)sonar")
"""Models that look things up on the web by themselves (OpenAI, OpenRouter, Perplexity)."""

_EFFECTS = {
    "web_search_options": "live-search",
    "search_parameters": "live-search",
    "enable_search": "live-search",
    "plugins": "hosted-tool",
    "mcp_servers": "hosted-tool",
    "data_sources": "hosted-tool",
    "audio": "audio",
    "store": "stored-completion",
    "kv_transfer_params": "kv-transfer",
    "session_params": "stored-conversation",
}
"""Fields that make the server look up, keep, or do something, and the reason they give. Besides
OpenAI's: xAI, Alibaba, OpenRouter, Azure, vLLM, SGLang."""

REMOTE_IMAGE = "remote-image"
"""The one reason that a policy can lift; given only if there is no other."""


class ChatDialect:
    """The `base.Dialect` of Chat Completions."""

    api = Api.CHAT
    path = "/v1/chat/completions"
    request_id_header = "x-request-id"
    asks_usage = True

    def decode(self, raw: bytes, headers: Headers) -> Request:
        """Read a request. Raises `RequestError` naming the field that is wrong."""
        body, directives, forward = shapes.read(raw)
        shapes.check(body, FIELDS)
        messages = _messages(body)
        keyed = shapes.keyed(body, FIELDS)
        rich = [message for message in messages if not _is_plain(message)]
        keyed["messages"] = _keyed_messages(messages) if rich else _plain_ones(messages)
        json_answer, schema = shapes.wanted_json(body)
        return Request(
            api=self.api,
            model=body["model"],
            stream=bool(body.get("stream")),
            forward=forward,
            canonical=canonical.dump(keyed),
            include_usage=shapes.include_usage(body),
            sampled=shapes.is_sampled(body),
            tools=bool(body.get("tools") or body.get("functions")),
            choices=shapes.count(body),
            uncacheable=_uncacheable(body, rich),
            user=shapes.end_user(body),
            json_answer=json_answer,
            schema=schema,
            directives=directives,
        )

    def record(self, request: Request, body: bytes, rules: StoreRules) -> Answer | NotStored:
        """Judge a 2xx JSON answer."""
        return record_json(body, lambda value: fault_of(value, request, rules), rules)

    def recorder(self, request: Request) -> Recorder:
        """A recorder for a 2xx event stream that answers `request`."""
        return ChatRecorder(request)

    def render_json(self, answer: Answer, request: Request) -> bytes:
        """The answer's body as it was recorded."""
        return answer.body

    def render_stream(self, answer: Answer, request: Request) -> bytes:
        """The answer as a complete event stream, `[DONE]` included."""
        return chat_replay.render(answer, request)

    def follow(self, event: bytes, request: Request) -> bytes:
        """An event of another caller's live stream, without that one's own fields."""
        return follow_chunk(event)

    def error(self, status: int, message: str, *, field: str | None, code: str | None) -> bytes:
        """An error body as OpenAI shapes it."""
        return shapes.error_body(status, message, field, code)


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if type(messages) is not list:
        raise RequestError(400, "'messages' must be an array.", field="messages")
    for place, message in enumerate(messages):
        if type(message) is not dict:
            raise RequestError(
                400, f"'messages[{place}]' must be an object.", field=f"messages[{place}]"
            )
    return messages


def _is_plain(message: dict[str, Any]) -> bool:
    """A role and a text, as most messages are: there is nothing in it to look into."""
    return len(message) == 2 and type(message.get("content")) is str and "role" in message


def _plain_ones(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `_keyed_messages` makes of messages that are all plain."""
    return [{"content": message["content"], "role": message["role"]} for message in messages]


def _keyed_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return with_original_ids(list(map(_keyed_message, messages)), in_chat)


def _keyed_message(message: dict[str, Any]) -> dict[str, Any]:
    made = canonical.envelope(message)
    content = made.get("content")
    if type(content) is list:
        made["content"] = [_keyed_part(part) for part in content]
    return made


def _keyed_part(part: Any) -> Any:
    if type(part) is not dict or "prompt_cache_breakpoint" not in part:
        return part
    return {name: value for name, value in part.items() if name != "prompt_cache_breakpoint"}


def _uncacheable(body: dict[str, Any], rich: list[dict[str, Any]]) -> str | None:
    """Why no cache may answer; `rich` are the messages that are more than a role and a text."""
    # An empty `web_search_options` object asks for a search with the defaults.
    named = [name for name in body if name in _EFFECTS]
    reasons = {_EFFECTS[name] for name in named if body[name] not in (None, False, [])}
    if not body["messages"]:
        # What a server makes of it is its own affair.
        reasons.add("no-messages")
    if _LIVE_MODEL.search(body["model"]):
        reasons.add("live-search")
    if "audio" in as_items(body.get("modalities")):
        reasons.add("audio")
    if not all(map(_runs_at_the_caller, as_items(body.get("tools")))):
        reasons.add("hosted-tool")
    for message in rich:
        if message.get("audio") is not None:
            # A reference to audio that the provider keeps for a while.
            reasons.add("audio")
        for part in as_items(message.get("content")):
            reasons.update(_part_reasons(as_mapping(part)))
    others = reasons - {REMOTE_IMAGE}
    return min(others) if others else REMOTE_IMAGE if reasons else None


def _runs_at_the_caller(tool: Any) -> bool:
    kind = as_mapping(tool).get("type")
    return kind in ("function", "custom") or (kind is None and "function" in as_mapping(tool))


def _part_reasons(part: dict[str, Any]) -> Iterator[str]:
    if part.get("type") == "text":
        return
    for name, value in part.items():
        inner = as_mapping(value)
        if name == "file_id" or "file_id" in inner:
            yield "file-id"
        url = inner.get("url") if type(value) is dict else value
        if name.endswith(("_url", "_uri")) and url is not None and not _is_inline(url):
            yield REMOTE_IMAGE if name == "image_url" else "remote-media"
        if _is_remote(inner.get("file_data")):
            yield "remote-media"


def _is_inline(url: Any) -> bool:
    return type(url) is str and url[:5].lower() == "data:"


def _is_remote(url: Any) -> bool:
    return type(url) is str and url[:8].lower().startswith(("http://", "https://"))
