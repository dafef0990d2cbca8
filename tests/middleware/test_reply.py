"""What the caller is told of what happened."""

from __future__ import annotations

import pytest
from asgi_driver import Rig, chat_body, json_script
from openai_bodies import completion

from trivet.errors import RequestError, UpstreamError
from trivet.middleware.dialects.registry import CHAT, MESSAGES
from trivet.middleware.reply import error_reply

BODY = chat_body()


async def test_the_key_that_callers_see_is_opaque_and_differs_between_tenants() -> None:
    rig = Rig(json_script(completion()))
    shown = set()
    for key in ("sk-a", "sk-b"):
        for _ in range(2):
            reply = await rig.ask("/v1/chat/completions", BODY, key=key)
        shown.add(reply.exact["key"])
    assert len(shown) == 2
    assert all(len(str(key)) == 16 for key in shown)


async def test_a_request_id_is_in_the_header_that_the_sdk_reads() -> None:
    rig = Rig(json_script(completion()))
    await rig.chat()
    assert (await rig.chat()).header("x-request-id") != (await rig.chat()).header("x-request-id")


async def test_a_live_hit_is_not_buffered_on_its_way() -> None:
    rig = Rig(json_script(completion()))
    await rig.chat()
    assert (await rig.chat(stream=True)).header("cache-control") == "no-cache"


class TestErrorReply:
    @pytest.mark.parametrize(
        ("status", "retry"), [(429, "1"), (503, "1"), (400, None), (502, None)]
    )
    def test_who_may_come_again_is_told_when(self, status: int, retry: str | None) -> None:
        reply = error_reply(CHAT, RequestError(status, "x"), "trivet-exact; fwd=bypass")
        found = dict(reply.headers).get(b"retry-after")
        assert (reply.status, found) == (status, None if retry is None else retry.encode())

    def test_it_speaks_the_callers_dialect(self) -> None:
        error = UpstreamError("upstream-cut", "cut off.")
        assert b'"code":"upstream-cut"' in error_reply(CHAT, error, "x").body
        assert b'"type":"error"' in error_reply(MESSAGES, error, "x").body
        assert b"request-id" in dict(error_reply(MESSAGES, error, "x").headers)
