"""A quick hit is the reply, and the report, that the usual path would give."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from dataclasses import dataclass, replace
from typing import Any

import pytest
from asgi_driver import Exchange, Rig, chat_body, json_script, request
from openai_bodies import call, calling, completion

from trivet.errors import StoreError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound
from trivet.exact.tier import Hit
from trivet.messages import ExactKey
from trivet.middleware.arrival.quick import QuickLane
from trivet.middleware.arrival.visit import ASKED
from trivet.middleware.call import Whole
from trivet.policies.model import ExactPolicy, Limits, TenantPolicy
from trivet.policies.tenants import UNDECLARED, GatewayTrust, TenantDirectory
from trivet.telemetry import RequestDone

CHAT = "/v1/chat/completions"
BEGAN = 0.0


class Slow(MemoryStore):
    """A store behind a line: nothing of it is in this process's memory for the tier."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0
        self.trouble: StoreError | None = None

    async def get(self, tenant: str, key: ExactKey) -> Entry | None:
        self.gets += 1
        await asyncio.sleep(0)
        if self.trouble is not None:
            raise self.trouble
        return await super().get(tenant, key)


@dataclass
class Behind:
    """`Slow` as the tier sees a store that it cannot look into."""

    inner: Slow
    name: str = "behind"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def lane_of(rig: Rig) -> QuickLane:
    pipeline, reception = rig.reception._pipeline, rig.reception
    return QuickLane(
        lambda raw, peer: reception._identify(raw, peer),
        reception._recall,
        pipeline._exact,
        pipeline._reply,
        rig.events.append,
    )


def chat(text: str = "hi", *headers: tuple[str, str], **fields: Any) -> Exchange:
    return request(CHAT, chat_body(text, **fields), *headers)


def at_once(lane: QuickLane, asked: Exchange) -> Whole | None:
    reply = lane.answer(asked.scope, asked.body[0], BEGAN)
    assert not inspect.iscoroutine(reply)
    assert reply is None or isinstance(reply, Whole)
    return reply


async def later(lane: QuickLane, asked: Exchange) -> Whole | None:
    reply = lane.answer(asked.scope, asked.body[0], BEGAN)
    assert inspect.iscoroutine(reply)
    found: Whole | None = await reply
    return found


def alike(done: RequestDone) -> RequestDone:
    """Without what is another each time."""
    return done._replace(total_s=0, first_byte_s=0, received_ns=0, reply_headers=())


def masked(body: bytes) -> bytes:
    return re.sub(rb'"(id|call_id)":"[^"]+"', rb'"\1":"*"', body)


async def knowing(answer: Any = None, **fields: Any) -> tuple[Rig, QuickLane]:
    """A rig that has answered `chat()` once."""
    rig = Rig(json_script(completion() if answer is None else answer), **fields)
    await rig.chat()
    return rig, lane_of(rig)


class TestMissOfAKnownRequest:
    """It costs one question to the store, and is then decided as any other miss."""

    @staticmethod
    async def forgotten(**fields: Any) -> tuple[Rig, Slow]:
        slow = Slow()
        rig = Rig(json_script(completion()), store=Behind(slow), **fields)
        await rig.chat()
        await slow.purge(rig.done[0].tenant, None, 1e12)
        slow.gets = 0
        return rig, slow

    async def test_on_the_usual_path(self) -> None:
        rig, slow = await self.forgotten()
        assert (await rig.chat()).exact["fwd"] == "miss"
        assert (slow.gets, len(rig.upstream.sent)) == (1, 2)

    async def test_after_the_quick_lane(self) -> None:
        rig, slow = await self.forgotten()
        asked = chat()
        assert await later(lane_of(rig), asked) is None
        assert (await rig.end(rig.start(asked))).exact["fwd"] == "miss"
        assert (slow.gets, len(rig.upstream.sent)) == (1, 2)

    async def test_an_entry_without_this_callers_tags_is_replaced_by_one_with_all(self) -> None:
        slow = Slow()
        rig = Rig(*[json_script(completion())] * 2, store=Behind(slow))
        await rig.chat("hi", ("trivet-tag", "a"))
        again = await rig.chat("hi", ("trivet-tag", "b"))
        assert again.exact == {"fwd": "miss", "stored": True, "detail": "tags"}
        for tags in ("a", "b", "a, b"):
            assert (await rig.chat("hi", ("trivet-tag", tags))).exact["hit"] is True
        assert len(rig.upstream.sent) == 2

    async def test_an_expired_answer_still_stands_in_for_an_error(self) -> None:
        slow = Slow()
        policy = TenantPolicy(tenant="acme", exact=ExactPolicy(stale_if_error=3600.0))
        failing = json_script({"error": {}}, status=503)
        rig = Rig(json_script(completion()), failing, store=Behind(slow), policies=[policy])
        await rig.chat()
        (known,) = rig.reception._recall._known.values()
        kept = await slow.get("acme", known.question.key)
        assert kept is not None
        await slow.put(replace(kept, expires=time.time() - 1), Bound())
        slow.gets = 0
        asked = chat()
        assert await later(lane_of(rig), asked) is None
        assert (await rig.end(rig.start(asked))).exact["detail"] == "stale-if-error"
        assert slow.gets == 1

    async def test_what_was_found_answers_no_other_question(self) -> None:
        """A caller's policy may be replaced between the two: then the store is asked afresh."""
        slow = Slow()
        rig = Rig(json_script(completion()), store=Behind(slow))
        await rig.chat()
        (known,) = rig.reception._recall._known.values()
        hit = await rig.reception._pipeline._exact.find(known.question)
        assert isinstance(hit, Hit)
        for other in (
            known.question._replace(tenant="other"),
            known.question._replace(key=ExactKey(b"x" * 32)),
            known.question._replace(canonical=b"x"),
            known.question._replace(fresh_for=1.0),
        ):
            slow.gets = 0
            rig.reception._recall._known.clear()
            asked = chat("another")
            asked.scope[ASKED] = other, hit
            await rig.end(rig.start(asked))
            assert slow.gets == 1


