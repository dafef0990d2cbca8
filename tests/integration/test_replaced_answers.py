"""Answers that another takes the place of, and purges that meet answers under way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, Reply, chat_body, request, serving
from redis_servers import running as redis_running
from trouble_rig import until

from trivet.middleware.mock_upstream.run import running


@pytest.fixture(params=["sqlite", "redis"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Proxy, Proxy]]:
    """Two proxies over one store, each with memory in front of it."""
    env = {"TRIVET_SECRET": "s" * 64}
    with running() as (upstream, mock), redis_running(tmp_path / "redis") as server:
        place = server.url if request.param == "redis" else f"sqlite:{tmp_path / 'c.sqlite'}"
        with (
            serving(upstream, store=place, env=env) as one,
            serving(upstream, store=place, env=env) as other,
        ):
            one.mock = other.mock = mock
            yield one, other


OLDER_S = 4
"""Ages are whole seconds: an answer that is so much older than another is told from it."""


def age(reply: Reply) -> int:
    assert reply.exact["hit"] is True
    return int(reply.headers["age"])


def admin(proxy: Proxy, path: str, body: dict[str, Any]) -> Any:
    kind = {"content-type": "application/json"}
    reply = request("POST", proxy.admin + path, json.dumps(body).encode(), kind, 10.0)
    assert reply.status == 200, reply.body
    return reply.json


def told(proxy: Proxy, body: dict[str, Any]) -> tuple[str, str]:
    """Tenant and key of a request."""
    asked = {
        "path": "/v1/chat/completions",
        "headers": {"authorization": f"Bearer {proxy.key}", "content-type": "application/json"},
        "body": body,
    }
    explained = admin(proxy, "/trivet/explain", asked)
    return explained["tenant"], explained["keys"][0]


def test_a_refreshed_answer_is_given_by_the_other_process_too(two: tuple[Proxy, Proxy]) -> None:
    one, other = two
    one.chat("q")
    assert age(other.chat("q")) <= 3
    time.sleep(OLDER_S)
    one.chat("q", cache_control="no-cache")
    until(lambda: age(other.chat("q")) <= age(one.chat("q")) + 1, "the new answer is given", 10)


def test_a_tagged_hit_brings_no_older_answer_back(two: tuple[Proxy, Proxy]) -> None:
    one, other = two
    one.chat("q")
    other.chat("q")
    time.sleep(OLDER_S)
    one.chat("q", cache_control="no-cache")
    assert other.chat("q", trivet_tag="doc-1").exact["detail"] == "tags"
    until(lambda: age(one.chat("q")) <= 3, "no older answer is given", 3)


def test_a_purge_of_a_key_holds_for_an_answer_that_is_under_way(
    two: tuple[Proxy, Proxy],
) -> None:
    one, _ = two
    body = chat_body("slow", model="mock+delay=1500")
    tenant, key = told(one, body)
    asked = threading.Thread(target=one.post, args=("/v1/chat/completions", body))
    asked.start()
    mock = one.mock
    assert mock is not None
    until(lambda: mock.calls.total == 1, "the upstream is asked")
    admin(one, "/trivet/purge", {"tenant": tenant, "key": key})
    asked.join()
    for proxy in two:
        again = proxy.post("/v1/chat/completions", body, cache_control="only-if-cached")
        assert again.status == 504
