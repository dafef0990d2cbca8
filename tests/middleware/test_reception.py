"""From arrival to the tiers: who asks comes first, then what, whether, and which upstream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi_driver import (
    JSON,
    Exchange,
    Rig,
    Script,
    Scripted,
    chat_body,
    exchange,
    json_script,
    request,
)
from openai_bodies import completion

from trivet.errors import UpstreamError
from trivet.messages import Api
from trivet.middleware.http_client.errors import Lost
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import ExactPolicy, Limits, TenantPolicy

CHAT = "/v1/chat/completions"


def acme(**fields: Any) -> TenantPolicy:
    return TenantPolicy(tenant="acme", **fields)


def in_flight(rig: Rig, tenant: str = "acme") -> int:
    return rig.reception._admission.requests(tenant)


class TestWhoAsks:
    async def test_an_unknown_key_is_a_401_before_the_body_is_read(self) -> None:
        rig = Rig(policies=[acme()])
        asked = exchange("POST", CHAT, [b"x", b"y"], ("authorization", "Bearer sk-nobody"))
        reply = await rig.end(rig.start(asked))
        assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")
        assert reply.header("www-authenticate") == "Bearer"
        assert len(asked.body) == 2
        assert (rig.done[0].tenant, rig.done[0].outcome) == ("", "error")
        assert rig.done[0].api is Api.CHAT

    async def test_a_cached_answer_is_not_for_who_is_unknown(self) -> None:
        rig = Rig(json_script(completion()), policies=[acme()])
        await rig.chat()
        assert (await rig.ask(CHAT, chat_body(), key="sk-other")).status == 401

    async def test_two_api_keys_are_refused(self) -> None:
        rig = Rig()
        reply = await rig.chat("hi", ("authorization", "Bearer sk-b"))
        assert (reply.status, reply.json["error"]["param"]) == (400, "authorization")

    async def test_an_own_key_opens_the_door_and_goes_no_further(self) -> None:
        from types import MappingProxyType

        from trivet.policies.keygen import new_key
        from trivet.policies.tenants import PolicySet, TenantDirectory

        made = new_key()
        policies = PolicySet(
            "1",
            True,
            MappingProxyType({"acme": acme()}),
            MappingProxyType({made.sha256: acme()}),
            MappingProxyType({}),
        )
        rig = Rig(json_script(completion()))
        rig.reception._identify = TenantDirectory(policies, b"s").identify
        reply = await rig.ask(CHAT, chat_body(), ("x-api-key", "sk-upstream"), key=made.key)
        assert reply.status == 200
        sent = rig.upstream.sent[0]
        assert made.key not in str(sent.headers)
        assert sent.header("x-api-key") == b"sk-upstream"


class TestWhat:
    @pytest.mark.parametrize(
        ("method", "path", "allow"),
        [
            ("PUT", CHAT, "GET, POST"),
            ("GET", "/v1/embeddings", "POST"),
            ("GET", "/v1/messages", "POST"),
            ("HEAD", "/v1/responses", "POST"),
        ],
    )
    async def test_a_wrong_method_is_a_405_that_says_what_is_allowed(
        self, method: str, path: str, allow: str
    ) -> None:
        reply = await Rig().ask(path, method=method)
        assert (reply.status, reply.header("allow")) == (405, allow)

    async def test_a_body_over_the_limit_is_a_413_and_frees_its_place(self) -> None:
        rig = Rig(max_body=10)
        declared = await rig.ask(CHAT, b"x" * 11)
        asked = exchange("POST", CHAT, [b"x" * 6, b"x" * 6], ("authorization", "Bearer sk-acme"))
        sent = await rig.end(rig.start(asked))
        assert (declared.status, sent.status) == (413, 413)
        assert rig.reception._admission._by_tenant == {}

    async def test_a_mistake_in_the_body_is_told_and_frees_its_place(self) -> None:
        rig = Rig()
        reply = await rig.ask(CHAT, b'{"messages":[]}')
        assert (reply.status, reply.json["error"]["param"]) == (400, "model")
        assert rig.done[0].request_bytes == 15
        assert rig.reception._admission._by_tenant == {}

    async def test_a_body_that_stalls_is_a_408_and_frees_its_place(self) -> None:
        rig = Rig(silence=0.02)
        asked = exchange("POST", CHAT, b"", ("authorization", "Bearer sk-acme"))
        asked.body.clear()
        reply = await rig.end(rig.start(asked))
        assert reply.status == 408
        assert rig.reception._admission._by_tenant == {}

    async def test_a_caller_who_leaves_within_the_body_is_nobodys_error(self) -> None:
        rig = Rig()
        asked = exchange("POST", CHAT, [b"{", b"}"], ("authorization", "Bearer sk-acme"))
        asked.leave()
        await rig.end(rig.start(asked))
        assert (asked.sent, rig.done[0].reason, rig.done[0].status) == ([], "client-gone", 0)
        assert rig.reception._admission._by_tenant == {}

    @pytest.mark.parametrize("path", ["/v1/messages", "/v1/models"])
    async def test_who_speaks_anthropic_is_answered_so(self, path: str) -> None:
        reply = await Rig(policies=[acme()]).ask(
            path, None, ("anthropic-version", "2023-06-01"), key="sk-nobody"
        )
        assert reply.json["type"] == "error"


class TestKey:
    """What two requests must have in common, seen from outside."""

    @staticmethod
    async def shares(
        one: tuple[tuple[str, str], ...], two: tuple[tuple[str, str], ...], **fields: Any
    ) -> bool:
        rig = Rig(json_script(completion()), **fields)
        await rig.chat("hi", *one)
        return "hit" in (await rig.chat("hi", *two)).exact

    async def test_every_version_that_a_caller_names_counts_in_one_header_or_two(self) -> None:
        both = (("trivet-version", "a=1"), ("trivet-version", "b=2"))
        assert await self.shares(both, (("trivet-version", "a=1,b=2"),))
        assert not await self.shares(both, (("trivet-version", "b=2"),))

    async def test_no_directive_is_lost_in_a_second_header(self) -> None:
        both = (("cache-control", "no-store"), ("cache-control", "max-age=60"))
        assert not await self.shares(both, ())

    async def test_a_header_that_did_not_go_on_does_not_count(self) -> None:
        with_beta = (("openai-beta", "x"),)
        for_this_hop = (("openai-beta", "x"), ("connection", "openai-beta"))
        assert not await self.shares(for_this_hop, with_beta)
        assert await self.shares(for_this_hop, ())

    async def test_a_query_counts(self) -> None:
        rig = Rig(json_script(completion()))
        await rig.ask(CHAT, chat_body(), query="api-version=1")
        assert rig.upstream.sent[0].target == CHAT + "?api-version=1"
        reply = await rig.ask(CHAT, chat_body(), query="api-version=2")
        assert reply.exact["fwd"] == "miss"

    async def test_the_path_that_is_asked_counts(self) -> None:
        rig = Rig(json_script(completion()))
        await rig.ask(CHAT, chat_body())
        reply = await rig.ask("/chat/completions", chat_body())
        assert reply.exact["fwd"] == "miss"
        assert [sent.target for sent in rig.upstream.sent] == [CHAT, "/chat/completions"]

    async def test_a_users_answers_are_his_where_the_policy_says(self) -> None:
        policy = acme(exact=ExactPolicy(user_scope=True, user_from="header:X-User"))
        one, two = (("x-user", "a"),), (("x-user", "b"),)
        assert await self.shares(one, one, policies=[policy])
        assert not await self.shares(one, two, policies=[policy])
        assert not await self.shares(one, (*one, *two), policies=[policy])

    async def test_a_configured_credential_takes_the_callers_place(self) -> None:
        main = UpstreamConfig(name="main", base_url="http://u", credential_env="KEY")
        rig = Rig(json_script(completion()), upstreams=[main], env={"KEY": "sk-up"})
        await rig.chat()
        assert rig.upstream.sent[0].header("authorization") == b"Bearer sk-up"
        assert (await rig.chat()).exact["hit"] is True


class TestPrefix:
    UPSTREAMS = (
        UpstreamConfig(name="main", base_url="http://u"),
        UpstreamConfig(name="azure", base_url="http://a", prefix="/azure"),
    )

    async def test_a_prefix_names_the_upstream_and_is_cut_off(self) -> None:
        rig = Rig(json_script(completion()), upstreams=self.UPSTREAMS)
        await rig.ask("/azure" + CHAT, chat_body(), query="a=b")
        sent = rig.upstream.sent[0]
        assert (sent.upstream, sent.target) == ("azure", CHAT + "?a=b")
        await rig.ask("/azure/v1/models", method="GET")
        assert (rig.upstream.sent[1].upstream, rig.upstream.sent[1].target) == (
            "azure",
            "/v1/models",
        )

    async def test_an_escaped_prefix_is_another_path(self) -> None:
        rig = Rig(json_script({}), upstreams=self.UPSTREAMS)
        await rig.ask("/%61zure/v1/models", method="GET")
        sent = rig.upstream.sent[0]
        assert (sent.upstream, sent.target) == ("main", "/%61zure/v1/models")

    async def test_upstreams_share_no_answer(self) -> None:
        rig = Rig(json_script(completion()), upstreams=self.UPSTREAMS)
        await rig.ask(CHAT, chat_body())
        assert (await rig.ask("/azure" + CHAT, chat_body())).exact["fwd"] == "miss"


class TestPassThrough:
    async def test_the_answer_passes_by_untouched_with_its_length_and_cookies(self) -> None:
        headers = [
            (b"Content-Type", b"audio/mpeg"),
            (b"Content-Length", b"4"),
            (b"Set-Cookie", b"a=1"),
            (b"Set-Cookie", b"b=2"),
            (b"Transfer-Encoding", b"identity"),
            (b"Content-Encoding", b"br"),
        ]
        rig = Rig(Script(b"ab", b"cd", headers=headers))
        reply = await rig.ask("/v1/files/1", None, ("accept-encoding", "br"), method="GET")
        assert (reply.content, reply.complete) == (b"abcd", True)
        assert [item for item in reply.headers if item[0] != b"date"] == [
            (b"content-type", b"audio/mpeg"),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
            (b"content-encoding", b"br"),
            (b"content-length", b"4"),
            (b"cache-status", b"trivet-exact; fwd=bypass; detail=passthrough"),
        ]
        sent = rig.upstream.sent[0]
        assert (sent.method, sent.body, sent.header("accept-encoding")) == ("GET", b"", b"br")
        assert rig.upstream.given[0].closed == 1
        assert (rig.done[0].api, rig.done[0].outcome) == ("passthrough", "bypass")
        assert rig.done[0].upstream_s > 0

    @pytest.mark.parametrize("status", [204, 304])
    async def test_a_status_without_a_body_has_no_length(self, status: int) -> None:
        rig = Rig(Script(status=status, headers=[(b"content-length", b"9"), (b"etag", b"x")]))
        reply = await rig.ask("/v1/x", method="GET")
        assert (reply.status, reply.content, reply.complete) == (status, b"", True)
        assert (reply.header("content-length"), reply.header("etag")) == (None, "x")

    async def test_a_head_request_keeps_the_length(self) -> None:
        rig = Rig(Script(headers=[(b"content-length", b"9")]))
        assert (await rig.ask("/v1/x", method="HEAD")).header("content-length") == "9"

    async def test_a_length_that_is_no_number_is_dropped(self) -> None:
        rig = Rig(Script(b"x", headers=[(b"content-length", b"1, 1")]))
        assert (await rig.ask("/v1/x", method="GET")).header("content-length") is None

    async def test_a_body_goes_up_in_pieces_with_its_length(self) -> None:
        rig = Rig(json_script({}))
        asked = exchange(
            "POST", "/v1/audio", [b"ab", b"cd"], ("content-length", "4"), ("expect", "100-continue")
        )
        await rig.end(rig.start(asked))
        sent = rig.upstream.sent[0]
        assert (sent.body, sent.header("content-length")) == (b"abcd", b"4")
        assert sent.header("expect") is None

    async def test_beside_a_transfer_coding_no_length_is_believed(self) -> None:
        rig = Rig(json_script({}))
        framing = (("content-length", "1"), ("transfer-encoding", "chunked"))
        await rig.end(rig.start(exchange("POST", "/v1/audio", [b"ab", b"cd"], *framing)))
        sent = rig.upstream.sent[0]
        assert sent.body == b"abcd"
        assert sent.header("content-length") is None
        assert sent.header("transfer-encoding") is None

    async def test_reading_what_the_provider_stored_passes_through(self) -> None:
        rig = Rig(json_script({"data": []}))
        assert (await rig.ask(CHAT, method="GET")).exact["detail"] == "passthrough"

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/../admin",
            "/v1/%2e%2e/admin",
            "/..",
            "/v1/.",
            "/v1/..%2fadmin",
            "/v1\\..\\admin",
            "/v1/models/..;/files",
            "/v1/models/..;a=b/files",
            "/v1/models/%2e%2e%3b/files",
            "/v1/models/.;/files",
            "/v1/models/..;",
        ],
    )
    async def test_a_path_cannot_climb_out_of_the_upstreams(self, path: str) -> None:
        rig = Rig(json_script({}))
        reply = await rig.ask(path, method="GET")
        assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_path")
        assert rig.upstream.sent == []

    @pytest.mark.parametrize(
        "path", ["/v1/.well-known", "/v1/a..b", "/v1/...", "/v1/a%20b", "/v1/a;v=1.."]
    )
    async def test_dots_within_a_segment_are_text(self, path: str) -> None:
        assert (await Rig(json_script({})).ask(path, method="GET")).status == 200

    @pytest.mark.parametrize(
        ("fields", "method", "path", "status"),
        [
            ({}, "POST", "/v1/audio", 200),
            ({"models": ("m",)}, "POST", "/v1/audio", 403),
            ({"models": ("m",)}, "DELETE", "/v1/files/1", 403),
            ({"models": ("m",)}, "GET", "/v1/models", 200),
            ({"models": ("m",)}, "POST", "/v1/messages/count_tokens", 200),
            ({"models": ("m",)}, "POST", "/v1/messages%2Fcount_tokens", 403),
            ({"models": ("m",)}, "POST", "/v1/chat%2Fcompletions", 403),
            ({"models": ("m",), "passthrough": True}, "POST", "/v1/audio", 200),
            ({"passthrough": False}, "POST", "/v1/audio", 403),
            ({"passthrough": False}, "POST", "/v1/messages/count_tokens", 403),
            ({"passthrough": False}, "HEAD", "/v1/models", 200),
            ({"upstreams": ()}, "GET", "/v1/models", 403),
        ],
    )
    async def test_writing_where_models_are_not_checked_is_closed_where_they_are_limited(
        self, fields: dict[str, Any], method: str, path: str, status: int
    ) -> None:
        rig = Rig(json_script({}), policies=[acme(**fields)])
        assert (await rig.ask(path, b"{}", method=method)).status == status

    async def test_an_upstream_that_cannot_be_asked_is_told(self) -> None:
        reply = await Rig(UpstreamError("upstream-refused", "no.", 502)).ask("/v1/x", method="GET")
        assert (reply.status, reply.json["error"]["code"]) == (502, "upstream-refused")
        assert reply.exact == {"fwd": "bypass", "detail": "upstream-refused"}

    async def test_an_answer_that_breaks_off_breaks_off_for_the_caller(self) -> None:
        rig = Rig(Script(b"ab", Lost(begun=True), headers=[(b"content-length", b"4")]))
        reply = await rig.ask("/v1/x", method="GET")
        assert (reply.content, reply.complete) == (b"ab", False)

    async def test_it_counts_among_the_requests_in_flight(self) -> None:
        gate = asyncio.Event()
        rig = Rig(Script(gate, b"x"), policies=[acme(limits=Limits(requests_in_flight=1))])
        asked = rig.start(request("/v1/x", method="GET"))
        await asked.until(lambda: bool(rig.upstream.given))
        assert (await rig.ask("/v1/x", method="GET")).status == 429
        gate.set()
        assert (await rig.end(asked)).complete
        assert in_flight(rig) == 0

    @pytest.mark.parametrize("body", [b"", b"ab"])
    async def test_a_caller_who_leaves_while_the_upstream_thinks_ends_the_call(
        self, body: bytes
    ) -> None:
        async def never(_: Any) -> Script:
            await asyncio.Event().wait()
            raise AssertionError

        rig = Rig(never)
        asked = rig.start(request("/v1/x", body, method="POST"))
        await asked.until(lambda: len(rig.upstream.sent) == 1)
        asked.leave()
        await rig.end(asked)
        assert rig.done[0].reason == "client-gone"
        assert in_flight(rig) == 0

    async def test_a_caller_who_leaves_in_mid_answer_ends_the_call(self) -> None:
        rig = Rig(Script(b"x", asyncio.Event(), headers=[JSON]))
        asked = rig.start(request("/v1/x", method="GET"))
        await asked.until(lambda: asked.content == b"x")
        asked.leave()
        await rig.end(asked)
        assert rig.upstream.given[0].closed == 1
        assert rig.done[0].reason == "client-gone"

    async def test_a_caller_who_leaves_within_his_body_ends_the_call(self) -> None:
        rig = Rig(json_script({}))
        asked: Exchange = exchange("POST", "/v1/x", [b"a", b"b"], ("content-length", "2"))
        asked.leave()
        await rig.end(rig.start(asked))
        assert rig.done[0].reason == "client-gone"

    async def test_a_body_that_stalls_is_a_408(self) -> None:
        rig = Rig(json_script({}), silence=0.02)
        asked = exchange("POST", "/v1/x", b"", ("content-length", "2"))
        asked.body.clear()
        assert (await rig.end(rig.start(asked))).status == 408


class TestLimits:
    async def test_bytes_in_flight_are_freed_with_the_request(self) -> None:
        rig = Rig(json_script(completion()), policies=[acme(limits=Limits(bytes_in_flight=200))])
        big = chat_body("x" * 300)
        assert (await rig.ask(CHAT, big)).status == 429
        for _ in range(5):
            assert (await rig.chat()).status == 200
        assert rig.reception._admission._by_tenant == {}

    @pytest.mark.parametrize("stream", [False, True])
    async def test_whatever_happens_no_place_is_lost(self, stream: bool) -> None:
        failures: list[Scripted] = [
            UpstreamError("upstream-refused", "no.", 502),
            Script(b"x", Lost(begun=True)),
            json_script({}, status=500),
            json_script(completion()),
        ]
        for failure in failures:
            rig = Rig(failure, policies=[acme(limits=Limits(requests_in_flight=1))])
            for number in range(3):
                await rig.chat(f"text {number}", stream=stream)
            assert rig.reception._admission._by_tenant == {}


class TestHidden:
    async def test_a_gateways_headers_stay_here(self) -> None:
        rig = Rig(json_script(completion()), hidden=frozenset((b"x-tenant",)))
        await rig.chat("hi", ("x-tenant", "acme"), ("trivet-tag", "a"))
        names = {name for name, _ in rig.upstream.sent[0].headers}
        assert not names & {b"x-tenant", b"trivet-tag"}
