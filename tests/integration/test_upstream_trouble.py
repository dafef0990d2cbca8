"""A broken upstream is reported as itself, in the caller's dialect, and never stored."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from proxy import Proxy, chat_body, free_port, serving
from raw_http import connect, head, post

from trivet.middleware.mock_upstream.commands import in_baggage

pytestmark = pytest.mark.waits

SLOW = """\
upstreams:
  - name: slow
    base_url: {url}
    connect_timeout: 1
    read_timeout: 1
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving() as running:
        yield running


def wait_until_idle(proxy: Proxy) -> None:
    assert proxy.mock is not None
    deadline = time.monotonic() + 10
    while proxy.mock.calls.open and time.monotonic() < deadline:
        time.sleep(0.02)
    assert proxy.mock.calls.open == 0


def test_an_upstream_that_refuses_is_a_502_that_says_so() -> None:
    with serving(f"http://127.0.0.1:{free_port()}") as lonely:
        reply = lonely.chat("refused")
        assert reply.status == 502
        assert reply.json["error"]["code"] == "upstream-refused"
        assert "cannot be reached" in reply.json["error"]["message"]
        anthropic = lonely.post(
            "/v1/messages",
            {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
            anthropic_version="2023-06-01",
        )
        assert anthropic.status == 502
        assert anthropic.json["type"] == "error"
        assert anthropic.json["error"]["type"] == "api_error"
        assert lonely.get("/v1/models").status == 502
        assert lonely.get("/readyz", admin=True).status == 200


def test_an_upstream_that_says_nothing_is_a_504_within_its_time(proxy: Proxy) -> None:
    upstream = _upstream_of(proxy)
    with serving(config=SLOW.format(url=upstream)) as slow:
        for stream in (False, True):
            reply = slow.chat(f"hang {stream}", stream=stream, baggage=in_baggage("hang=0"))
            assert reply.status == 504
            assert reply.json["error"]["code"] == "upstream-timeout"


def test_an_upstream_that_falls_silent_within_a_stream_breaks_the_connection(proxy: Proxy) -> None:
    with serving(config=SLOW.format(url=_upstream_of(proxy))) as slow:
        body = chat_body("silent", stream=True)
        answer = asyncio.run(post(slow.url, body, baggage=in_baggage("hang=2")))
        assert answer.status == 200
        assert not answer.complete
        assert answer.body.count(b"data:") == 2
        assert slow.chat("silent").exact["fwd"] == "miss"


@pytest.mark.parametrize("events", [0, 1, 3])
def test_a_cut_stream_breaks_off_at_the_caller_too_and_is_not_stored(
    proxy: Proxy, events: int
) -> None:
    body = chat_body(f"cut {events}", stream=True)
    answer = asyncio.run(post(proxy.url, body, baggage=in_baggage(f"cut={events}")))
    if events:
        assert answer.status == 200
        assert not answer.complete
        assert answer.body.count(b"data:") == events
        assert b"[DONE]" not in answer.body
    assert proxy.chat(f"cut {events}").exact == {"fwd": "miss", "stored": True}


def test_a_json_answer_that_is_cut_is_a_502(proxy: Proxy) -> None:
    reply = proxy.chat("cut json", baggage=in_baggage("cut=0"))
    assert reply.status == 502
    assert reply.json["error"]["code"] == "upstream-cut"
    assert proxy.chat("cut json").exact == {"fwd": "miss", "stored": True}


def test_an_error_event_in_a_stream_reaches_the_caller_and_is_not_stored(proxy: Proxy) -> None:
    reply = proxy.chat("error event", stream=True, baggage=in_baggage("error-event=2"))
    assert reply.status == 200
    assert b'"error"' in reply.body
    assert proxy.chat("error event").exact == {"fwd": "miss", "stored": True}


def test_garbage_within_a_stream_passes_and_is_not_stored(proxy: Proxy) -> None:
    reply = proxy.chat("garbage", stream=True, baggage=in_baggage("garbage=1"))
    assert reply.status == 200
    assert proxy.chat("garbage").exact == {"fwd": "miss", "stored": True}


def test_an_upstream_that_speaks_no_http_is_a_502() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def answer_once() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

        import threading

        thread = threading.Thread(target=answer_once, daemon=True)
        thread.start()
        with serving(f"http://127.0.0.1:{port}") as confused:
            reply = confused.chat("ssh")
            assert reply.status == 502
            assert reply.json["error"]["code"] == "upstream-garbage"
        thread.join()


def test_a_json_answer_to_a_stream_request_is_passed_on_as_it_is(proxy: Proxy) -> None:
    reply = proxy.chat("as json", stream=True, baggage=in_baggage("as-json"))
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["choices"][0]["message"]["content"]


def test_a_compressed_answer_is_passed_on_and_not_stored(proxy: Proxy) -> None:
    reply = proxy.chat("gzip", baggage=in_baggage("gzip"))
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.exact == {"fwd": "miss", "detail": "content-encoding"}


def test_a_caller_who_leaves_ends_the_upstream_call(proxy: Proxy) -> None:
    async def leave_early(stream: bool) -> None:
        data = json.dumps(chat_body(f"leaves {stream}", stream=stream)).encode()
        reader, writer = await connect(proxy.url)
        writer.write(
            head(proxy.url, data, baggage=in_baggage("tokens=400; slow-chunks=50; delay=200"))
            + data
        )
        await writer.drain()
        if stream:
            await reader.readuntil(b"data:")
        else:
            await asyncio.sleep(0.1)
        writer.close()

    assert proxy.mock is not None
    proxy.mock.calls.reset()
    asyncio.run(leave_early(True))
    asyncio.run(leave_early(False))
    wait_until_idle(proxy)
    assert proxy.mock.calls.disconnects == 2


def test_a_caller_who_leaves_at_any_byte_of_the_request_harms_nobody(proxy: Proxy) -> None:
    data = json.dumps(chat_body("any byte")).encode()
    whole = head(proxy.url, data) + data

    async def leave_after(count: int) -> None:
        _, writer = await connect(proxy.url)
        writer.write(whole[:count])
        await writer.drain()
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(leave_after(count) for count in range(0, len(whole), 7)))

    asyncio.run(all_of_them())
    assert proxy.chat("still here").status == 200
    assert not [line for line in proxy.lines() if "Traceback" in line]


