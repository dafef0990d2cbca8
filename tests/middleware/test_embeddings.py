"""Batches of embeddings: each item is cached on its own, in any mix, and never mixed wrongly."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from typing import Any

import pytest
from asgi_driver import JSON, Exchange, Rig, Script, Sent, json_script, request
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.errors import StoreError, UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.messages import ExactKey
from trivet.middleware.http_client.errors import Lost
from trivet.policies.model import ExactPolicy, TenantPolicy

STALE = TenantPolicy(tenant="acme", exact=ExactPolicy(ttl=0, stale_if_error=3600))


def vector(item: Any, model: str = "m", size: int = 3) -> list[float]:
    """What the fake model makes of an item: 32-bit floats."""
    draw = sum(map(ord, json.dumps([item, model])))
    return [struct.unpack("<f", struct.pack("<f", draw / (place + 7)))[0] for place in range(size)]


def encoded(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def model(sent: Sent) -> Script:
    """The fake upstream: a function of the request."""
    return json_script(answer_to(sent.json))


def answer_to(body: dict[str, Any]) -> dict[str, Any]:
    given = body["input"]
    items = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    size = body.get("dimensions", 3)
    vectors = [vector(item, body["model"], size) for item in items]
    written = map(encoded, vectors) if body.get("encoding_format") == "base64" else vectors
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": one}
            for index, one in enumerate(written)
        ],
        "model": body["model"],
        "usage": {"prompt_tokens": len(items), "total_tokens": len(items)},
    }


async def embed(rig: Rig, given: Any, *headers: tuple[str, str], **fields: Any) -> Exchange:
    return await rig.ask("/v1/embeddings", {"model": "m", "input": given, **fields}, *headers)


def vectors_of(reply: Exchange) -> list[Any]:
    assert reply.status == 200, reply.content
    data = reply.json["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [item["embedding"] for item in data]


ITEMS = st.sampled_from(["a", "b", "c", "", "\u00e9", "[1]"]) | st.sampled_from([[1], [2, 3]])
BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "model": st.sampled_from(["m", "n"]),
            "input": st.sampled_from(["a", "b", [1], [2, 3]])
            | st.lists(ITEMS, min_size=1, max_size=6),
        },
        optional={
            "encoding_format": st.sampled_from(["float", "base64"]),
            "dimensions": st.sampled_from([2, 4]),
            "user": st.sampled_from(["u", "v"]),
        },
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(BATCHES)
def test_asking_the_cache_equals_asking_the_upstream(batches: list[dict[str, Any]]) -> None:
    async def ask_all() -> None:
        rig = Rig(model)
        for body in batches:
            reply = await rig.ask("/v1/embeddings", body)
            wanted = answer_to(body)
            assert reply.json["data"] == wanted["data"]
            assert reply.json["model"] == wanted["model"]
        known: set[str] = set()
        for sent in rig.upstream.sent:
            body = sent.json
            given = body["input"]
            items = [given] if isinstance(given, str) or isinstance(given[0], int) else given
            for name in {json.dumps([body["model"], body.get("dimensions"), i]) for i in items}:
                assert name not in known, "an item was asked for twice"
                known.add(name)

    asyncio.run(ask_all())


class TestBatches:
    async def test_a_batch_that_is_all_stored_asks_nobody(self) -> None:
        rig = Rig(model)
        await embed(rig, ["a", "b"])
        reply = await embed(rig, ["b", "a", "b"])
        assert vectors_of(reply) == [vector("b"), vector("a"), vector("b")]
        assert reply.exact["hit"] is True
        assert len(rig.upstream.sent) == 1

    async def test_only_what_is_missing_is_asked_for_once(self) -> None:
        rig = Rig(model)
        await embed(rig, "a")
        reply = await embed(rig, ["b", "a", "b", "c"])
        assert reply.exact == {"fwd": "miss", "stored": True, "detail": "partial"}
        assert rig.upstream.sent[-1].json["input"] == ["b", "c"]
        assert vectors_of(reply) == [vector("b"), vector("a"), vector("b"), vector("c")]
        assert reply.json["usage"] == {"prompt_tokens": 2, "total_tokens": 2}

    async def test_a_batch_of_one_item_knows_what_it_cost(self) -> None:
        rig = Rig(model)
        await embed(rig, "a")
        assert (await embed(rig, "a")).json["usage"]["prompt_tokens"] == 1
        await embed(rig, ["b", "c"])
        assert rig.done[1].usage == rig.done[0].usage
        assert (await embed(rig, "b")).json["usage"]["prompt_tokens"] == 0
        assert rig.done[-1].usage is None

    async def test_usage_on_a_hit_is_zeroed_where_the_policy_says(self) -> None:
        rig = Rig(model, policies=[TenantPolicy(tenant="acme", usage_on_hit="zero")])
        await embed(rig, "a")
        assert (await embed(rig, "a")).json["usage"]["prompt_tokens"] == 0

    async def test_64_bit_floats_come_back_exactly(self) -> None:
        rig = Rig(lambda _: json_script({"data": [{"index": 0, "embedding": [0.1, 0.2]}]}))
        await embed(rig, "a")
        assert vectors_of(await embed(rig, "a")) == [[0.1, 0.2]]
        assert vectors_of(await embed(rig, "a", encoding_format="base64")) == [encoded([0.1, 0.2])]

    async def test_indexes_in_any_order_are_put_right(self) -> None:
        def shuffled(sent: Sent) -> Script:
            answer = answer_to(sent.json)
            answer["data"].reverse()
            return json_script(answer)

        rig = Rig(shuffled)
        await embed(rig, ["a", "b", "c"])
        assert vectors_of(await embed(rig, ["c", "a"])) == [vector("c"), vector("a")]

    async def test_no_cache_asks_for_all_and_renews(self) -> None:
        rig = Rig(model)
        await embed(rig, ["a", "b"])
        reply = await embed(rig, ["a", "b"], ("cache-control", "no-cache"))
        assert reply.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}
        assert len(rig.upstream.sent) == 2

    async def test_a_vector_without_this_callers_tag_is_asked_for_and_replaced(self) -> None:
        rig = Rig(model)
        tag = ("trivet-tag", "doc-1")
        await embed(rig, ["a", "b"])
        reply = await embed(rig, ["a"], tag)
        assert reply.exact == {"fwd": "miss", "stored": True, "detail": "tags"}
        assert (await embed(rig, ["a"], tag)).exact["hit"] is True
        assert (await embed(rig, ["a", "b"])).exact["hit"] is True
        assert await rig.store.purge(rig.done[0].tenant, "tag:doc-1", 1e12) == 1

    async def test_only_if_cached_needs_every_item(self) -> None:
        rig = Rig(model)
        await embed(rig, "a")
        only = ("cache-control", "only-if-cached")
        assert (await embed(rig, ["a", "b"], only)).status == 504
        assert (await embed(rig, ["a", "a"], only)).status == 200
        assert len(rig.upstream.sent) == 1

    async def test_another_encoding_passes_by(self) -> None:
        rig = Rig(json_script({"data": "x"}))
        reply = await embed(rig, "a", encoding_format="bytes")
        assert reply.exact == {"fwd": "bypass", "detail": "encoding-format"}
        assert reply.json == {"data": "x"}

    async def test_tenants_share_no_vector(self) -> None:
        rig = Rig(model)
        await embed(rig, "a")
        body = {"model": "m", "input": "a"}
        assert (await rig.ask("/v1/embeddings", body, key="sk-b")).exact["fwd"] == "miss"


class TestStoring:
    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            (
                json_script({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}, status=202),
                "status-202",
            ),
            (json_script({"data": []}), "missing-vector"),
            (Script(b"<html>"), "not-json"),
            (
                json_script(
                    {"data": [{"index": 0, "embedding": [1.0]}]},
                    headers=[(b"content-type", b"text/plain")],
                ),
                "content-type",
            ),
            (json_script({"data": [{"index": 0, "embedding": [1.0]}]}, headers=[]), "content-type"),
            (json_script({"data": [{"index": 0, "embedding": "caf\u00e9"}]}), "bad-vector"),
            (
                json_script(
                    {"data": [{"index": 0, "embedding": [1.0]}]},
                    headers=[JSON, (b"Cache-Control", b"private, No-Store")],
                ),
                "upstream-no-store",
            ),
        ],
    )
    async def test_what_may_not_be_stored_is_passed_on_as_it_is(
        self, script: Script, reason: str
    ) -> None:
        rig = Rig(script)
        for _ in range(2):
            reply = await embed(rig, "a")
            assert reply.exact == {"fwd": "miss", "detail": reason}
            assert (reply.status, reply.content) == (script.status, b"".join(script.pieces))  # type: ignore[arg-type]

    async def test_a_vector_beyond_the_policys_limit_is_not_stored(self) -> None:
        rig = Rig(model, policies=[TenantPolicy(tenant="acme", exact=ExactPolicy(max_entry=12))])
        assert (await embed(rig, "a")).exact == {"fwd": "miss", "detail": "too-large"}
        reply = await embed(rig, "a", dimensions=2)
        assert reply.exact == {"fwd": "miss", "stored": True}

    async def test_a_lifetime_of_nothing_stores_nothing(self) -> None:
        rig = Rig(model, policies=[TenantPolicy(tenant="acme", exact=ExactPolicy(ttl=0))])
        assert (await embed(rig, "a")).exact == {"fwd": "miss", "detail": "ttl-0"}

    async def test_trouble_of_the_store_costs_no_answer_and_is_told(self) -> None:
        class Broken(MemoryStore):
            async def get(self, tenant: str, key: ExactKey) -> Entry | None:
                raise StoreError("timeout")

            async def put(self, entry: Entry, bound: Bound) -> str:
                raise StoreError("full")

        reply = await embed(Rig(model, store=Broken()), ["a", "b"])
        assert vectors_of(reply) == [vector("a"), vector("b")]
        assert reply.exact == {"fwd": "miss", "detail": "store-full"}


class TestVectorsThatDoNotGoTogether:
    """Vectors of two models or lengths cannot be compared: they never share an answer."""

    @staticmethod
    def changing() -> tuple[list[str], Any]:
        """An upstream whose model behind the name changes when the test says so."""
        state = ["m-1"]

        def answer(sent: Sent) -> Script:
            made = answer_to(sent.json)
            made["model"] = state[0]
            return json_script(made)

        return state, answer

    async def test_where_the_model_changed_the_whole_batch_is_asked_anew(self) -> None:
        state, answer = self.changing()
        rig = Rig(answer)
        await embed(rig, "a")
        state[0] = "m-2"
        reply = await embed(rig, ["a", "b"])
        assert reply.json["model"] == "m-2"
        assert [sent.json["input"] for sent in rig.upstream.sent] == ["a", ["b"], ["a", "b"]]
        assert (await embed(rig, ["b", "a"])).exact["hit"] is True

    async def test_stored_ones_of_two_models_are_no_hit(self) -> None:
        state, answer = self.changing()
        rig = Rig(answer)
        await embed(rig, "a")
        state[0] = "m-2"
        await embed(rig, "b")
        reply = await embed(rig, ["a", "b"])
        assert reply.exact == {"fwd": "miss", "stored": True, "detail": "model-changed"}
        assert rig.upstream.sent[-1].json["input"] == ["a", "b"]

    async def test_where_the_length_changed_the_whole_batch_is_asked_anew(self) -> None:
        size = 3

        def answer(sent: Sent) -> Script:
            return json_script(answer_to({**sent.json, "dimensions": size}))

        rig = Rig(answer)
        await embed(rig, "a")
        size = 4
        reply = await embed(rig, ["a", "b", "a"])
        assert vectors_of(reply) == [vector(item, size=4) for item in "aba"]

    @pytest.mark.parametrize("odd", [Script(b"<html>"), json_script({"data": []}, status=202)])
    async def test_where_the_rest_cannot_be_read_the_whole_batch_is_asked_as_it_came(
        self, odd: Script
    ) -> None:
        rig = Rig(model, odd, model)
        await embed(rig, "a")
        assert vectors_of(await embed(rig, ["a", "b"])) == [vector("a"), vector("b")]
        assert rig.upstream.sent[-1].json["input"] == ["a", "b"]


class TestFailure:
    async def test_an_upstream_error_is_passed_on_with_its_status(self) -> None:
        rig = Rig(json_script({"error": {"message": "slow down"}}, status=429))
        reply = await embed(rig, ["a", "b"])
        assert (reply.status, reply.json) == (429, {"error": {"message": "slow down"}})
        assert reply.exact == {"fwd": "miss", "detail": "status-429"}

    @pytest.mark.parametrize(
        "failure",
        [
            UpstreamError("upstream-cut", "cut."),
            Script(Lost(begun=True)),
            Script(b"{", Lost(begun=True)),
        ],
    )
    async def test_an_upstream_that_breaks_off_is_a_502(self, failure: Any) -> None:
        reply = await embed(Rig(failure), "a")
        assert (reply.status, reply.json["error"]["code"]) == (502, "upstream-cut")

    @pytest.mark.parametrize(
        "failure", [json_script({}, status=503), UpstreamError("upstream-timeout", "late.", 504)]
    )
    async def test_expired_vectors_stand_in_for_an_error(self, failure: Any) -> None:
        rig = Rig(model, failure, policies=[STALE])
        await embed(rig, ["a", "b"])
        reply = await embed(rig, ["b", "a"])
        assert vectors_of(reply) == [vector("b"), vector("a")]
        assert reply.exact["detail"] == "stale-if-error"
        assert rig.done[-1].outcome == "stale"

    async def test_they_do_not_stand_in_for_items_that_were_never_stored(self) -> None:
        rig = Rig(model, json_script({}, status=503), policies=[STALE])
        await embed(rig, "a")
        assert (await embed(rig, ["a", "b"])).status == 503

    async def test_they_do_not_hide_what_the_caller_has_to_mend(self) -> None:
        rig = Rig(model, json_script({}, status=400), policies=[STALE])
        await embed(rig, "a")
        assert (await embed(rig, "a")).status == 400

    async def test_ones_of_two_models_stand_in_for_nothing(self) -> None:
        names = iter(("m-1", "m-2"))

        def answer(sent: Sent) -> Script:
            return json_script({**answer_to(sent.json), "model": next(names)})

        rig = Rig(answer, answer, json_script({}, status=503), policies=[STALE])
        await embed(rig, "a")
        await embed(rig, "b")
        assert (await embed(rig, ["a", "b"])).status == 503


class TestFollowers:
    @staticmethod
    def held(*scripts: Any) -> tuple[asyncio.Event, Any]:
        gate = asyncio.Event()

        async def answer(sent: Sent) -> Script:
            await gate.wait()
            return scripts[0] if scripts else model(sent)

        return gate, answer

    @staticmethod
    def start(rig: Rig, given: Any, *headers: tuple[str, str], **fields: Any) -> Exchange:
        body = {"model": "m", "input": given, **fields}
        return rig.start(request("/v1/embeddings", body, *headers))

    async def test_equal_batches_in_flight_make_one_call(self) -> None:
        gate, answer = self.held()
        rig = Rig(answer)
        asked = [self.start(rig, ["a", "b"]) for _ in range(3)]
        asked.append(self.start(rig, ["a", "b", "a"]))
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        replies = [await rig.end(one) for one in asked]
        assert len(rig.upstream.sent) == 1
        assert vectors_of(replies[3]) == [vector(item) for item in "aba"]
        assert replies[1].exact == {"fwd": "miss", "collapsed": True}
        assert sorted(done.outcome for done in rig.done) == ["collapsed"] * 3 + ["miss"]

    async def test_callers_of_two_encodings_do_not_get_each_others(self) -> None:
        gate, answer = self.held()
        rig = Rig(answer)
        floats = self.start(rig, "a")
        text = self.start(rig, "a", encoding_format="base64")
        await floats.until(lambda: len(rig.upstream.sent) == 2)
        gate.set()
        assert vectors_of(await rig.end(floats)) == [vector("a")]
        assert vectors_of(await rig.end(text)) == [encoded(vector("a"))]

    async def test_no_cache_follows_nobody(self) -> None:
        gate, answer = self.held()
        rig = Rig(answer)
        asked = [self.start(rig, "a", ("cache-control", "no-cache")) for _ in range(2)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 2)
        gate.set()
        for one in asked:
            await rig.end(one)

    async def test_followers_of_a_failure_elect_one(self) -> None:
        gate, answer = self.held(json_script({}, status=500))
        rig = Rig(answer, model)
        asked = [self.start(rig, "a") for _ in range(3)]
        await asked[0].until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        assert sorted([(await rig.end(one)).status for one in asked]) == [200, 200, 500]
        assert len(rig.upstream.sent) == 2

    async def test_who_leads_after_following_has_waited_for_both_calls(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, gate = 100.0, asyncio.Event()
        monkeypatch.setattr(time, "perf_counter", lambda: now)

        async def failing(sent: Sent) -> Script:
            nonlocal now
            await gate.wait()
            now += 3.0
            return json_script({}, status=500)

        async def slow(sent: Sent) -> Script:
            nonlocal now
            now += 2.0
            return model(sent)

        rig = Rig(failing, slow)
        leader, follower = (self.start(rig, "a") for _ in range(2))
        await leader.until(lambda: len(rig.upstream.sent) == 1)
        gate.set()
        await rig.end(leader)
        assert (await rig.end(follower)).status == 200
        assert [(done.upstream_s, done.total_s) for done in rig.done] == [(3.0, 3.0), (5.0, 5.0)]

    async def test_a_followers_own_deadline_holds(self) -> None:
        gate, answer = self.held()
        rig = Rig(answer, model, wait=0.02)
        leader, follower = self.start(rig, "a"), self.start(rig, "a")
        assert vectors_of(await rig.end(follower)) == [vector("a")]
        gate.set()
        await rig.end(leader)

    async def test_a_follower_out_of_patience_twice_is_told_504(self) -> None:
        gate, answer = self.held()
        rig = Rig(answer, wait=0.02)
        leader, elected, last = (self.start(rig, "a") for _ in range(3))
        reply = await rig.end(last)
        assert (reply.status, reply.json["error"]["code"]) == (504, "leader-slow")
        gate.set()
        for one in (leader, elected):
            await rig.end(one)

    async def test_a_caller_who_leaves_lets_everything_go(self) -> None:
        _, answer = self.held()
        rig = Rig(answer)
        asked = self.start(rig, "a")
        await asked.until(lambda: len(rig.upstream.sent) == 1)
        asked.leave()
        await rig.end(asked)
        await asked.until(lambda: rig.collapser.flights == 0)
        assert rig.done[0].reason == "client-gone"