class TestHit:
    @pytest.mark.parametrize(
        "fields",
        [{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}],
    )
    @pytest.mark.parametrize("usage", ["keep", "zero"])
    async def test_reply_and_report_are_those_of_the_usual_path(
        self, fields: dict[str, Any], usage: Any
    ) -> None:
        policy = TenantPolicy(tenant="acme", usage_on_hit=usage)
        rig = Rig(json_script(calling(call(0))), policies=[policy])
        trace = ("traceparent", "00-1")
        await rig.chat()
        usual = await rig.chat("hi", trace, **fields)
        reply = at_once(lane_of(rig), chat("hi", trace, **fields))
        assert reply is not None
        assert masked(reply.body) == masked(usual.content)
        assert reply.status == usual.status
        ids = (b"x-request-id", b"date", b"content-length")
        assert [item for item in reply.headers if item[0] not in ids] == [
            item for item in usual.headers if item[0] not in ids
        ]
        assert [name for name, _ in reply.headers] == [name for name, _ in usual.headers][:-2]
        assert alike(rig.done[-1])._replace(response_bytes=0) == alike(rig.done[-2])._replace(
            response_bytes=0
        )
        assert rig.done[-1].response_bytes == len(reply.body)

    async def test_two_quick_hits_share_no_id(self) -> None:
        _, lane = await knowing()
        one, two = at_once(lane, chat()), at_once(lane, chat())
        assert one is not None
        assert two is not None
        assert one.body != two.body

    async def test_the_time_counts_from_the_arrival(self) -> None:
        import time

        rig, lane = await knowing()
        asked = chat()
        lane.answer(asked.scope, asked.body[0], time.perf_counter() - 5)
        assert rig.done[-1].total_s >= 5

    async def test_a_doubled_trace_header_is_told_as_the_usual_path_does(self) -> None:
        rig, lane = await knowing()
        asked = chat("hi", ("traceparent", "a"), ("traceparent", "b"))
        await rig.end(rig.start(chat("hi", ("traceparent", "a"), ("traceparent", "b"))))
        assert at_once(lane, asked) is not None
        assert rig.done[-1].traceparent == rig.done[-2].traceparent == "a, b"


