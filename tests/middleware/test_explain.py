"""What `trivet explain` says agrees with what the proxy decides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from trivet.errors import RequestError
from trivet.exact.key import KeyParts, exact_key
from trivet.messages import Api, Scope
from trivet.middleware.dialects import embeddings
from trivet.middleware.dialects.chat import ChatDialect
from trivet.middleware.dialects.messages import MessagesDialect
from trivet.middleware.explain.considered import Destination
from trivet.middleware.explain.explain import Explanation, explain, explanation_of
from trivet.middleware.explain.omitted import omitted
from trivet.middleware.explain.sample import Sample, read_sample
from trivet.middleware.explain.text import render
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import Identified

TO = Destination("main", "http://upstream")
CHAT: dict[str, Any] = {
    "model": "gpt-5",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
}


def sample(body: dict[str, Any], **fields: Any) -> Sample:
    return read_sample(json.dumps({"body": body, **fields}).encode())


def caller(**policy: Any) -> Identified:
    made = TenantPolicy.model_validate({"tenant": "acme", **policy})
    return Identified(made, "acme", "key", b"c" * 32)


def told(body: dict[str, Any], headers: dict[str, str] | None = None, **policy: Any) -> Explanation:
    asked = sample(body, path="/v1/chat/completions", headers=headers or {})
    return explain(asked, ChatDialect().decode, caller(**policy), TO)


class TestSample:
    @pytest.mark.parametrize(
        ("body", "api"),
        [
            (CHAT, Api.CHAT),
            ({"model": "gpt", "messages": [], "max_tokens": 5}, Api.CHAT),
            ({"model": "claude-x", "messages": [], "max_tokens": 5}, Api.MESSAGES),
            ({"model": "m", "messages": [], "system": "x"}, Api.MESSAGES),
            ({"model": "text-embedding-3", "input": "x"}, Api.EMBEDDINGS),
            ({"model": "m", "input": "x", "encoding_format": "float"}, Api.EMBEDDINGS),
            ({"model": "m", "input": "x"}, Api.RESPONSES),
            ({"model": "m", "prompt": {"id": "p"}}, Api.RESPONSES),
            ({"previous_response_id": "r"}, Api.RESPONSES),
            ({"model": "m", "prompt": "x"}, Api.COMPLETIONS),
        ],
    )
    def test_a_bare_body_tells_its_api(self, body: dict[str, Any], api: Api) -> None:
        raw = json.dumps(body).encode()
        found = read_sample(raw)
        assert (found.api, found.guessed, found.body) == (api, True, raw)

    def test_an_anthropic_header_tells_the_api(self) -> None:
        found = sample(CHAT, headers={"Anthropic-Version": "2023-06-01"})
        assert (found.api, found.guessed) == (Api.MESSAGES, True)

    def test_a_path_decides(self) -> None:
        found = sample(CHAT, path="/v1/messages?beta=true")
        assert (found.api, found.guessed, found.path, found.query) == (
            Api.MESSAGES,
            False,
            "/v1/messages",
            "beta=true",
        )
        assert sample(CHAT, path="/responses").api is Api.RESPONSES

    def test_headers_are_read_in_any_spelling(self) -> None:
        found = sample(CHAT, headers={"Authorization": "Bearer k"})
        assert found.headers == {"authorization": "Bearer k"}
        assert found.raw_headers == ((b"authorization", b"Bearer k"),)

    def test_lone_surrogates_survive(self) -> None:
        found = read_sample(rb'{"body": {"model": "m", "prompt": "\ud800"}}')
        assert found.body == rb'{"model":"m","prompt":"\ud800"}'

    @pytest.mark.parametrize(
        ("raw", "field"),
        [
            (b"[]", None),
            (b"not json", None),
            (b'{"model":"m"}', "body"),
            (b'{"body":{"prompt":"x"},"url":"/"}', "url"),
            (b'{"body":{"prompt":"x"},"path":5}', "path"),
            (b'{"body":{"prompt":"x"},"path":"/v1/files"}', "path"),
            (b'{"body":{"prompt":"x"},"headers":[]}', "headers"),
            (b'{"body":{"prompt":"x"},"headers":{"a":1}}', "headers"),
        ],
    )
    def test_anything_else_is_refused(self, raw: bytes, field: str | None) -> None:
        with pytest.raises(RequestError) as raised:
            read_sample(raw)
        assert raised.value.field == field


class TestOmitted:
    @staticmethod
    def fields(body: dict[str, Any], dialect: Any = None) -> dict[str, str]:
        chosen = dialect or ChatDialect()
        found = omitted(json.dumps(body).encode(), lambda raw: chosen.decode(raw, {}).canonical)
        return {one.field: one.why for one in found}

    def test_a_body_of_shaping_fields_has_all_of_them_in_the_key(self) -> None:
        assert self.fields({**CHAT, "num_ctx": 5, "tools": []}) == {}

    def test_transport_fields_are_named_with_why(self) -> None:
        found = self.fields({**CHAT, "stream": True, "user": "u", "cache": {"ttl": 5}})
        assert found["stream"] == "how the answer is delivered, not what it says"
        assert found["cache"] == "a wish to this cache; not sent upstream"
        assert found.keys() == {"stream", "user", "cache"}

    def test_cache_marks_are_found_wherever_they_stand(self) -> None:
        mark = {"type": "ephemeral"}
        block = {"type": "text", "text": "x", "cache_control": mark}
        body = {
            "model": "m",
            "max_tokens": 5,
            "system": [block],
            "messages": [{"role": "user", "content": [block, block]}],
            "tools": [{"name": "f", "input_schema": {"cache_control": mark}}],
        }
        assert self.fields(body, MessagesDialect()).keys() == {
            "system[].cache_control",
            "messages[].content[].cache_control",
        }

    def test_a_null_that_means_absent_is_told_as_such(self) -> None:
        assert self.fields({**CHAT, "stop": None}) == {
            "stop": "null means the same as leaving it away"
        }

    def test_other_fields_are_told_to_have_no_influence(self) -> None:
        found = omitted(b'{"a":1,"b":2}', lambda raw: raw[:4] if b"a" in raw else b"")
        assert [(one.field, one.why) for one in found] == [("b", "has no influence on the answer")]


class TestExplain:
    def test_the_key_is_the_one_that_the_proxy_uses(self) -> None:
        body = {**CHAT, "stream": True}
        found = told(
            body,
            {"openai-project": "p", "trivet-version": "docs=3", "user-agent": "x"},
            versions={"prompt": "7"},
        )
        raw = json.dumps(body).encode()
        parts = KeyParts(
            api=Api.CHAT,
            upstream="main",
            base_url="http://upstream/v1/chat/completions",
            credential=b"c" * 32,
            headers=(("openai-project", "p"),),
            scope=Scope("acme"),
            policy_versions=(("prompt", "7"),),
            request_versions=(("docs", "3"),),
            query="",
            canonical=ChatDialect().decode(raw, {}).canonical,
        )
        assert found.keys == (exact_key(parts).hex(),)
        assert (found.policy_versions, found.request_versions) == ({"prompt": "7"}, {"docs": "3"})
        assert found.labels == ("version:docs=3", "version:prompt=7")
        assert found.headers_left_out == ("trivet-version", "user-agent")
        assert "header openai-project" in dict(found.key_fields)
        assert [one.field for one in found.left_out] == ["stream"]

    def test_every_header_in_the_key_is_named(self) -> None:
        headers = {
            "authorization": "Bearer sk",
            "x-user": "ann",
            "x-tenant-id": "alice",
            "x-request-id": "1",
        }
        found = told(CHAT, headers)
        fields = dict(found.key_fields)
        assert fields["header x-tenant-id"].startswith("sha256:")
        assert fields["credential scope"].endswith(" (authorization, x-user)")
        assert found.headers_left_out == ("x-request-id",)

    def test_headers_that_do_not_go_upstream_are_not_in_the_credential_scope(self) -> None:
        asked = sample(CHAT, headers={"authorization": "Bearer tvt_1", "x-api-key": "sk"})
        own = explain(asked, ChatDialect().decode, caller(), TO)
        assert dict(own.key_fields)["credential scope"].endswith(" (x-api-key)")
        to = Destination("main", "http://u", b"configured")
        configured = explain(asked, ChatDialect().decode, caller(), to)
        assert "(" not in dict(configured.key_fields)["credential scope"]
        assert configured.headers_left_out == ("authorization", "x-api-key")

    def test_a_tenant_that_an_operator_chose_has_no_credential(self) -> None:
        who = replace(caller(), how="chosen")
        found = explain(sample(CHAT, headers={"x-user": "a"}), ChatDialect().decode, who, TO)
        assert "(" not in dict(found.key_fields)["credential scope"]
        assert found.headers_left_out == ("x-user",)

    def test_each_embeddings_item_has_a_key(self) -> None:
        body = {"model": "text-embedding-3", "input": ["a", "b", "a"]}
        found = explain(sample(body), ChatDialect().decode, caller(), TO)
        assert len(found.keys) == 3
        assert found.keys[0] == found.keys[2] != found.keys[1]
        assert embeddings.decode(json.dumps(body).encode(), {}).request.model == found.model

    def test_an_upstreams_own_credential_is_in_the_key(self) -> None:
        asked = sample(CHAT)
        keys = [
            explain(
                asked, ChatDialect().decode, caller(), Destination("main", "http://u", own)
            ).keys
            for own in (None, b"a", b"b")
        ]
        assert len(set(keys)) == 3

    def test_an_eligible_request_says_what_happens(self) -> None:
        found = told(CHAT, exact={"ttl": 60, "stale_if_error": 5, "tool_calls": "never"})
        exact, semantic, prefix = found.tiers
        assert exact.open
        assert exact.detail == (
            "looks up; keeps a complete answer for 60 s; stands in for errors 5 s longer; "
            "does not keep tool calls"
        )
        assert (semantic.open, semantic.reason) == (False, "off")
        assert prefix.open
        assert found.ttl == 60

    def test_directives_are_explained(self) -> None:
        found = told(CHAT, {"cache-control": "no-cache, max-age=5, min-fresh=7, only-if-cached"})
        assert found.tiers[0].detail == (
            "does not look up (no-cache); keeps a complete answer for 86400 s; takes answers of "
            "at most 5 s; takes answers that stay fresh for 7 s; a miss is answered 504 "
            "(only-if-cached)"
        )

    def test_a_pool_and_a_ttl_of_zero_are_explained(self) -> None:
        found = told({**CHAT, "temperature": 1}, exact={"sampled": "pool", "k": 3, "ttl": 0})
        assert found.tiers[0].detail == (
            "looks up; keeps nothing; draws among 3 answers once it has them"
        )
        assert found.ttl is None

    @pytest.mark.parametrize(
        ("body", "reason"),
        [({"temperature": 1}, "sampled"), ({"web_search_options": {}}, "live-search")],
    )
    def test_a_bypass_says_why(self, body: dict[str, Any], reason: str) -> None:
        found = told({**CHAT, **body})
        assert (found.tiers[0].open, found.tiers[0].reason, found.ttl) == (False, reason, None)
        assert found.tiers[0].detail

    def test_a_bypass_with_only_if_cached_says_504(self) -> None:
        found = told({**CHAT, "temperature": 1}, {"cache-control": "only-if-cached"})
        assert found.tiers[0].detail.endswith("only-if-cached: answered 504")

    def test_the_matching_rules_are_told(self) -> None:
        rules = [{"match": {"route": "docs"}, "ttl": 5}, {"match": {}, "ttl": 7}]
        found = told(CHAT, {"trivet-route": "docs"}, exact={"rules": rules})
        assert (found.rules, found.settings["ttl"], found.route) == ((0, 1), 5, "docs")

    def test_the_user_is_told_where_the_policy_scopes_by_it(self) -> None:
        found = told({**CHAT, "user": "u1"}, exact={"user_scope": True})
        assert found.user == "body=u1"
        assert ("user", "body=u1") in found.key_fields

    def test_prompt_text_and_credentials_are_not_shown(self) -> None:
        body = {**CHAT, "messages": [{"role": "user", "content": "private words " * 9}]}
        shown = json.dumps(told(body, {"authorization": "Bearer secret"}).as_json())
        assert "private words" not in shown
        assert "secret" not in shown

    def test_what_the_upstream_would_refuse_is_refused(self) -> None:
        with pytest.raises(RequestError):
            told({"model": 5})

    def test_nobody_is_turned_away(self) -> None:
        found = explain(sample(CHAT), ChatDialect().decode, None, TO)
        assert (found.tenant, found.keys, found.tiers) == (None, (), ())
        json.dumps(found.as_json())


class TestText:
    def test_the_verdict_comes_first(self) -> None:
        lines = render(told({**CHAT, "temperature": 1})).splitlines()
        assert lines[0].startswith("Cached    no (sampled): the answer is drawn at random")
        assert "Tenant    acme (by API key)" in lines

    def test_a_request_that_asks_nothing_is_told_as_that(self) -> None:
        line = render(told({**CHAT, "messages": []})).splitlines()[0]
        assert line == "Cached    no (no-messages): the request asks nothing (messages: [])"

    def test_every_part_is_there(self) -> None:
        found = told(
            {**CHAT, "user": "u1", "stream": True},
            {"trivet-route": "docs", "trivet-version": "docs=3", "accept": "*/*"},
            versions={"prompt": "7"},
            exact={"rules": [{"match": {}, "key_headers": ["X-A"]}]},
        )
        text = render(found)
        for line in (
            "Route     docs",
            "Delivery  stream",
            "Versions  prompt=7 (policy), docs=3 (request)",
            f"Key       {found.keys[0]}",
            "semantic  closed  off: the policy leaves the tier off (semantic.mode)",
            "body messages          1 item, 32 bytes",
            "accept, trivet-route, trivet-version",
            "rules that match  exact.rules[0]",
            "key_headers       X-A",
            "enabled           true",
            "version:docs=3",
        ):
            assert line in text, text

    def test_what_the_policy_leaves_out_is_told_by_itself(self) -> None:
        headers = {"accept": "*/*", "x-nonce": "17", "x-flag": "on"}
        found = told(CHAT, headers, exact={"ignore_headers": ["X-Nonce"]})
        assert found.headers_left_out == ("accept",)
        assert found.headers_ignored == ("x-nonce",)
        assert found.keys == told(CHAT, {"x-flag": "on"}).keys
        assert explanation_of(found.as_json()) == found
        title = "Left out because the policy says so (exact.ignore_headers)"
        assert f"{title}\n{'-' * 72}\nx-nonce\n" in render(found)
        assert title not in render(told(CHAT, headers))

    def test_a_guess_is_said_to_be_one(self) -> None:
        found = explain(sample(CHAT), ChatDialect().decode, caller(), TO)
        assert "API       chat (guessed from the body), /v1/chat/completions" in render(found)

    def test_nothing_left_out_is_said(self) -> None:
        assert "nothing: every field of the body is in it" in render(told(CHAT))

    def test_many_headers_are_wrapped(self) -> None:
        headers = {f"x-stainless-number-{number}": "1" for number in range(12)}
        assert max(len(line) for line in render(told(CHAT, headers)).splitlines()) < 100

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        assert "\x1b" not in render(told({**CHAT, "model": "\x1b[2J"}))

    def test_401_says_what_to_do(self) -> None:
        text = render(explain(sample(CHAT), ChatDialect().decode, None, TO))
        assert text.startswith("401: no tenant has this credential")
