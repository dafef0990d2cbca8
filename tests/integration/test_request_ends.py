"""A request ends where its head says, whatever other protocol it offers: no body is a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx_rig import needs_nginx, nginx
from proxy import Proxy, chat_body, serving
from raw_http import Answer, connect, head, read_answer

OFFER = {"connection": "Upgrade", "upgrade": "foo"}
OFFERS_GO_ON = """\
      proxy_pass http://trivet;
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
"""
KEPT = """\
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream trivet {{ server {target}; keepalive 1; }}
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving() as running:
        yield running


def data(text: str) -> bytes:
    return json.dumps(chat_body(text, model="mock+echo")).encode()


def inner(proxy: Proxy, text: str) -> bytes:
    """A whole request of mallory's, to be sent as the body of another."""
    body = data(text)
    return head(proxy.url, body, authorization="Bearer sk-mallory") + body


def said(answer: Answer) -> str:
    return str(json.loads(answer.body)["choices"][0]["message"]["content"])


async def in_turn(url: str, *requests: list[bytes]) -> list[Answer]:
    """One request after the other on one connection, each in the pieces given."""
    reader, writer = await connect(url)
    answers = []
    for pieces in requests:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        answers.append(await asyncio.wait_for(read_answer(reader), 20))
    writer.close()
    return answers


def test_a_body_that_looks_like_a_request_is_nobodys_request(proxy: Proxy) -> None:
    assert proxy.mock is not None
    proxy.mock.calls.reset()
    hidden = inner(proxy, "smuggled")
    bob = data("bob asks")
    answers = asyncio.run(
        in_turn(
            proxy.url,
            [head(proxy.url, hidden, **OFFER), hidden],
            [head(proxy.url, bob, authorization="Bearer sk-bob") + bob],
        )
    )
    assert [answer.status for answer in answers] == [400, 200]
    assert "bob asks" in said(answers[1])
    assert proxy.mock.calls.total == 1


@pytest.mark.parametrize("cut", [30, 60, 200, 230, 260])
def test_an_offer_of_http_2_is_passed_over_and_the_request_is_answered(
    proxy: Proxy, cut: int
) -> None:
    body = data("an honest client")
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2_settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    }
    whole = head(proxy.url, body, **offer) + body
    (answer,) = asyncio.run(in_turn(proxy.url, [whole[:cut], whole[cut:]]))
    assert answer.status == 200
    assert "an honest client" in said(answer)


def test_a_refused_caller_leaves_no_request_behind(proxy: Proxy) -> None:
    hidden = inner(proxy, "left behind")
    sent = [head(proxy.url, hidden, path="/trivet/feedback", **OFFER), hidden]
    bob = data("bob again")
    answers = asyncio.run(in_turn(proxy.url, sent, [head(proxy.url, bob) + bob]))
    assert [answer.status for answer in answers] == [404, 200]
    assert "bob again" in said(answers[1])


def test_the_admin_port_reads_a_body_as_a_body(proxy: Proxy) -> None:
    hidden = f"GET /healthz HTTP/1.1\r\nhost: {proxy.admin[7:]}\r\n\r\n".encode()
    sent = [head(proxy.admin, hidden, path="/healthz", **OFFER), hidden]
    answers = asyncio.run(in_turn(proxy.admin, sent, [hidden]))
    assert [answer.status for answer in answers] == [405, 200]


def test_connect_is_refused_and_the_connection_ends(proxy: Proxy) -> None:
    async def ask() -> bytes:
        reader, writer = await connect(proxy.url)
        writer.write(b"CONNECT x:80 HTTP/1.1\r\nhost: x:80\r\n\r\n" + inner(proxy, "tunnelled"))
        found = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return found

    assert proxy.mock is not None
    proxy.mock.calls.reset()
    assert asyncio.run(ask()).startswith(b"HTTP/1.1 405 ")
    assert proxy.mock.calls.total == 0


def test_a_head_of_many_fields_is_refused_and_counted(proxy: Proxy) -> None:
    async def ask() -> bytes:
        reader, writer = await connect(proxy.url)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * 15_000 + b"\r\n")
        found = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return found

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 431 ")
    metrics = proxy.get("/metrics", admin=True).body
    assert b'trivet_heads_refused_total{reason="fields"} 1.0' in metrics


@needs_nginx
def test_nginx_that_passes_offers_on_hands_nobody_anothers_answer(
    proxy: Proxy, tmp_path: Path
) -> None:
    async def both(url: str, number: int) -> None:
        hidden = b"\r\n" * (40 * number) + inner(proxy, f"smuggled {number}")
        await in_turn(url, [head(url, hidden, **OFFER), hidden])
        bob = data(f"bob asks {number}")
        (answer,) = await in_turn(url, [head(url, bob, authorization="Bearer sk-bob") + bob])
        assert f"bob asks {number}" in said(answer)

    async def attack(url: str) -> None:
        for number in range(1, 20):
            await both(url, number)

    kept = KEPT.format(target=proxy.url.removeprefix("http://"))
    with nginx(tmp_path, proxy, OFFERS_GO_ON, http=kept) as fronted:
        asyncio.run(attack(fronted.url))
