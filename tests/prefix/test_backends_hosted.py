"""What hosted APIs are sent: markers added, content kept, nothing that they refuse."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from backend_asks import SALT, ask, without

from trivet.messages import Api
from trivet.prefix.backends.base import OPENAI_FIELDS, SERVER_FIELDS, Ask, PrefixBackend
from trivet.prefix.backends.registry import backend_of
from trivet.prefix.prompts.outline import NativeApi

ANTHROPIC = backend_of("anthropic", "")
OPENAI = backend_of("openai", "")
GEMINI = backend_of("gemini", "")
BEDROCK = backend_of("bedrock", "")
DEEPSEEK = backend_of("deepseek", "")


def _agent() -> dict[str, Any]:
    return {
        "model": "claude-opus-5",
        "tools": [
            {"name": "z", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}},
            {"name": "a", "input_schema": {}},
        ],
        "system": "You are terse.",
        "messages": [
            {"role": "user", "content": "one"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "t", "name": "z", "input": {"b": 1, "a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}],
            },
        ],
    }


class TestAnthropic:
    def test_breakpoints_stand_where_placement_wants_them(self) -> None:
        places = (("tools", 1), ("system",), ("messages", 0), ("messages", 2, "content", 0))
        prepared = ANTHROPIC.prepare(ask(Api.MESSAGES, _agent(), *places, ttl="1h"))
        body = json.loads(prepared.body)
        control = {"type": "ephemeral", "ttl": "1h"}
        assert prepared.marks == 4
        assert body["tools"][1]["cache_control"] == control
        assert body["system"] == [
            {"type": "text", "text": "You are terse.", "cache_control": control}
        ]
        assert body["messages"][0]["content"] == [
            {"type": "text", "text": "one", "cache_control": control}
        ]
        assert body["messages"][2]["content"][0]["cache_control"] == control

    def test_tools_and_keys_keep_their_order(self) -> None:
        """Case L2: the order is the caller's, and a change of it is a change of the prefix."""
        given = ask(Api.MESSAGES, _agent(), ("tools", 1))
        sent = json.loads(ANTHROPIC.prepare(given).body)
        assert json.dumps(without(sent, "cache_control")) == json.dumps(json.loads(given.raw))

    def test_bytes_between_the_markers_are_those_that_came(self) -> None:
        """Case L6: three identical requests are three identical bodies upstream."""
        given = ask(Api.MESSAGES, _agent(), ("tools", 1))
        bodies = {ANTHROPIC.prepare(given).body for _ in range(3)}
        (sent,) = bodies
        mark = b',"cache_control":{"type":"ephemeral"}'
        assert sent.replace(mark, b"") == given.raw

    def test_marks_of_the_caller_stay_alone(self) -> None:
        body = _agent()
        body["system"] = [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]
        given = ask(Api.MESSAGES, body, ("tools", 1))
        prepared = ANTHROPIC.prepare(given)
        assert prepared.body is given.raw
        assert prepared.marks == 0
        assert "1 breakpoint of the caller's own: none added" in prepared.notes

    def test_the_automatic_mark_of_the_caller_counts(self) -> None:
        body = {**_agent(), "cache_control": {"type": "ephemeral"}}
        given = ask(Api.MESSAGES, body, ("tools", 1))
        assert ANTHROPIC.prepare(given).body is given.raw

    def test_there_is_never_a_fifth(self) -> None:
        body = {**_agent(), "tools": [{"name": str(at)} for at in range(6)]}
        given = ask(Api.MESSAGES, body, *(("tools", at) for at in range(6)))
        sent = ANTHROPIC.prepare(given)
        assert sent.marks == 4
        assert sent.body.count(b"cache_control") == 4

    @pytest.mark.parametrize(
        "block", [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": ""}]
    )
    def test_blocks_that_take_no_mark_get_none(self, block: dict[str, Any]) -> None:
        body = {"model": "m", "messages": [{"role": "assistant", "content": [block]}]}
        given = ask(Api.MESSAGES, body, ("messages", 0, "content", 0))
        assert ANTHROPIC.prepare(given).body is given.raw

    def test_fields_that_it_refuses_are_dropped(self) -> None:
        extra = dict.fromkeys((*SERVER_FIELDS, "prompt_cache_key"), "x")
        given = ask(Api.MESSAGES, {**extra, **_agent(), "prompt_cache_options": {}})
        prepared = ANTHROPIC.prepare(given)
        assert json.loads(prepared.body) == _agent()
        assert "prompt_cache_key dropped: the API refuses it" in prepared.notes

    def test_marks_of_openais_kind_are_translated(self) -> None:
        """Case L10: a failover that changes the wire format keeps the markers."""
        block = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
        body = {"model": "m", "messages": [{"role": "user", "content": [block] * 5}]}
        prepared = ANTHROPIC.prepare(ask(Api.MESSAGES, body))
        blocks = json.loads(prepared.body)["messages"][0]["content"]
        assert [one.get("cache_control") for one in blocks] == [{"type": "ephemeral"}] * 4 + [None]
        assert b"prompt_cache_breakpoint" not in prepared.body


def _chat(model: str = "gpt-6-astra") -> dict[str, Any]:
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": "Terse."},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function",
                     "function": {"name": "f", "arguments": '{"b": 1,  "a":2}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
    }  # fmt: skip


class TestOpenAI:
    def test_a_tenant_has_one_key_for_all_sessions(self) -> None:
        """Case L4: sessions of one tenant share."""
        keys = {
            json.loads(OPENAI.prepare(ask(Api.CHAT, {**_chat(), "user": user})).body)[
                "prompt_cache_key"
            ]
            for user in ("session-1", "session-2")
        }
        (key,) = keys
        assert len(key) == 32

    def test_the_callers_key_is_part_of_it_and_stable(self) -> None:
        """Case L5: the key is neither lost nor made anew."""

        def key(own: str | None, salt: str = SALT) -> str:
            body = _chat() if own is None else {**_chat(), "prompt_cache_key": own}
            sent = OPENAI.prepare(ask(Api.CHAT, body)._replace(salt=salt)).body
            return str(json.loads(sent)["prompt_cache_key"])

        assert key("k") == key("k")
        assert len({key(None), key("k"), key("l"), key("k", "6b" * 32)}) == 4

    def test_the_salt_does_not_show(self) -> None:
        assert SALT.encode() not in OPENAI.prepare(ask(Api.CHAT, _chat())).body

    def test_arguments_of_tool_calls_are_the_callers_text(self) -> None:
        """Case L3."""
        given = ask(Api.CHAT, _chat(), ("messages", 0))
        sent = OPENAI.prepare(given).body
        assert rb'"{\"b\": 1,  \"a\":2}"' in sent
        names = ("prompt_cache_key", "prompt_cache_breakpoint")
        body = without(json.loads(sent), *names)
        assert body["messages"][1:] == _chat()["messages"][1:]

    def test_breakpoints_follow_the_stable_parts(self) -> None:
        places = (("messages", 0), ("messages", 1, "content", 0))
        prepared = OPENAI.prepare(ask(Api.CHAT, _chat(), *places, ttl="30m"))
        messages = json.loads(prepared.body)["messages"]
        mark = {"mode": "explicit", "ttl": "30m"}
        assert messages[0]["content"] == [
            {"type": "text", "text": "Terse.", "prompt_cache_breakpoint": mark}
        ]
        assert messages[1]["content"][0]["prompt_cache_breakpoint"] == mark
        assert prepared.marks == 2

    def test_older_models_get_no_breakpoints(self) -> None:
        prepared = OPENAI.prepare(ask(Api.CHAT, _chat("gpt-4o"), ("messages", 0)))
        assert json.loads(prepared.body)["messages"] == _chat()["messages"]
        assert prepared.marks == 0

    def test_responses_take_them_in_input_and_not_in_instructions(self) -> None:
        body = {
            "model": "gpt-5.6",
            "instructions": "Terse.",
            "input": [
                {"role": "developer", "content": "d"},
                {"role": "assistant", "content": "said"},
                {"role": "user", "content": "u"},
            ],
        }
        places = (("instructions",), ("input", 0), ("input", 1))
        prepared = OPENAI.prepare(ask(Api.RESPONSES, body, *places))
        sent = json.loads(prepared.body)
        mark = {"mode": "explicit"}
        assert sent["instructions"] == "Terse."
        assert sent["input"][0]["content"] == [
            {"type": "input_text", "text": "d", "prompt_cache_breakpoint": mark}
        ]
        assert sent["input"][1]["content"] == "said"
        assert prepared.marks == 1

    def test_marks_of_anthropics_kind_are_translated_or_dropped(self) -> None:
        """Case L10."""
        mark = {"type": "ephemeral"}
        body = {
            "model": "gpt-5.6",
            "cache_control": mark,
            "tools": [{"type": "function", "function": {"name": "f"}, "cache_control": mark}],
            "messages": [
                {"role": "system",
                 "content": [{"type": "text", "text": "s", "cache_control": mark}]},
            ],
        }  # fmt: skip
        prepared = OPENAI.prepare(ask(Api.CHAT, body))
        sent = json.loads(prepared.body)
        assert b"cache_control" not in prepared.body
        assert sent["messages"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
        assert any(note.startswith("cache_control dropped at tools[0]") for note in prepared.notes)
        older = OPENAI.prepare(ask(Api.CHAT, {**body, "model": "gpt-4o"}))
        assert b"breakpoint" not in older.body
        assert b"cache_control" not in older.body

    def test_fields_of_servers_are_dropped(self) -> None:
        extra = dict.fromkeys(SERVER_FIELDS, "x")
        sent = json.loads(OPENAI.prepare(ask(Api.CHAT, {**_chat(), **extra})).body)
        assert not sent.keys() & set(SERVER_FIELDS)

    def test_embeddings_get_no_key(self) -> None:
        given = ask(Api.EMBEDDINGS, {"model": "e", "input": ["x"]})
        assert OPENAI.prepare(given).body is given.raw


class TestGemini:
    def test_the_compatible_api_gets_nothing_that_it_refuses(self) -> None:
        body = {**_chat("gemini-2.5-pro"), "prompt_cache_key": "k", "cache_salt": "s"}
        sent = GEMINI.prepare(ask(Api.CHAT, body)).body
        assert json.loads(sent) == _chat("gemini-2.5-pro")

    @pytest.mark.parametrize("name", ["cached_content", "cachedContent"])
    def test_a_content_is_not_read_where_tenants_share_the_account(self, name: str) -> None:
        """Its name is all that it takes, and the key is everybody's."""
        content = {"google": {name: "cachedContents/1"}}
        for body in (
            _chat("gemini-2.5-pro") | content,
            _chat("gemini-2.5-pro") | {"extra_body": content},
        ):
            given = ask(Api.CHAT, body)
            assert not GEMINI.prepare(given._replace(common=True)).apart
            own = GEMINI.prepare(given)
            assert (own.apart, own.body) == (True, given.raw)
        assert GEMINI.prepare(ask(Api.CHAT, _chat("gemini-2.5-pro"), common=True)).apart

    def test_native_bodies_go_as_they_came(self) -> None:
        given = ask(NativeApi.GENERATE, {"contents": [], "cachedContent": "cachedContents/1"})
        assert GEMINI.prepare(given).body is given.raw


def escaped(given: Ask, name: str) -> Ask:
    """The same body, its keys of that name with one letter as an escape."""
    key = f'"{name}"'.encode()
    assert key in given.raw
    hidden = key[:6] + b"\\u%04x" % key[6] + key[7:]
    return given._replace(raw=given.raw.replace(key, hidden))


class TestEscapedNames:
    """A provider reads keys by what they say, however they are written."""

    MARK: ClassVar = {"type": "ephemeral"}

    def marked(self, name: str) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": "t",
                  "content": [{"type": "text", "text": "r", name: self.MARK}]}  # fmt: skip
        text = {"type": "text", "text": "s", name: self.MARK}
        return {
            "model": "m",
            "max_tokens": 1,
            "tools": [{"type": "function", "function": {"name": "f"}, name: self.MARK}],
            "messages": [{"role": "user", "content": [text, result], name: self.MARK}],
            name: self.MARK,
        }

    @pytest.mark.parametrize("backend", [OPENAI, GEMINI, DEEPSEEK])
    @pytest.mark.parametrize("name", ["cache_control", "prompt_cache_breakpoint"])
    def test_a_marker_that_a_provider_rejects_never_reaches_it(
        self, backend: PrefixBackend, name: str
    ) -> None:
        if backend is OPENAI and name == "prompt_cache_breakpoint":
            return
        given = escaped(ask(Api.CHAT, self.marked(name)), name)
        sent = json.loads(backend.prepare(given).body)
        added = ("prompt_cache_key", "user_id", name)
        assert without(sent, *added[:2]) == without(self.marked(name), *added)

    def test_anthropic_counts_the_callers_own_and_adds_none(self) -> None:
        body = self.marked("cache_control")
        given = escaped(ask(Api.MESSAGES, body, ("messages", 0)), "cache_control")
        prepared = ANTHROPIC.prepare(given)
        assert prepared.body is given.raw
        assert "5 breakpoints of the caller's own: none added" in prepared.notes

    def test_a_breakpoint_of_openais_kind_is_translated_for_anthropic(self) -> None:
        body = without(self.marked("prompt_cache_breakpoint"), "tools")
        given = escaped(ask(Api.MESSAGES, body), "prompt_cache_breakpoint")
        sent = json.loads(ANTHROPIC.prepare(given).body)
        text, result = sent["messages"][0]["content"]
        assert text == {"type": "text", "text": "s", "cache_control": self.MARK}
        assert result["content"][0]["cache_control"] == self.MARK
        assert without(sent, "cache_control") == without(body, "prompt_cache_breakpoint")

    @pytest.mark.parametrize("name", OPENAI_FIELDS)
    def test_a_field_that_anthropic_refuses_never_reaches_it(self, name: str) -> None:
        given = escaped(ask(Api.MESSAGES, {**_agent(), name: "x"}), name)
        assert json.loads(ANTHROPIC.prepare(given).body) == _agent()

    def test_bedrock_sees_the_callers_own_points(self) -> None:
        body = _converse()
        body["messages"][0]["content"].append({"cachePoint": {"type": "default"}})
        given = ask(NativeApi.CONVERSE, body, ("system", 0), model="anthropic.claude-x")
        given = escaped(given, "cachePoint")
        assert BEDROCK.prepare(given).body is given.raw

    def test_a_word_in_a_text_is_no_point_of_the_callers(self) -> None:
        body = _converse()
        body["system"][0]["text"] = 'what does "cachePoint" do?'
        given = ask(NativeApi.CONVERSE, body, ("system", 0), model="anthropic.claude-x")
        assert BEDROCK.prepare(given).marks == 1


def _converse() -> dict[str, Any]:
    return {
        "system": [{"text": "s"}],
        "messages": [
            {"role": "user", "content": [{"text": "a"}, {"text": "b"}]},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "t"}}]},
    }


