"""What an upstream call leaves behind: judged after the last byte, by what came and how."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_driver import JSON, STREAM, Rig, Script, json_script, stream_script
from openai_bodies import call, calling, completion, hello

from trivet.middleware.record import forbids_storing
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.model import ExactPolicy, Limits, TenantPolicy
from trivet.telemetry import StoreOperation


def acme(**exact: Any) -> TenantPolicy:
    return TenantPolicy(tenant="acme", exact=ExactPolicy(**exact))


async def reason(script: Script, *policies: TenantPolicy, **fields: Any) -> str:
    """Why the answer was not stored; empty if it was. The caller gets it all the same."""
    rig = Rig(script, policies=policies)
    reply = await rig.chat(**fields)
    assert reply.content
    (done,) = rig.done
    assert done.stored is not bool(done.reason)
    again = await rig.chat(**fields)
    assert ("hit" in again.exact) is done.stored
    return done.reason


class TestJson:
    async def test_a_complete_answer_is_stored(self) -> None:
        assert await reason(json_script(completion())) == ""

    @pytest.mark.parametrize("status", [201, 202, 203, 206, 301, 400, 429, 500])
    async def test_an_answer_of_another_status_is_not(self, status: int) -> None:
        assert await reason(json_script(completion(), status=status)) == f"status-{status}"

    @pytest.mark.parametrize(
        ("headers", "why"),
        [
            ([JSON, (b"Content-Encoding", b"gzip")], "content-encoding"),
            ([JSON, (b"Cache-Control", b"private, No-Store")], "upstream-no-store"),
            ([(b"content-type", b"text/html")], "content-type"),
            ([], "content-type"),
            ([(b"Content-Type", b"Application/JSON; charset=utf-8")], ""),
            ([JSON, (b"Content-Encoding", b"identity"), (b"cache-control", b"no-cache")], ""),
        ],
    )
    async def test_the_head_may_forbid_it(self, headers: Any, why: str) -> None:
        assert await reason(json_script(completion(), headers=headers)) == why

    async def test_one_beyond_the_policys_limit_is_not(self) -> None:
        assert await reason(json_script(completion()), acme(max_entry=100)) == "too-large"

    async def test_tool_calls_are_the_policys_matter(self) -> None:
        assert await reason(json_script(calling(call()))) == ""
        assert await reason(json_script(calling(call())), acme(tool_calls="never")) == "tool-calls"

    async def test_a_lifetime_of_nothing_is_a_reason(self) -> None:
        assert await reason(json_script(completion()), acme(ttl=0)) == "ttl-0"


class TestStream:
    async def test_a_complete_stream_is_stored(self) -> None:
        assert await reason(stream_script(*hello()), stream=True) == ""

    async def test_one_that_ends_early_is_not(self) -> None:
        assert await reason(stream_script(*hello()[:2]), stream=True) == "no-done"

    async def test_one_far_beyond_the_policys_limit_is_not_recorded(self) -> None:
        noise = [b": %b\n\n" % (b"x" * 100)] * 100
        script = stream_script(*noise, *hello())
        assert await reason(script, acme(max_entry=100), stream=True) == "too-large"

    async def test_one_of_another_status_is_not(self) -> None:
        script = Script(*hello(), status=206, headers=[STREAM])
        assert await reason(script, stream=True) == "status-206"


class TestBody:
    async def test_usage_is_asked_for_where_the_caller_did_not(self) -> None:
        rig = Rig(stream_script(*hello()))
        await rig.chat(stream=True)
        assert rig.upstream.sent[0].json["stream_options"] == {"include_usage": True}

    async def test_usage_is_left_alone_where_the_upstream_refuses_to_be_asked(self) -> None:
        main = UpstreamConfig(name="main", base_url="http://u", stream_usage="leave")
        rig = Rig(stream_script(*hello()), upstreams=[main])
        await rig.chat(stream=True)
        assert "stream_options" not in rig.upstream.sent[0].json


async def test_headers_that_still_hold_are_replayed() -> None:
    rig = Rig(json_script(completion(), headers=[JSON, (b"OpenAI-Version", b"2020-10-01")]))
    await rig.chat()
    assert (await rig.chat()).header("openai-version") == "2020-10-01"


async def test_a_tenant_keeps_no_more_than_its_policy_allows() -> None:
    policy = TenantPolicy(tenant="acme", limits=Limits(entries=1))
    rig = Rig(json_script(completion()), policies=[policy])
    await rig.chat("one")
    await rig.chat("two")
    stats = await rig.store.usage("acme")
    assert stats.entries == 1
    assert not [event for event in rig.events if isinstance(event, StoreOperation)]


@pytest.mark.parametrize(
    ("value", "forbids"),
    [(b"no-store", True), (b"NO-STORE, max-age=0", True), (b"no-cache", False), (b"", False)],
)
def test_no_store_is_obeyed_however_it_is_written(value: bytes, forbids: bool) -> None:
    assert forbids_storing([(b"x", b"no-store"), (b"Cache-Control", value)]) is forbids
