from __future__ import annotations

from typing import Any

import pytest
from console_parts import KEY, MARKED, ORIGIN, SHA256, Clock, Telling, client
from hypothesis import given
from hypothesis import strategies as st

from trivet.middleware.console import app as console_app
from trivet.middleware.console.sessions import SESSION_S, Opened, Sessions, set_cookie

SESSION = "/trivet/ui/session"
PAGE = "/trivet/ui/api/explain"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_app, "_WRONG_S", 0)


def scope(cookie: str | None = None, method: str = "GET", **headers: str) -> dict[str, Any]:
    named = {"host": "h:9000", **headers}
    if cookie is not None:
        named["cookie"] = f"other=1; trivet-session-9000={cookie}; last=2"
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return {"headers": raw, "method": method, "scheme": "http"}


def opened(sessions: Sessions) -> str:
    found = sessions.open(KEY, "peer")
    assert isinstance(found, Opened)
    return found.value


def test_a_session_holds_until_its_end_and_no_longer() -> None:
    clock = Clock()
    sessions = Sessions(SHA256, clock)
    value = opened(sessions)
    clock.at += SESSION_S - 1
    assert sessions.standing(scope(value)) == "open"
    clock.at += 2
    assert sessions.standing(scope(value)) == "none"


def test_a_restart_ends_all_sessions() -> None:
    assert Sessions(SHA256).standing(scope(opened(Sessions(SHA256)))) == "none"


def test_a_session_that_was_ended_does_not_hold() -> None:
    sessions = Sessions(SHA256)
    value = opened(sessions)
    sessions.end(scope(value))
    assert sessions.standing(scope(value)) == "none"
    assert sessions.standing(scope(opened(sessions))) == "open"


def test_a_cookie_of_another_ports_server_does_not_lock_the_operator_out() -> None:
    sessions = Sessions(SHA256)
    value = opened(sessions)
    name = "trivet-session-9000"
    raw = [(b"host", b"h:9000"), (b"cookie", f"{name}=junk; {name}={value}".encode())]
    assert sessions.standing({"headers": raw, "method": "GET"}) == "open"


@given(st.text(st.characters(max_codepoint=255), max_size=120))
def test_no_other_text_is_a_session(text: str) -> None:
    sessions = Sessions(SHA256)
    value = opened(sessions)
    raw = [(b"host", b"h:9000"), (b"cookie", f"trivet-session-9000={text}".encode("latin-1"))]
    stranger = {"headers": raw, "method": "GET"}
    assert text == value or sessions.standing(stranger) == "none"


def test_a_later_expiry_cannot_be_written_into_the_cookie() -> None:
    sessions = Sessions(SHA256)
    expires, _, rest = opened(sessions).partition(".")
    assert sessions.standing(scope(f"{int(expires) + 1}.{rest}")) == "none"


@pytest.mark.parametrize(
    ("headers", "standing"),
    [
        ({}, "foreign"),
        ({"x_trivet_console": "1"}, "foreign"),
        ({"sec_fetch_site": "same-origin"}, "foreign"),
        ({"x_trivet_console": "1", "sec_fetch_site": "same-origin"}, "open"),
        ({"x_trivet_console": "1", "sec_fetch_site": "same-site"}, "foreign"),
        ({"x_trivet_console": "1", "sec_fetch_site": "none"}, "foreign"),
        ({"x_trivet_console": "1", "origin": "http://h:9000"}, "open"),
        ({"x_trivet_console": "1", "origin": "http://h:9001"}, "foreign"),
        ({"x_trivet_console": "1", "origin": "null"}, "foreign"),
        (
            {"x_trivet_console": "1", "origin": "http://h:9000", "sec_fetch_site": "cross-site"},
            "foreign",
        ),
    ],
)
def test_what_changes_something_has_to_come_from_the_console(
    headers: dict[str, str], standing: str
) -> None:
    sessions = Sessions(SHA256)
    value = opened(sessions)
    assert sessions.standing(scope(value, "POST", **headers)) == standing


