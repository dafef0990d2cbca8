"""The data plane's HTTP client against real servers: uvicorn, TLS by OpenSSL, nginx."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn_thread import in_thread

from trivet.errors import UpstreamError
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient

LARGE = bytes(range(256)) * 40_000
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
pytestmark = pytest.mark.parametrize("loop", list(LOOPS))


def run(loop: str, test: Callable[[UpstreamClient], Coroutine[Any, Any, None]]) -> None:
    """Run `test` with a client that is closed after it; no task may be left."""

    async def main() -> None:
        client = UpstreamClient()
        try:
            await test(client)
        finally:
            await client.close()
            assert client._client.pool.size == 0
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


def upstream_at(url: str, **options: Any) -> UpstreamConfig:
    return UpstreamConfig.model_validate({"name": "real", "base_url": url, **options})


async def get(client: UpstreamClient, upstream: UpstreamConfig, target: str = "/") -> bytes:
    response = await client.send(upstream, "GET", target, [], b"")
    try:
        return await response.read()
    finally:
        response.close()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body's digest; `/stream` sends pieces, `/cut` breaks off within them."""
    digest, size, more = hashlib.sha256(), 0, True
    while more:
        message = await receive()
        digest.update(message.get("body", b""))
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    headers = [(b"x-size", str(size).encode()), (b"x-digest", digest.hexdigest().encode())]
    if scope["path"] == "/large":
        headers.append((b"content-length", str(len(LARGE)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] == "/large":
        await send({"type": "http.response.body", "body": LARGE})
        return
    for number in range(5):
        await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
        await asyncio.sleep(0.005)
        if number == 2 and scope["path"] == "/cut":
            return
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def uvicorn_at(**options: Any) -> Iterator[str]:
    """A real uvicorn in a thread; its base URL."""
    config = uvicorn.Config(
        echo, port=0, log_level="critical", lifespan="off", ws="none", http="httptools", **options
    )
    with in_thread(config) as url:
        yield url


async def in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 70_000):
        yield data[start : start + 70_000]


def test_uvicorn_reads_every_kind_of_body_over_one_connection(loop: str) -> None:
    async def test(client: UpstreamClient) -> None:
        length = (b"content-length", str(len(LARGE)).encode())
        cases: list[tuple[str, list[tuple[bytes, bytes]], Any]] = [
            ("POST", [], b"small"),
            ("POST", [], LARGE),
            ("POST", [], in_pieces(LARGE)),
            ("PUT", [length], in_pieces(LARGE)),
            ("GET", [], b""),
        ]
        for method, fields, body in cases:
            sent = body if isinstance(body, bytes) else LARGE
            response = await client.send(upstream, method, "/stream", fields, body)
            headers = dict(response.headers)
            assert headers[b"x-size"] == str(len(sent)).encode()
            assert headers[b"x-digest"] == hashlib.sha256(sent).hexdigest().encode()
            assert await response.read() == b"01234"
            response.close()
        assert client._client.pool.size == 1

    with uvicorn_at() as url:
        upstream = upstream_at(url)
        run(loop, test)


def test_a_large_answer_of_uvicorn_arrives_whole(loop: str) -> None:
    async def test(client: UpstreamClient) -> None:
        assert await get(client, upstream_at(url), "/large") == LARGE
        head = await client.send(upstream_at(url), "HEAD", "/large", [], b"")
        assert dict(head.headers)[b"content-length"] == str(len(LARGE)).encode()
        assert await head.read() == b""
        head.close()

    with uvicorn_at() as url:
        run(loop, test)


def test_an_answer_that_uvicorn_breaks_off_is_cut(loop: str) -> None:
    async def test(client: UpstreamClient) -> None:
        with pytest.raises(UpstreamError) as caught:
            await get(client, upstream_at(url), "/cut")
        assert caught.value.reason == "upstream-cut"

    with uvicorn_at() as url:
        run(loop, test)


def test_two_hundred_requests_at_once_and_again(loop: str) -> None:
    async def test(client: UpstreamClient) -> None:
        for _ in range(2):
            answers = await asyncio.gather(*(get(client, upstream_at(url)) for _ in range(200)))
            assert set(answers) == {b"01234"}
        assert client._client.pool.size == client._client.pool.idle == 200

    with uvicorn_at() as url:
        run(loop, test)


def test_connections_that_uvicorn_lets_go_of_cost_no_request(loop: str) -> None:
    async def test(client: UpstreamClient) -> None:
        await get(client, upstream_at(url))
        assert client._client.pool.idle == 1
        async with asyncio.timeout(10):
            while client._client.pool.size:
                await asyncio.sleep(0.01)
        assert await get(client, upstream_at(url)) == b"01234"

    with uvicorn_at(timeout_keep_alive=1) as url:
        run(loop, test)


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA, and a certificate of it for localhost."""
    folder = tmp_path_factory.mktemp("ca")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
        "-subj", "/CN=Test CA", "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    openssl(
        "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"
    )  # fmt: skip
    (folder / "names.ext").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-CAcreateserial", "-days", "2", "-extfile", "names.ext", "-out", "server.pem",
    )  # fmt: skip
    return folder


@asynccontextmanager
async def tls_server(
    folder: Path, answer: bytes, *, notify: bool = True
) -> AsyncIterator[tuple[str, list[tuple[str | None, str | None]]]]:
    """Sends `answer` to each request; yields its URL, and (SNI, ALPN) of its connections.

    Without `notify` it ends the TCP connection with no TLS closure alert.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    seen: list[tuple[str | None, str | None]] = []
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.append((names[-1], writer.get_extra_info("ssl_object").selected_alpn_protocol()))
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
                await writer.drain()
                if b"content-length" in answer:
                    continue
                if notify:
                    writer.close()
                    await writer.wait_closed()
                else:
                    await asyncio.sleep(0.05)
                return
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"https://localhost:{port}", seen
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks))
        await server.wait_closed()
        await asyncio.sleep(0.05)


WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LARGE) + LARGE
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nhi"


def test_tls_is_verified_against_the_given_authority_and_kept(
    loop: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: UpstreamClient) -> None:
        async with tls_server(authority, WHOLE) as (url, seen):
            for _ in range(3):
                assert await get(client, upstream_at(url)) == LARGE
            assert seen == [("localhost", "http/1.1")]
            response = await client.send(upstream_at(url), "GET", "/", [], b"")
            response.close()

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    run(loop, test)


def test_an_authority_that_is_not_known_is_not_trusted(loop: str, authority: Path) -> None:
    async def test(client: UpstreamClient) -> None:
        async with tls_server(authority, WHOLE) as (url, seen):
            with pytest.raises(UpstreamError) as caught:
                await get(client, upstream_at(url))
            assert caught.value.reason == "upstream-refused"
            assert "certificate" in caught.value.message
            assert seen == []

    run(loop, test)


def test_a_certificate_for_another_name_is_not_trusted(
    loop: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: UpstreamClient) -> None:
        async with tls_server(authority, WHOLE) as (url, _):
            with pytest.raises(UpstreamError) as caught:
                await get(client, upstream_at(url.replace("localhost", "127.0.0.1")))
            assert caught.value.reason == "upstream-refused"
            assert "127.0.0.1" in caught.value.message

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    run(loop, test)


@pytest.mark.parametrize("notify", [True, False])
def test_over_tls_only_a_closure_alert_ends_a_body_without_length(
    loop: str, authority: Path, monkeypatch: pytest.MonkeyPatch, notify: bool
) -> None:
    async def test(client: UpstreamClient) -> None:
        async with tls_server(authority, ENDLESS, notify=notify) as (url, _):
            if notify:
                assert await get(client, upstream_at(url)) == b"hi"
                return
            with pytest.raises(UpstreamError) as caught:
                await get(client, upstream_at(url))
            assert caught.value.reason == "upstream-cut"

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    run(loop, test)


@pytest.mark.parametrize(
    ("said", "seconds", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 30.0, "upstream-refused"),
        (b"", 30.0, "upstream-refused"),
        (None, 0.2, "upstream-connect"),
    ],
)
def test_a_port_that_speaks_no_tls_is_given_up(
    loop: str, said: bytes | None, seconds: float, reason: str
) -> None:
    async def test(client: UpstreamClient) -> None:
        over = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            if said is None:
                await reader.read()
            else:
                writer.write(said)
            writer.close()
            over.set()

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            upstream = upstream_at(f"https://127.0.0.1:{port}", connect_timeout=seconds)
            with pytest.raises(UpstreamError) as caught:
                await get(client, upstream)
            assert caught.value.reason == reason
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 5)
            await asyncio.sleep(0.02)

    run(loop, test)


def test_a_cancelled_handshake_leaves_nothing(
    loop: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(client: UpstreamClient) -> None:
        async with tls_server(authority, WHOLE) as (url, _):
            await get(client, upstream_at(url))
            for steps in range(0, 30, 2):
                response = await client.send(upstream_at(url), "GET", "/", [], b"")
                task = asyncio.create_task(get(client, upstream_at(url)))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                response.close()
            assert await get(client, upstream_at(url)) == LARGE

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    run(loop, test)


def test_no_tls_context_is_made_for_plain_upstreams(loop: str) -> None:
    program = (
        "import asyncio, uvloop\n"
        "from trivet.middleware.upstream import UpstreamClient\n"
        "async def main():\n"
        "    client = UpstreamClient()\n"
        "    assert client._client._tls._made is None\n"
        "    await client.close()\n"
        f"with asyncio.Runner(loop_factory={LOOPS[loop].__module__}.new_event_loop) as runner:\n"
        "    runner.run(main())\n"
        "import sys\n"
        "assert 'aiohttp' not in sys.modules and 'yarl' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# nginx.


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_serves_and_limits_bodies(loop: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "page").write_bytes(LARGE)
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"user root; daemon off; pid {tmp_path}/pid; error_log stderr;\n"
        "events {}\n"
        "http { access_log off; client_body_temp_path body; proxy_temp_path proxy;\n"
        "fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"
        f"server {{ listen 127.0.0.1:{port}; root {tmp_path}; client_max_body_size 1k; }} }}\n"
    )
    server = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(config)])

    async def test(client: UpstreamClient) -> None:
        upstream = upstream_at(f"http://127.0.0.1:{port}")
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await get(client, upstream, "/page") == LARGE
                    break
                except UpstreamError:
                    await asyncio.sleep(0.05)
        response = await client.send(upstream, "POST", "/page", [], LARGE)
        assert response.status == 413
        response.close()
        assert await get(client, upstream, "/page") == LARGE

    try:
        run(loop, test)
    finally:
        server.terminate()
        server.wait(10)
