"""A purge while a call is under way: who asks after it gets an answer that began after it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proxy import Proxy, chat_body, request, serving
from raw_http import Answer, post

from trivet.middleware.mock_upstream.commands import in_baggage
from trivet.middleware.mock_upstream.run import running

pytestmark = pytest.mark.waits
KEY = "sk-purged"
SLOW = in_baggage("delay=3000")


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    named = hashlib.sha256(KEY.encode()).hexdigest()
    (folder / "acme.yaml").write_text(f"tenant: acme\ncredentials: [{{sha256: {named}}}]\n")
    return folder


@pytest.fixture(params=["memory", "sqlite", "sqlite without memory in front"])
def proxy(request: pytest.FixtureRequest, policies: Path, tmp_path: Path) -> Iterator[Proxy]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'c.db'}"
    front = 0 if "without" in request.param else 1 << 20
    with running() as (url, mock):
        config = f"upstreams:\n  - {{name: mock, base_url: {url}}}\npolicies: {policies}\n"
        config += f"store: {{url: '{store}', front_bytes: {front}}}\nworkers: 2\n"
        with serving(None, store=store, config=config) as made:
            made.mock = mock
            wait_for(lambda: _workers(made) == "2 of 2 ready")
            yield made


def _workers(proxy: Proxy) -> str:
    return str(proxy.get("/readyz", admin=True).json["components"][0]["detail"])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def purge(proxy: Proxy) -> None:
    kind = {"content-type": "application/json"}
    told = request("POST", proxy.admin + "/trivet/purge", b'{"tenant": "acme"}', kind, 30.0)
    assert told.status == 200


def test_both_workers_make_one_new_call_after_a_purge(proxy: Proxy) -> None:
    assert proxy.mock is not None
    mock, body = proxy.mock, chat_body("what does the handbook say?")

    async def ask(count: int) -> list[Answer]:
        bearer = {"authorization": f"Bearer {KEY}", "baggage": SLOW}
        return await asyncio.gather(*(post(proxy.url, body, **bearer) for _ in range(count)))

    async def around() -> tuple[list[Answer], list[Answer]]:
        before = asyncio.create_task(ask(12))
        while not mock.calls.total:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(purge, proxy)
        after = await ask(12)
        return await before, after

    before, after = asyncio.run(around())
    assert {answer.status for answer in before + after} == {200}
    assert mock.calls.total == 2
    # What began before the purge was not kept, and what began after it was.
    assert [one for one in map(status, before) if "collapsed" not in one] == [
        "trivet-exact; fwd=miss; detail=purged"
    ]
    (led,) = [one for one in map(status, after) if "collapsed" not in one]
    assert "stored" in led


def status(answer: Answer) -> str:
    return answer.headers["cache-status"]
