import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from trivet.middleware.admin.client import AdminClient, AdminError


@contextmanager
def server(
    status: int = 200, body: bytes = b"{}", headers: dict[str, str] | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers everything alike, its URL, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            sent = json.loads(self.rfile.read(size)) if size else None
            asked.append((self.command, self.path, sent, self.headers.get("authorization")))
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", asked
        finally:
            running.shutdown()
            thread.join()


def test_a_purge_sends_what_was_given_and_the_key() -> None:
    with server(body=b'{"tenant":"acme","deleted":7}') as (url, asked):
        assert AdminClient(url, "k").purge("acme", tag="doc-1") == 7
    assert asked == [
        ("POST", "/trivet/purge", {"tenant": "acme", "tag": "doc-1"}, "Bearer k"),
    ]


def test_without_a_key_no_credential_is_sent() -> None:
    with server(body=b'{"entries":3}') as (url, asked):
        assert AdminClient(f"{url}/").stats() == {"entries": 3}
    assert asked == [("GET", "/trivet/stats", None, None)]


def test_a_path_prefix_is_kept() -> None:
    with server() as (url, asked):
        AdminClient(f"{url}/admin/").stats()
    assert asked[0][1] == "/admin/trivet/stats"


def test_a_refused_reload_is_an_answer() -> None:
    with server(422, b'{"ok":false,"version":"v1","problems":2}') as (url, _):
        assert AdminClient(url).reload() == {"ok": False, "version": "v1", "problems": 2}


def test_an_explanation_sends_the_exact_text() -> None:
    with server() as (url, asked):
        AdminClient(url).explain("/v1/messages", {"a": "b"}, b'{"x": 1.0}')
    assert asked[0][2] == {"path": "/v1/messages", "headers": {"a": "b"}, "body": '{"x": 1.0}'}


def test_a_request_that_is_no_text_is_refused_before_it_is_sent() -> None:
    with pytest.raises(AdminError, match="not valid UTF-8 at byte 1"):
        AdminClient().explain("/", {}, b"a\xff")


def test_a_wrong_key_is_one_sentence() -> None:
    with server(401, b'{"error":{"message":"no"}}') as (url, _):
        with pytest.raises(AdminError) as caught:
            AdminClient(url, "wrong").stats()
        assert str(caught.value) == f"{url} refused the admin key (401)."
        assert caught.value.status == 401


def test_a_key_that_was_not_given_is_asked_for() -> None:
    with server(401, b'{"error":{"message":"no"}}') as (url, _):
        with pytest.raises(AdminError) as caught:
            AdminClient(url).stats()
        wanted = f"{url} wants the admin key (401): give --admin-key, or set TRIVET_ADMIN_KEY."
        assert str(caught.value) == wanted


def test_an_error_of_the_api_is_passed_on() -> None:
    with server(422, b'{"error":{"message":"tenant: Field required.","field":"tenant"}}') as (
        url,
        _,
    ):
        with pytest.raises(AdminError) as caught:
            AdminClient(url).purge("")
        assert str(caught.value) == f"{url} answered 422: tenant: Field required."


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(AdminError) as caught:
            AdminClient(url).stats()
    assert str(caught.value) == (
        f"{url} is not reachable (Connection refused); is trivet serve running there?"
    )
    assert caught.value.status is None


def test_a_server_that_does_not_answer_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AdminError, match=r"did not answer within 0\.05 s\.$"):
            AdminClient(url, timeout_s=0.05).stats()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"null"])
def test_an_answer_that_is_not_ours_is_one_sentence(body: bytes) -> None:
    with server(200, body) as (url, _), pytest.raises(AdminError, match="is that a Trivet admin"):
        AdminClient(url).stats()


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with server() as (elsewhere, seen), server(302, b"", {"Location": elsewhere}) as (url, _):
        with pytest.raises(AdminError, match="answered 302"):
            AdminClient(url, "k").stats()
        assert seen == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with server(body=b'{"a":1}') as (url, _):
        assert AdminClient(url).stats() == {"a": 1}


@pytest.mark.parametrize("url", ["", "127.0.0.1:8081", "ftp://x", "http://", "http://x:99999"])
def test_what_is_no_url_is_said_at_once(url: str) -> None:
    with pytest.raises(AdminError, match=r"URL|port"):
        AdminClient(url)


def test_a_name_that_does_not_resolve_is_one_sentence() -> None:
    with pytest.raises(AdminError, match="is not reachable"):
        AdminClient("http://name.invalid").stats()


@pytest.mark.parametrize("key", ["a\nb", "ключ", "a\r\nX: y"])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    with pytest.raises(AdminError, match="admin key holds"):
        AdminClient(key=key)


def test_a_password_in_the_url_is_not_repeated_in_errors() -> None:
    with pytest.raises(AdminError) as caught:
        AdminClient("http://user:secret@name.invalid").stats()
    assert "secret" not in str(caught.value)