class TestLeftToTheUsualPath:
    async def test_what_was_never_asked(self) -> None:
        rig, lane = await knowing()
        reported = len(rig.done)
        assert at_once(lane, chat("other")) is None
        assert len(rig.done) == reported

    @pytest.mark.parametrize("limits", [Limits(requests_in_flight=9), Limits(bytes_in_flight=9999)])
    async def test_tenants_whose_requests_are_counted(self, limits: Limits) -> None:
        rig, lane = await knowing(policies=[TenantPolicy(tenant="acme", limits=limits)])
        assert rig.reception._recall._known
        assert at_once(lane, chat()) is None

    async def test_a_caller_who_is_not_known(self) -> None:
        _, lane = await knowing(policies=[TenantPolicy(tenant="acme")])
        assert at_once(lane, chat()) is not None
        assert at_once(lane, request(CHAT, chat_body(), key="sk-nobody")) is None

    async def test_a_caller_whose_policies_were_read_again(self) -> None:
        rig, lane = await knowing()
        rig.reception._identify = TenantDirectory(UNDECLARED, b"s" * 32).identify
        assert at_once(lane, chat()) is None
        await rig.chat()
        assert at_once(lane, chat()) is not None

    async def test_an_answer_that_was_purged(self) -> None:
        rig, lane = await knowing()
        await rig.store.purge(rig.done[0].tenant, None, 1e12)
        assert at_once(lane, chat()) is None

    async def test_an_answer_that_is_too_old_for_the_caller(self) -> None:
        control = ("cache-control", "max-age=60")
        rig = Rig(json_script(completion()))
        now = [1000.0]
        rig.reception._pipeline._exact._clock = lambda: now[0]
        rig.reception._pipeline._leader._clock = lambda: now[0]
        rig.store._clock = lambda: now[0]  # type: ignore[attr-defined]
        await rig.chat("hi", control)
        lane = lane_of(rig)
        assert at_once(lane, chat("hi", control)) is not None
        now[0] += 61
        assert at_once(lane, chat("hi", control)) is None
        now[0] += 86400
        assert (await rig.chat("hi", control)).exact["fwd"] != "hit"

    async def test_an_answer_that_expired(self) -> None:
        rig, lane = await knowing()
        rig.reception._pipeline._exact._clock = lambda: 1e11
        assert at_once(lane, chat()) is None

    async def test_a_store_that_mixed_up_two_entries(self) -> None:
        rig, lane = await knowing()
        (known,) = rig.reception._recall._known.values()
        tier = rig.reception._pipeline._exact
        assert tier.peek(known.question._replace(canonical=b"other")) is None
        assert tier.peek(known.question._replace(tenant="other")) is None
        assert at_once(lane, chat()) is not None


class TestBehindALine:
    @staticmethod
    async def rig() -> tuple[Rig, QuickLane, Slow]:
        slow = Slow()
        rig, lane = await knowing(store=Behind(slow))
        assert rig.reception._recall._known
        slow.gets = 0
        return rig, lane, slow

    async def test_the_store_is_asked_once_for_a_hit(self) -> None:
        rig, lane, slow = await self.rig()
        reply = await later(lane, chat())
        assert reply is not None
        assert (slow.gets, rig.done[-1].outcome) == (1, "hit")

    async def test_a_miss_is_forgotten_so_that_the_usual_path_asks_once_more_only(self) -> None:
        rig, lane, slow = await self.rig()
        await slow.purge(rig.done[0].tenant, None, 1e12)
        reported = len(rig.done)
        assert await later(lane, chat()) is None
        assert len(rig.done) == reported
        assert (await rig.chat()).exact["fwd"] == "miss"
        assert slow.gets == 2

    async def test_a_store_in_trouble_fails_nothing(self) -> None:
        rig, lane, slow = await self.rig()
        slow.trouble = StoreError("timeout")
        assert await later(lane, chat()) is None
        assert (await rig.chat()).status == 200
        assert slow.gets == 2


async def test_a_gateways_tenants_are_recalled_apart() -> None:
    trust = GatewayTrust("X-Tenant", peers=("127.0.0.1",))
    rig = Rig(json_script(completion()))
    rig.reception._identify = TenantDirectory(UNDECLARED, b"s" * 32, trust).identify
    lane = lane_of(rig)
    await rig.chat("hi", ("x-tenant", "acme"))
    assert at_once(lane, chat("hi", ("x-tenant", "acme"))) is not None
    assert rig.done[-1].tenant == "acme"
    assert at_once(lane, chat("hi", ("x-tenant", "globex"))) is None
    stranger = chat("hi", ("x-tenant", "acme"))
    stranger.scope["client"] = ("192.0.2.1", 1)
    assert at_once(lane, stranger) is None


class TestTags:
    async def test_a_tag_that_the_entry_lacks_is_left_to_the_usual_path_once(self) -> None:
        rig, lane = await knowing()
        tag = ("trivet-tag", "batch-7")
        assert at_once(lane, chat("hi", tag)) is None
        assert (await rig.chat("hi", tag)).exact["detail"] == "tags"
        assert at_once(lane, chat("hi", tag)) is not None
        await rig.store.purge(rig.done[0].tenant, "tag:batch-7", 1e12)
        assert at_once(lane, chat("hi", tag)) is None
        assert at_once(lane, chat()) is None

    async def test_behind_a_line_too(self) -> None:
        slow = Slow()
        rig, lane = await knowing(store=Behind(slow))
        tag = ("trivet-tag", "batch-7")
        await rig.chat("hi", tag)
        (tenant,) = {done.tenant for done in rig.done}
        await slow.purge(tenant, None, 1e9)
        rig.reception._pipeline._exact._clock = lambda: 2e9
        await rig.chat()  # Stored anew, without the tag.
        assert await later(lane, chat("hi", tag)) is None
