"""One call a request, one event each, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from asgi_driver import Rig, Script, Sent, chat_body, json_script, request, stream_script
from openai_bodies import DONE, completion, hello

from trivet.middleware.app import ProxyApp
from trivet.middleware.arrival.direct import http_date
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.visit import Visit
from trivet.middleware.call import Live, Reply


class Odd:
    """A reception with a defect, or with a reply of the test's own."""

    def __init__(self, reply: Reply | Exception) -> None:
        self.reply = reply

    async def serve(self, visit: Visit) -> Reply:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


async def test_what_is_no_http_is_left_alone() -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    await Rig().app({"type": "websocket"}, never, never)


async def test_a_whole_reply_has_its_length_and_a_date() -> None:
    reply = await Rig(json_script(completion())).chat()
    assert reply.header("content-length") == str(len(reply.content))
    assert (reply.header("date") or "").endswith(" GMT")


async def test_the_upstreams_date_stays() -> None:
    rig = Rig(json_script(completion(), headers=[(b"date", b"then"), (b"content-type", b"x/y")]))
    reply = await rig.chat()
    assert [value for name, value in reply.headers if name == b"date"] == [b"then"]


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_no_length(status: int) -> None:
    reply = await Rig(Script(status=status, headers=[])).chat()
    assert (reply.status, reply.header("content-length"), reply.complete) == (status, None, True)


async def test_the_event_tells_what_was_done() -> None:
    rig = Rig(json_script(completion()))
    reply = await rig.chat("hi", ("traceparent", "00-a-b-01"))
    (done,) = rig.done
    assert (done.tenant[:4], done.api, done.model, done.upstream) == ("key-", "chat", "m", "main")
    assert (done.status, done.stream, done.stored, done.outcome) == (200, False, True, "miss")
    assert done.response_bytes == len(reply.content)
    assert (done.traceparent, done.response_model) == ("00-a-b-01", "m-2026")
    assert 0 < done.upstream_s <= done.total_s
    assert 0 < done.first_byte_s <= done.total_s


async def test_a_defect_is_told_in_the_dialect_and_logged_without_what_it_quotes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rig = Rig()
    app = ProxyApp(Odd(ValueError("the prompt")), rig.events.append)  # type: ignore[arg-type]
    asked = request("/v1/messages", b"{}")
    await app(asked.scope, asked.receive, asked.send)
    assert (asked.status, asked.json["error"]["type"]) == (500, "api_error")
    assert rig.done[0].reason == "internal"
    logged = capsys.readouterr()
    said = logged.out + logged.err
    assert "request-failed" in said
    assert "ValueError" in said
    assert "the prompt" not in said


class TestLive:
    @staticmethod
    def live(released: list[bool], headers: RawHeaders) -> Live:
        async def chunks() -> AsyncGenerator[bytes, None]:
            yield b"x"

        return Live(200, headers, chunks(), lambda: released.append(True))

    async def test_one_whose_head_cannot_be_sent_is_let_go(self) -> None:
        released: list[bool] = []
        rig = Rig()
        app = ProxyApp(Odd(self.live(released, [])), rig.events.append)  # type: ignore[arg-type]
        asked = request("/v1/x", b"{}")

        async def refuse(_: dict[str, Any]) -> None:
            raise RuntimeError("Invalid HTTP header value.")

        asked.on_send = refuse
        with pytest.raises(RuntimeError):
            await app(asked.scope, asked.receive, asked.send)
        assert released == [True]
        assert len(rig.done) == 1

    async def test_a_task_that_the_server_cancels_lets_go(self) -> None:
        rig = Rig(
            Script(hello()[0], asyncio.Event(), headers=[(b"content-type", b"text/event-stream")])
        )
        asked = rig.start(request("/v1/x", method="GET"))
        await asked.until(lambda: len(asked.sent) == 2)
        assert asked.task is not None
        asked.task.cancel()
        await asyncio.wait([asked.task])
        assert asked.task.done()
        assert rig.done[0].reason == "shutdown"
        assert rig.upstream.given[0].closed == 1
        assert len(rig.done) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_followers_wait_is_told_as_waiting(stream: bool) -> None:
    gate = asyncio.Event()

    async def answer(sent: Sent) -> Script:
        await gate.wait()
        return stream_script(*hello(), DONE) if stream else json_script(completion())

    rig = Rig(answer)
    body = chat_body(stream=stream)
    asked = [rig.start(request("/v1/chat/completions", body)) for _ in range(3)]
    await asked[0].until(lambda: len(rig.upstream.sent) == 1)
    await asyncio.sleep(0.05)
    gate.set()
    for one in asked:
        await rig.end(one)
    assert sorted(done.outcome for done in rig.done) == ["collapsed", "collapsed", "miss"]
    for done in rig.done:
        assert 0.04 < done.upstream_s <= done.total_s


@pytest.mark.parametrize("status", [200, 500])
async def test_who_leads_after_following_has_waited_for_both_calls(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, gate = 100.0, asyncio.Event()
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    async def failing(sent: Sent) -> Script:
        nonlocal now
        await gate.wait()
        now += 3.0
        return json_script({"error": {}}, status=500)

    async def slow(sent: Sent) -> Script:
        nonlocal now
        now += 2.0
        return json_script(completion(), status=status)

    rig = Rig(failing, slow)
    leader, follower = (rig.start(request("/v1/chat/completions", chat_body())) for _ in range(2))
    await leader.until(lambda: len(rig.upstream.sent) == 1)
    gate.set()
    await rig.end(leader)
    assert (await rig.end(follower)).status == status
    assert [(done.upstream_s, done.total_s) for done in rig.done] == [(3.0, 3.0), (5.0, 5.0)]


async def test_a_call_of_a_followers_own_comes_after_what_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, gate = 100.0, asyncio.Event()
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    cut = completion()
    cut["choices"][0]["finish_reason"] = "length"

    async def answer(sent: Sent) -> Script:
        nonlocal now
        await gate.wait()
        now += 1.0
        return json_script(cut)

    rig = Rig(answer)
    asked = [rig.start(request("/v1/chat/completions", chat_body())) for _ in range(3)]
    await asked[0].until(lambda: len(rig.upstream.sent) == 1)
    gate.set()
    for one in asked:
        await rig.end(one)
    assert len(rig.upstream.sent) == 3
    assert [done.upstream_s for done in rig.done] == [1.0, 2.0, 3.0]
    assert all(done.upstream_s == done.total_s for done in rig.done)


async def test_a_hit_has_waited_for_nobody() -> None:
    rig = Rig(json_script(completion()))
    await rig.chat()
    await rig.chat()
    assert [done.upstream_s > 0 for done in rig.done] == [True, False]


def test_a_date_is_written_as_http_writes_it() -> None:
    assert http_date(784111777) == b"Sun, 06 Nov 1994 08:49:37 GMT"