class TestBedrock:
    PLACES = (("toolConfig", "tools", 0), ("system", 0), ("messages", 0, "content", 0))

    def test_cache_points_stand_behind_what_they_close(self) -> None:
        given = ask(
            NativeApi.CONVERSE, _converse(), *self.PLACES, ttl="1h", model="anthropic.claude-opus-5"
        )
        prepared = BEDROCK.prepare(given)
        point = {"cachePoint": {"type": "default", "ttl": "1h"}}
        assert prepared.marks == 3
        assert json.loads(prepared.body) == {
            "system": [{"text": "s"}, point],
            "messages": [{"role": "user", "content": [{"text": "a"}, point, {"text": "b"}]}],
            "toolConfig": {"tools": [{"toolSpec": {"name": "t"}}, point]},
        }

    def test_a_signed_body_is_never_touched(self) -> None:
        given = ask(
            NativeApi.CONVERSE, _converse(), *self.PLACES, model="anthropic.claude-x", bearer=False
        )
        assert BEDROCK.prepare(given).body is given.raw

    def test_models_that_take_no_points_get_none(self) -> None:
        given = ask(NativeApi.CONVERSE, _converse(), *self.PLACES, model="meta.llama3-1-70b")
        assert BEDROCK.prepare(given).body is given.raw

    def test_points_of_the_caller_stay_alone(self) -> None:
        body = _converse()
        body["system"].append({"cachePoint": {"type": "default"}})
        given = ask(NativeApi.CONVERSE, body, *self.PLACES, model="anthropic.claude-x")
        assert given.outline.marks == 1
        assert BEDROCK.prepare(given).body is given.raw