def test_ten_wrong_keys_a_minute_are_looked_at_from_one_address() -> None:
    clock = Clock()
    sessions = Sessions(SHA256, clock)
    assert [sessions.open("no", "a") for _ in range(11)] == ["wrong"] * 10 + ["too-many"]
    assert sessions.open(KEY, "a") == "too-many"
    assert isinstance(sessions.open(KEY, "b"), Opened)
    clock.at += 61
    assert isinstance(sessions.open(KEY, "a"), Opened)


def test_the_cookie_is_for_this_port_and_this_path_and_no_script() -> None:
    name, value = set_cookie(scope(), "v", 60)
    assert (name, value) == (
        b"set-cookie",
        b"trivet-session-9000=v; Path=/trivet/; Max-Age=60; HttpOnly; SameSite=Strict",
    )
    secure = set_cookie(scope(x_forwarded_proto="https"), "v", 60)[1]
    assert secure.endswith(b"; Secure")


async def test_whoever_logs_in_sees_pages_and_may_act_until_the_logout() -> None:
    control = Telling()
    async with client(control) as browser:
        assert (await browser.get(PAGE)).status_code == 401
        login = await browser.post(SESSION, json={"key": KEY}, headers=MARKED)
        assert login.status_code == 204
        assert "; Secure" in login.headers["set-cookie"]
        assert (await browser.get(PAGE)).status_code == 200
        body = {"tenant": "acme"}
        refused = await browser.post("/trivet/purge", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign")
        assert ("purge", "acme") not in control.calls
        assert (await browser.post("/trivet/purge", json=body, headers=MARKED)).status_code == 200
        assert (await browser.delete(SESSION, headers=MARKED)).status_code == 204
        assert (await browser.get(PAGE)).status_code == 401


async def test_a_wrong_key_opens_nothing() -> None:
    async with client() as browser:
        reply = await browser.post(SESSION, json={"key": "no"}, headers=MARKED)
        assert (reply.status_code, "set-cookie" in reply.headers) == (401, False)


async def test_a_foreign_page_may_not_log_in_or_out() -> None:
    async with client() as browser:
        foreign = {"x-trivet-console": "1", "origin": "https://evil.example"}
        reply = await browser.post(SESSION, json={"key": KEY}, headers=foreign)
        assert reply.status_code == 403
        assert (await browser.delete(SESSION, headers=foreign)).status_code == 403


async def test_a_wrong_bearer_is_refused_whatever_the_cookie() -> None:
    async with client() as browser:
        await browser.post(SESSION, json={"key": KEY}, headers=MARKED)
        reply = await browser.get(PAGE, headers={"authorization": "Bearer no"})
        assert reply.status_code == 401


async def test_a_bearer_needs_no_mark_of_the_console() -> None:
    async with client() as browser:
        headers = {"authorization": f"Bearer {KEY}"}
        reply = await browser.post("/trivet/purge", json={"tenant": "acme"}, headers=headers)
        assert reply.status_code == 200


async def test_without_a_key_only_this_machine_sees_data_and_there_is_no_login() -> None:
    async with client(key=None) as browser:
        assert (await browser.get("/trivet/ui")).status_code == 200
        assert (await browser.get(PAGE)).status_code == 403
        told = (await browser.get(SESSION)).json()
        assert (told["open"], told["login"]) == (False, "none")
        assert (await browser.post(SESSION, json={"key": ""}, headers=MARKED)).status_code == 409
    async with client(key=None, url="http://localhost:9000", peer="127.0.0.1") as browser:
        assert (await browser.get(PAGE)).status_code == 200
        assert (await browser.get(SESSION)).json()["open"] is True


async def test_a_session_of_another_port_of_this_host_is_none_here() -> None:
    async with client(url=f"{ORIGIN}:9000") as browser:
        await browser.post(SESSION, json={"key": KEY}, headers=MARKED)
        (name,) = browser.cookies.keys()
        assert name == "trivet-session-9000"