def test_sigterm_lets_an_open_stream_end() -> None:
    with serving() as draining:
        body = chat_body("drain", stream=True)

        async def stream_through_sigterm() -> bytes:
            data = json.dumps(body).encode()
            reader, writer = await connect(draining.url)
            writer.write(
                head(draining.url, data, baggage=in_baggage("tokens=20; slow-chunks=50")) + data
            )
            await reader.readuntil(b"data:")
            draining.process.send_signal(signal.SIGTERM)
            rest = await reader.read(-1)
            writer.close()
            return rest

        rest = asyncio.run(stream_through_sigterm())
        assert b"data: [DONE]" in rest
        assert draining.process.wait(20) == 0


@pytest.mark.alone
def test_two_thousand_streams_are_open_at_once() -> None:
    with serving() as crowded:
        assert crowded.mock is not None

        async def one(number: int) -> bool:
            body = chat_body(f"stream {number}", stream=True)
            answer = await post(crowded.url, body, baggage=in_baggage("tokens=4; delay=4000"))
            return answer.complete and b"[DONE]" in answer.body

        async def all_of_them() -> list[bool]:
            return await asyncio.gather(*(one(number) for number in range(2000)))

        assert all(asyncio.run(all_of_them()))
        assert crowded.mock.calls.peak_open == 2000
        assert crowded.chat("after the crowd").status == 200


def _upstream_of(proxy: Proxy) -> str:
    command = proxy.process.args
    assert isinstance(command, list)
    return str(command[command.index("--upstream") + 1])