class TestDeepSeek:
    def test_the_user_id_is_the_tenants(self) -> None:
        sent = json.loads(DEEPSEEK.prepare(ask(Api.CHAT, _chat("deepseek-chat"))).body)
        other = DEEPSEEK.prepare(ask(Api.CHAT, _chat("deepseek-chat"))._replace(salt="00" * 32))
        assert sent["user_id"] != json.loads(other.body)["user_id"]
        assert sent["user_id"].isalnum()

    def test_in_anthropics_shape_it_is_in_the_metadata(self) -> None:
        body = {**_agent(), "metadata": {"user_id": "u", "k": 1}}
        sent = json.loads(DEEPSEEK.prepare(ask(Api.MESSAGES, body)).body)
        plain = json.loads(DEEPSEEK.prepare(ask(Api.MESSAGES, _agent())).body)
        assert sent["metadata"]["k"] == 1
        assert sent["metadata"]["user_id"] not in ("u", plain["metadata"]["user_id"])


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://api.anthropic.com", "anthropic"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://corp.openai.azure.com/openai/v1", "openai"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini"),
        ("https://europe-west1-aiplatform.googleapis.com", "gemini"),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"),
        ("https://s3.amazonaws.com", "none"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://evil-api.openai.com.example.net", "none"),
        ("https://notapi.openai.com.evil", "none"),
        ("http://127.0.0.1:8000", "none"),
    ],
)
def test_hosted_apis_are_known_by_their_host(url: str, kind: str) -> None:
    assert backend_of("auto", url).kind == kind


def test_an_engine_is_known_by_its_secret() -> None:
    given = ask(Api.CHAT, _chat())
    engine = backend_of("auto", "http://127.0.0.1:1", "TRIVET_ENGINE_SECRET")
    assert (engine.kind, engine.isolates) == ("trivet", "tenant")
    assert engine.prepare(given).body is given.raw
