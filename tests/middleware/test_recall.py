"""What is recalled about a request is what the usual path would decide about it again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from asgi_driver import Exchange, Rig, chat_body, exchange, json_script, request
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_bodies import completion

from trivet.exact.entry import Entry
from trivet.exact.key import key_headers, keyed
from trivet.exact.tier import Miss
from trivet.messages import ExactKey, Request
from trivet.middleware.arrival import recall as recall_module
from trivet.middleware.arrival.headers import RawHeaders, deciding
from trivet.middleware.arrival.recall import Known, Recall
from trivet.middleware.call import Call, Note, Reply, Whole
from trivet.middleware.pipeline import CachePipeline
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies import header_names
from trivet.policies.eligibility import Eligible
from trivet.policies.header_names import is_identity
from trivet.policies.model import ExactPolicy, ExactRule, Match, TenantPolicy

CHAT = "/v1/chat/completions"
STREAM = {"stream": True}


def recalled(rig: Rig, asked: Exchange) -> Known | None:
    """What is known about a request, without asking it."""
    scope = asked.scope
    headers: RawHeaders = scope["headers"]
    caller = rig.reception._identify(headers, "127.0.0.1")
    assert caller is not None
    query = scope["query_string"].decode()
    target = scope["path"] + (f"?{query}" if query else "")
    return rig.reception._recall.find(caller, target, headers, b"".join(asked.body))


def chat(text: str = "hi", *headers: tuple[str, str], **fields: Any) -> Exchange:
    return request(CHAT, chat_body(text, **fields), *headers)


async def rig_that_knows(*headers: tuple[str, str], **fields: Any) -> Rig:
    """A rig that has answered `chat("hi", *headers)`."""
    rig = Rig(json_script(completion()), **fields)
    await rig.end(rig.start(chat("hi", *headers)))
    return rig


class TestKept:
    async def test_a_request_whose_answer_was_stored_is_known(self) -> None:
        rig = await rig_that_knows()
        known = recalled(rig, chat())
        assert known is not None
        assert (known.question.tenant, known.upstream) == (known.caller.tenant, "main")
        assert known.request.model == "m"

    async def test_a_request_that_was_a_hit_is_known(self) -> None:
        rig = await rig_that_knows()
        rig.reception._recall = Recall()
        await rig.chat()
        assert recalled(rig, chat()) is not None

    async def test_what_neither_text_nor_head_shares_is_not_known(self) -> None:
        rig = await rig_that_knows()
        assert recalled(rig, chat("ho")) is None
        assert recalled(rig, chat("hi", ("trivet-version", "a=1"))) is None
        assert recalled(rig, request(CHAT, chat_body(), query="a=b")) is None
        assert recalled(rig, request("/chat/completions", chat_body())) is None
        assert recalled(rig, request(CHAT, chat_body(), key="sk-other")) is None

    @pytest.mark.parametrize(
        "name",
        [
            "anthropic-beta",
            "cache-control",
            "connection",
            "cookie",
            "pragma",
            "trivet-route",
            "x-anything",
            "x-forwarded-host",
            "x-tenant-id",
        ],
    )
    async def test_every_other_header_counts(self, name: str) -> None:
        rig = await rig_that_knows()
        assert recalled(rig, chat("hi", (name, "x"))) is None

    async def test_tracing_and_client_headers_may_differ(self) -> None:
        rig = await rig_that_knows(("traceparent", "00-1"), ("x-request-id", "1"))
        assert recalled(rig, chat("hi", ("traceparent", "00-2"), ("user-agent", "x"))) is not None

    async def test_the_bytes_of_the_request_are_not_kept(self) -> None:
        rig = await rig_that_knows()
        known = recalled(rig, chat())
        assert known is not None
        assert (known.request.forward, known.request.canonical) == (b"", b"")
        caller = known.caller
        entry = await rig.store.get(caller.tenant, known.question.key)
        assert entry is not None
        assert known.question.canonical is entry.canonical

    @pytest.mark.parametrize(
        "headers",
        [
            (("cache-control", "no-cache"),),
            (("cache-control", "no-store"),),
            (("x-pad", "x" * 9000),),
            tuple((f"x-{number}", "") for number in range(60)),
        ],
    )
    async def test_what_is_not_looked_up_or_has_a_long_head_is_not_kept(
        self, headers: tuple[tuple[str, str], ...]
    ) -> None:
        rig = await rig_that_knows(*headers)
        assert recalled(rig, chat("hi", *headers)) is None
        assert rig.reception._recall._known == {}

    async def test_an_answer_that_was_not_stored_leaves_nothing(self) -> None:
        rig = Rig(json_script(completion(), status=500))
        await rig.chat()
        assert rig.reception._recall._known == {}

    async def test_pooled_answers_are_drawn_anew(self) -> None:
        policy = TenantPolicy(tenant="acme", exact=ExactPolicy(sampled="pool", k=2))
        rig = Rig(json_script(completion()), policies=[policy])
        for _ in range(4):
            await rig.chat(temperature=1)
        assert rig.reception._recall._known == {}

    async def test_embeddings_are_not_kept(self) -> None:
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        answer = {"object": "list", "data": [vector], "model": "e", "usage": {"prompt_tokens": 1}}
        rig = Rig(json_script(answer))
        body = {"model": "e", "input": "x"}
        await rig.ask("/v1/embeddings", body)
        assert (await rig.ask("/v1/embeddings", body)).exact["hit"] is True
        assert rig.reception._recall._known == {}

    async def test_a_body_that_is_too_long_is_not_kept(self) -> None:
        rig = Rig(json_script(completion()))
        text = "x" * (64 << 10)
        await rig.chat(text)
        assert (await rig.chat(text)).exact["hit"] is True
        assert rig.reception._recall._known == {}

    @pytest.mark.parametrize(
        "exact",
        [
            ExactPolicy(key_headers=("User-Agent",)),
            ExactPolicy(user_scope=True, user_from="header:X-Request-Id"),
            ExactPolicy(rules=(ExactRule(match=Match(model="m*"), key_headers=("Baggage",)),)),
        ],
    )
    async def test_a_policy_that_lets_a_tracing_header_decide_is_decided_afresh(
        self, exact: ExactPolicy
    ) -> None:
        policy = TenantPolicy(tenant="acme", exact=exact)
        rig = await rig_that_knows(("x-request-id", "u1"), policies=[policy])
        assert (await rig.chat("hi", ("x-request-id", "u1"))).exact["hit"] is True
        assert rig.reception._recall._known == {}


@given(st.sampled_from(sorted(header_names.TRANSPORT)) | st.binary(max_size=8))
def test_what_is_not_compared_is_in_no_key_and_names_nobody(name: bytes) -> None:
    compared = deciding([(name, b"x")]) != ()
    assert compared or (key_headers([(name, b"x")]) == () and not is_identity(name))


class TestCallers:
    async def test_equal_callers_of_two_policy_sets_are_two(self) -> None:
        rig = await rig_that_knows()
        caller = rig.reception._identify(chat().scope["headers"], None)
        assert caller is not None
        asked = chat()
        found = rig.reception._recall.find(
            replace(caller), CHAT, asked.scope["headers"], asked.body[0]
        )
        assert found is None

    async def test_the_caller_lives_as_long_as_what_it_asked_is_known(self) -> None:
        rig = await rig_that_knows()
        (known,) = rig.reception._recall._known.values()
        assert [asked[0] for asked in rig.reception._recall._known] == [id(known.caller)]


class TestBounds:
    async def test_the_oldest_go_when_there_are_too_many(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recall_module, "_MOST", 2)
        rig = Rig(json_script(completion()))
        for text in ("a", "b"):
            await rig.chat(text)
        assert recalled(rig, chat("a")) is not None  # Used, so it outlives b.
        await rig.chat("c")
        assert [recalled(rig, chat(text)) is not None for text in "abc"] == [True, False, True]

    async def test_the_oldest_go_when_they_are_too_large(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recall_module, "_MOST_BYTES", 20_000)
        rig = Rig(json_script(completion()))
        for number in range(20):
            await rig.chat(f"{number}" + "x" * 4000)
        memory = rig.reception._recall
        assert 1 < len(memory._known) < 5
        sizes = [one.size for one in memory._known.values()]
        assert memory._bytes == sum(sizes) <= 20_000
        assert min(sizes) > 4000 + sum(160 for _ in chat().scope["headers"])

    async def test_what_is_forgotten_weighs_nothing(self) -> None:
        rig = await rig_that_knows()
        asked = chat()
        caller = rig.reception._identify(asked.scope["headers"], None)
        assert caller is not None
        for _ in range(2):
            rig.reception._recall.forget(caller, CHAT, asked.scope["headers"], asked.body[0])
        assert (rig.reception._recall._known, rig.reception._recall._bytes) == ({}, 0)

    async def test_what_has_no_answer_any_more_is_forgotten(self) -> None:
        rig = await rig_that_knows()
        await rig.store.purge(f"{_only(rig).caller.tenant}", None, 1e12)
        rig.upstream.scripts[:] = [json_script(completion(), status=500)]
        await rig.chat()
        assert rig.reception._recall._known == {}

    async def test_an_entry_that_answers_another_request_is_not_kept(self) -> None:
        rig = await rig_that_knows()
        known = _only(rig)
        entry = await rig.store.get(known.caller.tenant, known.question.key)
        assert entry is not None
        seen = Deciding()
        rig.reception._pipeline = cast(CachePipeline, seen)
        rig.reception._recall = Recall()
        await rig.chat("other")
        (call,) = seen.calls
        rig.reception._recall = Recall()
        arrival = (known.caller, CHAT, chat().scope["headers"], b"{}")
        rig.reception._recall.keep(arrival, call, entry)
        assert rig.reception._recall._known == {}


def _values(memory: Recall) -> Iterable[Known]:
    return memory._known.values()


def _only(rig: Rig) -> Known:
    (known,) = rig.reception._recall._known.values()
    return known


class Deciding:
    """Stands where the pipeline does, and notes what was recalled and what was decided."""

    def __init__(self) -> None:
        self.recalled: list[Known] = []
        self.calls: list[Call] = []
        self.compared: list[tuple[Known, Call]] = []

    async def again(self, known: Known, note: Note) -> Miss:
        self.recalled.append(known)
        return Miss("", known.question.key)

    async def answer(self, call: Call) -> Reply:
        plan = call.plan
        self.calls.append(call)
        if self.recalled:
            self.compared.append((self.recalled.pop(), call))
        if isinstance(plan, Eligible):
            key, canonical = keyed(call.parts)
            call.question = call.question_for(plan, key, canonical)
            call.remember(call, _entry(call, key, canonical))
        return Whole(200, [], b"")


def _entry(call: Call, key: ExactKey, canonical: bytes) -> Entry:
    return Entry(
        key, call.tenant, call.request.api, canonical, b"{}", "m", None, (), 0.0, 1e12, 1e12
    )


def _shaping(asked: Request) -> Request:
    """What of a request shapes a replay."""
    return asked._replace(forward=b"", canonical=b"")


_HEADER = st.sampled_from(
    [
        (name, value)
        for name, values in {
            "accept": ("a", "b"),
            "accept-language": ("a", "b"),
            "anthropic-beta": ("a", "b"),
            "baggage": ("a", "b"),
            "cache-control": ("no-cache", "max-age=5", "min-fresh=5", "only-if-cached", "no-store"),
            "connection": ("close", "x-team", "anthropic-beta"),
            "cookie": ("a", "b"),
            "openai-beta": ("a", "b"),
            "pragma": ("no-cache", "a"),
            "traceparent": ("a", "b"),
            "trivet-route": ("a", "b"),
            "trivet-tag": ("a", "b"),
            "trivet-version": ("a=1", "a=2", "b=1"),
            "user-agent": ("a", "b"),
            "x-request-id": ("a", "b"),
            "x-team": ("a", "b"),
            "x-tenant-id": ("a", "b"),
            "x-user": ("a", "b"),
        }.items()
        for value in values
    ]
)
_HEADERS = st.lists(_HEADER, max_size=2)
_TARGETS = st.sampled_from(
    (
        ("/v1/chat/completions", ""),
        ("/v1/chat/completions", "a=b"),
        ("/v1/chat/completions", "a=c"),
        ("/chat/completions", ""),
        ("/azure/v1/chat/completions", ""),
        ("/v1/responses", ""),
        ("/v1/messages", ""),
    )
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "seed": st.just(1),
        "stream_options": st.just({"include_usage": True}),
        "store": st.just(False),
        "temperature": st.just(1),
        "metadata": st.sampled_from(({"a": "b"}, {"a": "c"})),
        "user": st.sampled_from(("u", "v")),
        "cache": st.sampled_from(({"no-cache": True}, {"ttl": 5}, {"s-maxage": 5})),
    },
)
_BODIES = _FIELDS.map(
    lambda fields: json.dumps(
        {
            "model": "m",
            "max_tokens": 5,
            "temperature": 0,
            "input": "x",
            "messages": [{"role": "user", "content": "x"}],
            **fields,
        }
    ).encode()
)
_KEYS = st.sampled_from(("sk-acme", "sk-globex"))
_EXACT = st.builds(
    ExactPolicy,
    key_headers=st.sampled_from(((), ("X-Team",), ("User-Agent",))),
    user_scope=st.sampled_from((False, False, True)),
    user_from=st.sampled_from(("body", "header:X-User", "header:X-Request-Id")),
    sampled=st.sampled_from(("bypass", "cache", "pool")),
    rules=st.sampled_from(
        ((), (ExactRule(match=Match(route="a"), ttl=7.0, key_headers=("Baggage",)),))
    ),
)


@st.composite
def _alike(draw: st.DrawFn) -> list[Any]:
    """A request, and others that differ from it in one part or one header."""
    path, headers, body, key = draw(st.tuples(_TARGETS, _HEADERS, _BODIES, _KEYS))
    asked = [(path, tuple(headers), body, key)]
    others = (
        st.builds(lambda new: (new, tuple(headers), body, key), _TARGETS),
        st.builds(lambda new: (path, tuple(headers), new, key), _BODIES),
        st.builds(lambda new: (path, tuple(headers), body, new), _KEYS),
        st.builds(lambda new: (path, (*headers, new), body, key), _HEADER),
        st.builds(lambda new: (path, (new, *headers), body, key), _HEADER),
        st.builds(lambda new: (path, (new,), body, key), _HEADER),
        st.builds(lambda new: (path, tuple(headers[1:]), body, new), _KEYS),
    )
    asked += draw(st.lists(st.one_of(*others), min_size=4, max_size=12))
    return asked


UPSTREAMS = (
    UpstreamConfig(name="main", base_url="http://u"),
    UpstreamConfig(name="azure", base_url="http://a", prefix="/azure"),
)


@given(_EXACT, _alike())
@settings(max_examples=300, deadline=None)
def test_what_is_recalled_is_what_would_be_decided(exact: ExactPolicy, asked: list[Any]) -> None:
    rig_policies = [TenantPolicy(tenant=name, exact=exact) for name in ("acme", "globex")]
    seen = Deciding()

    async def run() -> None:
        rig = Rig(policies=rig_policies, upstreams=UPSTREAMS)
        rig.reception._pipeline = cast(CachePipeline, seen)
        for (path, query), headers, body, key in asked + asked:
            named = (*headers, ("authorization", f"Bearer {key}"))
            await rig.end(rig.start(exchange("POST", path, body, *named, query=query)))

    asyncio.run(run())
    for known, call in seen.compared:
        assert known.question == call.question
        assert isinstance(call.plan, Eligible)
        assert (call.plan.lookup, call.plan.pool) == (True, None)
        assert _shaping(known.request) == _shaping(call.request)
        assert known.dialect is call.dialect
        assert known.policy is call.policy
        assert known.caller.policy is call.policy
        assert known.upstream == call.upstream.name


async def test_the_comparison_above_does_compare() -> None:
    seen = Deciding()
    rig = Rig()
    rig.reception._pipeline = cast(CachePipeline, seen)
    for _ in range(3):
        await rig.chat()
    assert len(seen.compared) == 2
