"""Identical requests in flight make one upstream call, whoever asks and however it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from proxy import Proxy, chat_body, serving
from raw_http import Answer, connect, head, post

from trivet.middleware.mock_upstream.commands import in_baggage

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def shared() -> Iterator[Proxy]:
    with serving() as proxy:
        yield proxy


@pytest.fixture
def proxy(shared: Proxy) -> Proxy:
    assert shared.mock is not None
    shared.mock.calls.reset()
    return shared


def calls(proxy: Proxy) -> int:
    assert proxy.mock is not None
    return proxy.mock.calls.total


async def many(proxy: Proxy, count: int, text: str, *, stream: bool, mock: str) -> list[Answer]:
    body = chat_body(text, stream=stream)
    return await asyncio.gather(
        *(post(proxy.url, body, baggage=in_baggage(mock)) for _ in range(count))
    )


def text_of(answer: Answer) -> str:
    if answer.headers["content-type"] == "application/json":
        return str(json.loads(answer.body)["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in answer.body.splitlines() if line[:7] == b"data: {"]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)


@pytest.mark.parametrize("stream", [False, True])
def test_a_hundred_identical_requests_make_one_call(proxy: Proxy, stream: bool) -> None:
    answers = asyncio.run(many(proxy, 100, f"hundred {stream}", stream=stream, mock="delay=300"))
    assert calls(proxy) == 1
    assert {answer.status for answer in answers} == {200}
    assert len({text_of(answer) for answer in answers}) == 1
    roles = [answer.headers["cache-status"] for answer in answers]
    assert sum("collapsed" in role for role in roles) == 99


def test_streams_and_json_requests_share_one_call(proxy: Proxy) -> None:
    async def mixed() -> list[Answer]:
        mock = "delay=300; slow-chunks=20; tokens=10"
        first, second = await asyncio.gather(
            many(proxy, 10, "mixed", stream=True, mock=mock),
            many(proxy, 10, "mixed", stream=False, mock=mock),
        )
        return first + second

    answers = asyncio.run(mixed())
    assert calls(proxy) == 1
    assert len({text_of(answer) for answer in answers}) == 1


def test_a_follower_gets_the_stream_from_its_first_byte(proxy: Proxy) -> None:
    body = chat_body("late follower", stream=True)
    mock = "tokens=20; slow-chunks=50"

    async def lead_and_follow() -> tuple[Answer, Answer]:
        leader = asyncio.create_task(post(proxy.url, body, baggage=in_baggage(mock)))
        await asyncio.sleep(0.4)
        return await asyncio.gather(leader, post(proxy.url, body, baggage=in_baggage(mock)))

    led, followed = asyncio.run(lead_and_follow())
    assert calls(proxy) == 1
    assert text_of(led) == text_of(followed)
    assert "collapsed" in followed.headers["cache-status"]
    assert followed.body.count(b"data: [DONE]") == 1


def test_each_follower_has_ids_of_its_own(proxy: Proxy) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = chat_body("please call a tool", stream=True, tools=tools)

    async def ask() -> list[Answer]:
        mock = "delay=300"
        return await asyncio.gather(
            *(post(proxy.url, body, baggage=in_baggage(mock)) for _ in range(5))
        )

    answers = asyncio.run(ask())
    assert calls(proxy) == 1
    ids = set()
    for answer in answers:
        for line in answer.body.splitlines():
            if line[:7] == b"data: {":
                for choice in json.loads(line[6:])["choices"]:
                    ids |= {
                        call["id"]
                        for call in choice["delta"].get("tool_calls") or ()
                        if call.get("id")
                    }
    assert len(ids) == 5


def test_the_leader_may_leave_while_a_follower_waits(proxy: Proxy) -> None:
    body = chat_body("leader leaves", stream=True)
    mock = "tokens=20; slow-chunks=40"
    data = json.dumps(body).encode()

    async def lead_and_leave() -> Answer:
        reader, writer = await connect(proxy.url)
        writer.write(head(proxy.url, data, baggage=in_baggage(mock)) + data)
        await reader.readuntil(b"data:")
        follower = asyncio.create_task(post(proxy.url, body, baggage=in_baggage(mock)))
        await asyncio.sleep(0.1)
        writer.close()
        return await follower

    answer = asyncio.run(lead_and_leave())
    assert answer.complete
    assert b"[DONE]" in answer.body
    assert calls(proxy) == 1
    assert proxy.chat("leader leaves").exact["hit"] is True


def test_a_failed_leader_leads_to_one_re_election_and_never_to_a_pile_up(proxy: Proxy) -> None:
    mock = "status=500; delay=300"
    answers = asyncio.run(many(proxy, 50, "all fail", stream=False, mock=mock))
    assert {answer.status for answer in answers} == {500}
    assert calls(proxy) == 2


def test_an_answer_that_is_not_storable_is_asked_for_again_by_few(proxy: Proxy) -> None:
    answers = asyncio.run(many(proxy, 8, "cut short", stream=False, mock="length; delay=200"))
    assert {answer.status for answer in answers} == {200}
    assert calls(proxy) == 8
    assert proxy.mock is not None
    assert proxy.mock.calls.peak_open <= 3


def test_two_tenants_never_share_a_flight(proxy: Proxy) -> None:
    body = chat_body("two tenants", stream=True)

    async def ask() -> list[Answer]:
        return await asyncio.gather(
            *(
                post(
                    proxy.url,
                    body,
                    baggage=in_baggage("delay=300"),
                    authorization=f"Bearer sk-{number % 2}",
                )
                for number in range(20)
            )
        )

    answers = asyncio.run(ask())
    assert calls(proxy) == 2
    assert all(answer.complete for answer in answers)


def test_a_thousand_streams_over_two_workers_make_one_call() -> None:
    with serving(None, "--workers", "2", store="sqlite:") as fleet:
        _await_workers(fleet, 2)
        mock = "delay=4000; tokens=30"
        answers = asyncio.run(many(fleet, 1000, "thousand", stream=True, mock=mock))
        assert all(answer.complete for answer in answers)
        assert len({text_of(answer) for answer in answers}) == 1
        assert calls(fleet) == 1


def test_two_machines_collapse_through_redis(redis_url: str) -> None:
    with serving(store=redis_url) as first, serving(_upstream_of(first), store=redis_url) as second:
        # One deployment has one secret; each of these processes would otherwise make its own.
        body = chat_body("two machines", stream=True)

        async def ask() -> list[Answer]:
            return await asyncio.gather(
                *(
                    post(
                        (first, second)[number % 2].url,
                        body,
                        baggage=in_baggage("delay=1000; tokens=10"),
                    )
                    for number in range(40)
                )
            )

        answers = asyncio.run(ask())
        assert all(answer.complete for answer in answers)
        assert len({text_of(answer) for answer in answers}) == 1
        assert calls(first) == 1


def _await_workers(proxy: Proxy, count: int) -> None:
    import time

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        detail = proxy.get("/readyz", admin=True).json["components"][0]["detail"]
        if detail == f"{count} of {count} ready":
            return
        time.sleep(0.1)
    raise AssertionError("the workers did not start")


def _upstream_of(proxy: Proxy) -> str:
    command = proxy.process.args
    assert isinstance(command, list)
    return str(command[command.index("--upstream") + 1])


@pytest.fixture
def redis_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import subprocess
    import time

    from proxy import free_port

    monkeypatch.setenv("TRIVET_SECRET", "0123456789abcdef" * 4)
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()
