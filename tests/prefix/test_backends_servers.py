"""What servers of one's own are sent: the proxy's salt or slot, over whatever the caller sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backend_asks import SALT, ask

from trivet.messages import Api
from trivet.prefix.backends.base import SERVER_FIELDS
from trivet.prefix.backends.last_resort import caching_off
from trivet.prefix.backends.registry import backend_of

APIS = [Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.MESSAGES]
LLAMA = backend_of("llamacpp", "")


def _steering() -> dict[str, Any]:
    return dict.fromkeys(SERVER_FIELDS, "theirs")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["vllm", "sglang", "trivet"])
def test_the_salt_is_the_proxys_whatever_the_caller_sent(kind: str, api: Api) -> None:
    body = {"model": "m", **_steering(), "prompt": "p"}
    prepared = backend_of(kind, "").prepare(ask(api, body))
    assert json.loads(prepared.body) == {"model": "m", "cache_salt": SALT, "prompt": "p"}
    assert prepared.dropped == {b"x-session-id", b"x-data-parallel-rank"}
    assert not any(SALT in note for note in prepared.notes)


def test_a_salt_behind_an_escaped_name_is_overruled_too() -> None:
    given = ask(Api.CHAT, {"model": "m"})
    raw = b'{"model":"m","cache_sal\\u0074":"victim"}'
    sent = backend_of("vllm", "").prepare(given._replace(raw=raw)).body
    assert json.loads(sent) == {"model": "m", "cache_salt": SALT}


def test_tensorrt_has_a_salt_for_chat_and_completions_alone() -> None:
    backend = backend_of("tensorrt", "")
    body = {"model": "m", "prompt_cache_key": "k"}
    assert json.loads(backend.prepare(ask(Api.CHAT, body)).body) == {
        "model": "m",
        "cache_salt": SALT,
    }
    assert not backend.prepare(ask(Api.MESSAGES, body)).apart


class TestLlamaCpp:
    def test_a_tenant_with_a_slot_always_gets_it(self) -> None:
        prepared = LLAMA.prepare(ask(Api.CHAT, {"model": "m", **_steering()}, slot=3))
        assert json.loads(prepared.body) == {"model": "m", "id_slot": 3}

    def test_one_without_a_slot_runs_on_the_common_one_with_caching_off(self) -> None:
        prepared = LLAMA.prepare(ask(Api.CHAT, {"model": "m", "cache_prompt": True}, common_slot=1))
        assert json.loads(prepared.body) == {"model": "m", "id_slot": 1, "cache_prompt": False}

    def test_a_slot_out_of_range_is_none(self) -> None:
        """The server would wrap it around."""
        prepared = LLAMA.prepare(ask(Api.CHAT, {"model": "m"}, slot=-1))
        assert json.loads(prepared.body)["cache_prompt"] is False

    def test_messages_cannot_be_kept_apart(self) -> None:
        assert not LLAMA.prepare(ask(Api.MESSAGES, {"model": "m"}, slot=0)).apart


@pytest.mark.parametrize(
    ("isolates", "wanted"),
    [
        ("salt", {"model": "m", "cache_salt": "once"}),
        ("slot", {"model": "m", "id_slot": 2, "cache_prompt": False}),
    ],
)
def test_the_last_resort_is_caching_off(isolates: Any, wanted: dict[str, Any]) -> None:
    raw = json.dumps({"model": "m", **_steering()}).encode()
    sent = caching_off(isolates, raw, "once", 2)
    assert sent is not None
    assert json.loads(sent) == wanted
    assert caching_off(isolates, b"[", "once", 2) is None
