"""One request through the tiers: hits, misses, followers, stand-ins, and whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgi_driver import (
    STREAM,
    Exchange,
    Rig,
    Script,
    Sent,
    chat_body,
    json_script,
    request,
    stream_script,
)
from openai_bodies import DONE, chunk, completion, delta, hello

from trivet.errors import StoreError, UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.fleet import Claim, Lead
from trivet.exact.flight import Flight
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.middleware.http_client.errors import Lost
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import ExactPolicy, TenantPolicy

CUT = Lost(begun=True)


def acme(**exact: Any) -> TenantPolicy:
    return TenantPolicy(tenant="acme", exact=ExactPolicy(**exact))


STALE = acme(ttl=0, stale_if_error=3600)
"""Every answer has expired when it is looked up, and may stand in for an error."""


def ask(text: str = "hi", **fields: Any) -> Exchange:
    return request("/v1/chat/completions", chat_body(text, **fields))


def streamed(*pieces: bytes | asyncio.Event | Lost) -> Script:
    return stream_script(*(pieces or hello()))


def held(make: Callable[..., Script], *pieces: Any) -> tuple[asyncio.Event, Callable[[Sent], Any]]:
    """An upstream that answers once the event is set."""
    gate = asyncio.Event()

    async def answer(_: Sent) -> Script:
        await gate.wait()
        return make(*pieces)

    return gate, answer


class TestHit:
    async def test_the_second_request_is_answered_from_the_store(self) -> None:
        rig = Rig(json_script(completion()))
        first, second = await rig.chat(), await rig.chat()
        assert first.exact == {"fwd": "miss", "stored": True}
        assert second.exact["hit"] is True
        assert int(second.header("age") or -1) >= 0
        assert len(rig.upstream.sent) == 1
        assert [(done.outcome, done.tier) for done in rig.done] == [
            ("miss", None),
            ("hit", "exact"),
        ]
        assert rig.done[1].usage == rig.done[0].usage

    async def test_a_stream_and_json_share_one_entry(self) -> None:
        rig = Rig(streamed())
        await rig.chat(stream=True)
        assert (await rig.chat()).json["choices"][0]["message"]["content"] == "Hello there."
        again = await rig.chat(stream=True)
        assert again.header("content-type") == "text/event-stream; charset=utf-8"
        assert again.content.endswith(DONE)

    async def test_a_large_request_is_found_again_too(self) -> None:
        rig = Rig(json_script(completion()), max_body=4 << 20)
        text = "x" * (1 << 20)
        await rig.chat(text)
        assert (await rig.chat(text)).exact["hit"] is True
        rig.intake.close()


class TestBypass:
    async def test_the_answer_passes_by_and_is_not_stored(self) -> None:
        rig = Rig(json_script(completion()))
        for _ in range(2):
            assert (await rig.chat(temperature=1)).exact == {"fwd": "bypass", "detail": "sampled"}
        assert [script.closed for script in rig.upstream.given] == [1, 1]
        assert [done.outcome for done in rig.done] == ["bypass", "bypass"]

    async def test_only_if_cached_is_a_504_without_a_call(self) -> None:
        rig = Rig(json_script(completion()))
        reply = await rig.chat("hi", ("cache-control", "only-if-cached"), temperature=1)
        assert (reply.status, rig.upstream.sent) == (504, [])

    async def test_an_upstream_that_cannot_be_asked_is_told_in_the_dialect(self) -> None:
        rig = Rig(UpstreamError("upstream-refused", "no.", 502))
        reply = await rig.chat(temperature=1)
        assert (reply.status, reply.json["error"]["code"]) == (502, "upstream-refused")
        assert reply.exact == {"fwd": "bypass", "detail": "upstream-refused"}

    async def test_a_body_that_breaks_off_breaks_off_for_the_caller(self) -> None:
        rig = Rig(Script(b"{", CUT))
        reply = await rig.chat(temperature=1)
        assert (reply.status, reply.content, reply.complete) == (200, b"{", False)
        assert rig.upstream.given[0].closed == 1
        assert rig.done[0].reason == "upstream-cut"


class TestMiss:
    async def test_only_if_cached_is_a_504_without_a_call(self) -> None:
        rig = Rig(json_script(completion()))
        reply = await rig.chat("hi", ("cache-control", "only-if-cached"))
        assert reply.json["error"]["code"] == "only_if_cached"
        assert reply.exact == {"fwd": "miss", "detail": "only-if-cached"}

    async def test_no_cache_asks_again_and_renews_the_entry(self) -> None:
        rig = Rig(json_script(completion()))
        await rig.chat()
        reply = await rig.chat("hi", ("cache-control", "no-cache"))
        assert reply.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}
        assert len(rig.upstream.sent) == 2

    async def test_an_answer_with_too_little_life_left_is_renewed(self) -> None:
        rig = Rig(json_script(completion()))
        await rig.chat()
        assert (await rig.chat("hi", ("cache-control", "min-fresh=80000"))).exact["hit"] is True
        reply = await rig.chat("hi", ("cache-control", "min-fresh=86401"))
        assert reply.exact == {"fwd": "request", "stored": True, "detail": "min-fresh"}
        assert len(rig.upstream.sent) == 2

    async def test_a_json_answer_that_breaks_off_is_a_502(self) -> None:
        rig = Rig(Script(b"{", CUT))
        reply = await rig.chat()
        assert (reply.status, reply.json["error"]["code"]) == (502, "upstream-cut")

    async def test_a_stream_that_breaks_off_breaks_off_for_the_caller(self) -> None:
        rig = Rig(streamed(hello()[0], CUT), json_script(completion()))
        reply = await rig.chat(stream=True)
        assert not reply.complete
        assert reply.content == hello()[0]
        assert (rig.done[0].outcome, rig.done[0].reason) == ("error", "upstream-cut")
        assert (await rig.chat()).exact == {"fwd": "miss", "stored": True}

    async def test_a_json_answer_beyond_the_limit_is_passed_on_as_it_comes(self) -> None:
        gate = asyncio.Event()
        script = Script(b"x" * 100, gate, b"y" * 100)
        rig = Rig(script, policies=[acme(max_entry=64)])
        asked = rig.start(ask())
        await asked.until(lambda: len(asked.content) == 100)
        gate.set()
        reply = await rig.end(asked)
        assert reply.content == b"x" * 100 + b"y" * 100
        assert rig.done[0].reason == "too-large"

    async def test_an_unfinished_last_event_reaches_the_caller(self) -> None:
        rig = Rig(streamed(*hello(), b"data: unfin"))
        assert (await rig.chat(stream=True)).content.endswith(b"data: unfin")

    async def test_a_stream_keeps_its_usage_where_none_was_added(self) -> None:
        main = UpstreamConfig(name="main", base_url="http://u", stream_usage="leave")
        rig = Rig(
            streamed(*hello()[:-1], chunk(usage={"prompt_tokens": 1}), DONE), upstreams=[main]
        )
        assert b'"usage"' in (await rig.chat(stream=True)).content
        assert b"stream_options" not in rig.upstream.sent[0].body

    async def test_a_lone_surrogate_beside_stream_options_is_forwarded_as_it_was(self) -> None:
        rig = Rig(streamed())
        raw = (
            b'{"model":"m","temperature":0,"stream":true,"stream_options":{},"x":"\\ud800",'
            b'"y":18446744073709551616,"messages":[{"role":"user","content":"x"}]}'
        )
        reply = await rig.ask("/v1/chat/completions", raw)
        assert reply.status == 200
        sent = rig.upstream.sent[0].json
        assert (sent["x"], sent["y"]) == ("\ud800", 18446744073709551616)
        assert sent["stream_options"] == {"include_usage": True}

    async def test_trouble_of_the_store_costs_no_answer_and_is_told(self) -> None:
        class Broken(MemoryStore):
            async def get(self, tenant: str, key: ExactKey) -> Entry | None:
                raise StoreError("timeout")

            async def put(self, entry: Entry, bound: Bound) -> str:
                raise StoreError("full")

        reply = await Rig(json_script(completion()), store=Broken()).chat()
        assert reply.status == 200
        assert reply.exact == {"fwd": "miss", "detail": "store-full"}


class TestFollowers:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_requests_in_flight_share_one_call(self, stream: bool) -> None:
        make, pieces = (streamed, ()) if stream else (json_script, (completion(),))
        gate, answer = held(make, *pieces)
        rig = Rig(answer)
        asked = [rig.start(ask(stream=stream)) for _ in range(5)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        replies = [await rig.end(one) for one in asked]
        assert len(rig.upstream.sent) == 1
        assert [reply.exact.get("collapsed") for reply in replies] == [None, *[True] * 4]
        outcomes = sorted(done.outcome for done in rig.done)
        assert outcomes == ["collapsed"] * 4 + ["miss"]
        assert rig.collapser.flights == 0

    async def test_a_follower_gets_neither_the_leaders_cookies_nor_its_request_id(self) -> None:
        headers = (STREAM, (b"set-cookie", b"s=1"), (b"x-request-id", b"r1"))
        gate, answer = held(lambda: Script(*hello(), headers=headers))
        rig = Rig(answer)
        asked = [rig.start(ask(stream=True)) for _ in range(2)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        leader, follower = [await rig.end(one) for one in asked]
        assert (leader.header("set-cookie"), leader.header("x-request-id")) == ("s=1", "r1")
        assert follower.header("set-cookie") is None
        assert (follower.header("x-request-id") or "").startswith("req_trivet_")

    async def test_a_follower_who_asked_otherwise_gets_the_result_in_his_way(self) -> None:
        gate, answer = held(streamed)
        rig = Rig(answer)
        leader, follower = rig.start(ask(stream=True)), rig.start(ask())
        await leader.until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        assert (await rig.end(follower)).json["choices"][0]["message"]["content"] == "Hello there."
        await rig.end(leader)

    async def test_who_follows_one_who_asked_for_usage_is_not_shown_it(self) -> None:
        main = UpstreamConfig(name="main", base_url="http://u", stream_usage="leave")
        usage = chunk(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
        gate, answer = held(streamed, *hello()[:-1], usage, DONE)
        rig = Rig(answer, upstreams=[main])
        leader = rig.start(ask(stream=True, stream_options={"include_usage": True}))
        await leader.until(lambda: len(rig.upstream.sent) == 1)
        follower = rig.start(ask(stream=True))
        await asyncio.sleep(0)
        gate.set()
        assert b'"usage"' in (await rig.end(leader)).content
        assert b'"usage"' not in (await rig.end(follower)).content
        assert len(rig.upstream.sent) == 1

    @pytest.mark.parametrize("key", ["sk-b", None])
    async def test_tenants_never_share_a_flight(self, key: str | None) -> None:
        gate, answer = held(json_script, completion())
        rig = Rig(answer)
        mine = rig.start(request("/v1/chat/completions", chat_body(), key="sk-a"))
        theirs = rig.start(request("/v1/chat/completions", chat_body(), key=key))
        await mine.until(lambda: len(rig.upstream.sent) == 2)
        gate.set()
        for one in (mine, theirs):
            assert "collapsed" not in (await rig.end(one)).exact

    async def test_followers_of_a_failure_elect_one_and_follow_it(self) -> None:
        gate, answer = held(lambda: json_script({"error": {}}, status=500))
        rig = Rig(answer, json_script(completion()))
        asked = [rig.start(ask()) for _ in range(4)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        replies = [await rig.end(one) for one in asked]
        assert sorted(reply.status for reply in replies) == [200, 200, 200, 500]
        assert len(rig.upstream.sent) == 2

    async def test_followers_who_fail_twice_are_told_the_upstreams_error(self) -> None:
        gate, answer = held(lambda: json_script({"error": {}}, status=500))
        rig = Rig(answer, json_script({"error": {"message": "again"}}, status=503))
        asked = [rig.start(ask()) for _ in range(4)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        statuses = sorted([(await rig.end(one)).status for one in asked])
        assert statuses == [500, 503, 503, 503]
        assert len(rig.upstream.sent) == 2

    async def test_followers_of_an_answer_that_may_not_be_shared_make_calls_of_their_own(
        self,
    ) -> None:
        cut = completion()
        cut["choices"][0]["finish_reason"] = "length"
        gate, answer = held(json_script, cut)
        rig = Rig(answer, lambda _: json_script(cut))
        asked = [rig.start(ask()) for _ in range(4)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        replies = [await rig.end(one) for one in asked]
        assert {reply.status for reply in replies} == {200}
        assert not any(reply.exact.get("collapsed") for reply in replies)
        assert len(rig.upstream.sent) == 4

    async def test_a_followers_own_deadline_holds(self) -> None:
        gate, answer = held(json_script, completion())
        rig = Rig(answer, json_script(completion()), wait=0.02)
        leader, follower = rig.start(ask()), rig.start(ask())
        assert (await rig.end(follower)).exact == {"fwd": "miss", "stored": True}
        gate.set()
        await rig.end(leader)

    async def test_a_follower_out_of_patience_twice_makes_a_call_of_its_own(self) -> None:
        gate, answer = held(json_script, completion())
        rig = Rig(answer, answer, json_script(completion()), wait=0.02)
        leader, elected, last = rig.start(ask()), rig.start(ask()), rig.start(ask())
        reply = await rig.end(last)
        assert (reply.status, reply.exact) == (200, {"fwd": "miss"})
        gate.set()
        for one in (leader, elected):
            await rig.end(one)

    async def test_no_cache_follows_nobody(self) -> None:
        gate, answer = held(json_script, completion())
        rig = Rig(answer)
        headers = ("cache-control", "no-cache")
        asked = [rig.start(request("/v1/chat/completions", chat_body(), headers)) for _ in range(3)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 3)
        gate.set()
        for one in asked:
            await rig.end(one)

    async def test_an_answer_that_another_process_stored_meanwhile_is_taken(self) -> None:
        class Late:
            where: Any = "machine"

            async def claim(self, flight: Flight) -> Claim:
                await rig.store.put(kept, Bound())
                return Lead(lambda: None)

        other = Rig(json_script(completion()))
        await other.chat()
        store = other.store
        assert isinstance(store, MemoryStore)
        (shelf,) = store._shelves.values()
        (node,) = shelf.nodes.values()
        kept = node.entry
        rig = Rig(json_script(completion()), fleet=Late())
        reply = await rig.chat()
        assert reply.status == 200
        assert rig.upstream.sent == []


class TestStale:
    @pytest.mark.parametrize(
        "failure",
        [
            json_script({}, status=500),
            json_script({}, status=503),
            UpstreamError("upstream-refused", "no.", 502),
            UpstreamError("upstream-timeout", "late.", 504),
            Script(b'{"choices', CUT),
            Script(CUT),
            stream_script(status=502),
        ],
    )
    @pytest.mark.parametrize("stream", [False, True])
    async def test_an_expired_answer_stands_in_for_an_error(
        self, failure: Any, stream: bool
    ) -> None:
        rig = Rig(json_script(completion()), failure, policies=[STALE])
        await rig.chat()
        reply = await rig.chat(stream=stream)
        assert reply.status == 200
        assert reply.exact["hit"] is True
        assert reply.exact["detail"] == "stale-if-error"
        assert int(reply.exact["ttl"]) <= 0
        assert rig.done[1].outcome == "stale"

    @pytest.mark.parametrize(
        ("failure", "status"),
        [
            (json_script({}, status=429), 429),
            (json_script({}, status=400), 400),
            (UpstreamError("upstream-unsendable", "bad header.", 400), 400),
        ],
    )
    async def test_it_does_not_hide_what_the_caller_has_to_mend(
        self, failure: Any, status: int
    ) -> None:
        rig = Rig(json_script(completion()), failure, policies=[STALE])
        await rig.chat()
        assert (await rig.chat()).status == status

    async def test_an_upstream_that_is_well_is_asked(self) -> None:
        rig = Rig(json_script(completion()), policies=[STALE])
        await rig.chat()
        assert (await rig.chat()).exact == {"fwd": "stale", "stored": True, "detail": "expired"}
        assert len(rig.upstream.sent) == 2

    async def test_it_stands_in_for_a_call_of_the_followers_own_too(self) -> None:
        gate, answer = held(json_script, completion())
        failing = json_script({}, status=503)
        rig = Rig(json_script(completion()), answer, answer, failing, policies=[STALE], wait=0.02)
        await rig.chat()
        leader, elected, last = rig.start(ask()), rig.start(ask()), rig.start(ask())
        assert (await rig.end(last)).exact["detail"] == "stale-if-error"
        assert rig.upstream.given[-1].closed == 1
        gate.set()
        for one in (leader, elected):
            await rig.end(one)


class TestPool:
    async def test_every_slot_gets_an_answer_of_its_own_before_one_is_drawn(self) -> None:
        number = 0

        def another(_: Sent) -> Script:
            nonlocal number
            number += 1
            made = completion()
            made["choices"][0]["message"]["content"] = f"answer {number}"
            return json_script(made)

        rig = Rig(another, policies=[acme(sampled="pool", k=3)])
        for _ in range(3):
            reply = await rig.chat(temperature=1)
            assert reply.exact == {"fwd": "miss", "stored": True}
        seen = {(await rig.chat(temperature=1)).content[-1:] for _ in range(5)}
        assert seen
        assert number == 3

    async def test_pooled_requests_never_follow_each_other(self) -> None:
        gate, answer = held(json_script, completion())
        rig = Rig(answer, policies=[acme(sampled="pool", k=2)])
        asked = [rig.start(ask(temperature=1)) for _ in range(3)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 3)
        gate.set()
        for one in asked:
            await rig.end(one)

    async def test_no_cache_renews_a_slot(self) -> None:
        rig = Rig(json_script(completion()), policies=[acme(sampled="pool", k=2)])
        reply = await rig.chat("hi", ("cache-control", "no-cache"), temperature=1)
        assert reply.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}


class TestCallerGone:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_while_the_upstream_thinks_the_call_ends_and_everything_is_let_go(
        self, stream: bool
    ) -> None:
        _, answer = held(json_script, completion())
        rig = Rig(answer)
        asked = rig.start(ask(stream=stream))
        await asked.until(lambda: len(rig.upstream.sent) == 1)
        asked.leave()
        await rig.end(asked)
        assert (asked.status, rig.done[0].reason) == (0, "client-gone")
        await asked.until(lambda: rig.collapser.flights == 0)
        assert rig.reception._admission.requests("acme") == 0

    @pytest.mark.parametrize("temperature", [0, 1])
    async def test_before_the_first_piece_of_a_stream_the_upstream_is_let_go(
        self, temperature: int
    ) -> None:
        rig = Rig(streamed(*hello()[:1], asyncio.Event()))
        asked = ask(stream=True, temperature=temperature)

        async def never(_: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        asked.on_send = never
        rig.start(asked)
        await asked.until(lambda: len(rig.upstream.given) == 1)
        for _ in range(5):
            await asyncio.sleep(0)
        asked.leave()
        await rig.end(asked)
        await asked.until(lambda: rig.upstream.given[0].closed > 0)
        await asked.until(lambda: rig.collapser.flights == 0)

    async def test_in_mid_stream_a_follower_gets_the_rest(self) -> None:
        gate = asyncio.Event()
        rig = Rig(streamed(hello()[0], gate, *hello()[1:]))
        leader = rig.start(ask(stream=True))
        await leader.until(lambda: len(leader.sent) == 2)
        follower = rig.start(ask(stream=True))
        await follower.until(lambda: len(follower.sent) == 2)
        leader.leave()
        await rig.end(leader)
        gate.set()
        assert (await rig.end(follower)).content.endswith(DONE)
        assert len(rig.upstream.sent) == 1
        assert (await rig.chat()).exact["hit"] is True


async def test_a_stream_of_another_status_is_passed_on_as_it_is() -> None:
    rig = Rig(stream_script(chunk(delta(content="x")), status=429))
    reply = await rig.chat(stream=True)
    assert reply.status == 429
    assert reply.exact == {"fwd": "miss"}
    assert rig.done[0].reason == "status-429"
