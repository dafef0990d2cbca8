from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from console_parts import KEY, SHA256, Telling, client

import trivet.middleware.console
from trivet.errors import StoreError
from trivet.middleware.admin.port import AdminApp
from trivet.middleware.console import events

STATIC = Path(trivet.middleware.console.__file__).parent / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
AUTH = {"authorization": f"Bearer {KEY}"}
MOST = 300_000
"""Bytes of a page with all its parts."""


def source(suffix: str) -> list[Path]:
    return [path for path in FILES if path.suffix == suffix]


@pytest.mark.parametrize("path", ["/trivet/ui", "/trivet/ui/", "/trivet/ui/overview"])
async def test_the_shell_is_there_for_whoever_asks(path: str) -> None:
    reply = await client().get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
async def test_each_file_has_a_strong_tag_that_spares_the_next_download(file: Path) -> None:
    browser = client()
    path = f"/trivet/ui/static/{file.relative_to(STATIC)}"
    reply = await browser.get(path)
    assert (reply.status_code, reply.content) == (200, file.read_bytes())
    tag = reply.headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    again = await browser.get(path, headers={"if-none-match": f'"x", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["../app.py", "pages/../../app.py", "%2e%2e/app.py", "nothing.js", "pages", "app.py"]
)
async def test_nothing_but_the_static_files_is_served(name: str) -> None:
    reply = await client().get(f"/trivet/ui/static/{name}")
    assert b"ConsoleApp" not in reply.content
    assert reply.status_code in (404, 200, 401)
    assert reply.status_code != 200 or reply.content.startswith(b"<!doctype html>")


def test_no_page_is_larger_than_300_kilobytes() -> None:
    shell = sum(len(path.read_bytes()) for path in FILES if path.parent == STATIC)
    pages = [len(path.read_bytes()) for path in FILES if path.parent != STATIC]
    assert shell + max(pages) < MOST


def test_no_text_is_ever_read_as_markup_or_code() -> None:
    unsafe = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        r"|DOMParser|createContextualFragment|setHTML"
    )
    for path in source(".js"):
        assert not unsafe.search(path.read_text()), path.name


def test_nothing_comes_from_elsewhere() -> None:
    for path in [*source(".html"), *source(".css"), *source(".js")]:
        found = re.findall(r"https?://[\w./-]+", path.read_text())
        assert set(found) <= {"http://www.w3.org/2000/svg", "http://localhost."}, path.name


def test_the_shell_has_no_inline_script_or_style() -> None:
    shell = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", shell)


async def test_an_unknown_page_and_a_wrong_method_are_told_in_words() -> None:
    browser = client()
    reply = await browser.get("/trivet/ui/api/nothing", headers=AUTH)
    assert reply.json()["error"]["message"] == "The console has no page 'nothing' to GET."
    assert (await browser.put("/trivet/ui/api/explain", headers=AUTH)).status_code == 405
    assert (await browser.post("/trivet/ui", headers=AUTH)).status_code == 405
    bad = await browser.post("/trivet/ui/api/explain", headers=AUTH, content=b"{")
    assert bad.status_code == 422


async def test_a_body_beyond_the_bound_is_refused() -> None:
    text = b'{"request":"' + b"x" * (5 << 20) + b'"}'
    reply = await client().post("/trivet/ui/api/explain", headers=AUTH, content=text)
    assert reply.status_code == 413


async def test_a_store_in_trouble_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Telling()

    async def fails(topic: str, asked: Any = None) -> list[Any]:
        raise StoreError("timeout", "no answer")

    monkeypatch.setattr(control, "tell", fails)
    reply = await client(control).get("/trivet/ui/api/explain", headers=AUTH)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "timeout")


async def test_a_defect_is_told_without_its_words() -> None:
    control = Telling({"recent": [[["too short"]]]})
    reply = await client(control).get("/trivet/ui/api/explain/one?id=x", headers=AUTH)
    told = "Trivet failed to answer (IndexError); its log says more."
    assert (reply.status_code, reply.json()["error"]["message"]) == (500, told)


class Feeding:
    """The events that an ASGI app sends, until the caller goes."""

    def __init__(self, control: Telling) -> None:
        self.app = AdminApp(control, SHA256)
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def run(self, query: bytes = b"range=1h") -> None:
        path = "/trivet/ui/events"
        headers = [(b"host", b"h"), (b"authorization", AUTH["authorization"].encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
        await self.app({**scope, "headers": headers}, self.receive, self.send)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.sent.put(message)


async def test_the_overview_is_sent_again_and_again_until_the_caller_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "PERIOD_S", 0.02)
    monkeypatch.setattr(events, "_LOOK_S", 0.01)
    feed = Feeding(Telling())
    running = asyncio.create_task(feed.run())
    start = await feed.sent.get()
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    for _ in range(2):
        body = (await feed.sent.get())["body"]
        assert body.startswith(b"event: overview\ndata: ")
        assert body.endswith(b"\n\n")
        assert orjson.loads(body.split(b"data: ")[1])["range"] == "1h"
    feed.gone.set()
    await asyncio.wait_for(running, 2)


async def test_a_feed_ends_when_the_proxy_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LOOK_S", 0.01)
    control = Telling()
    feed = Feeding(control)
    running = asyncio.create_task(feed.run())
    await feed.sent.get()
    await feed.sent.get()
    control.draining = True
    await asyncio.wait_for(running, 2)
    assert feed.sent.get_nowait() == {"type": "http.response.body", "body": b""}


async def test_trouble_is_an_event_of_its_own() -> None:
    feed = Feeding(Telling())
    running = asyncio.create_task(feed.run(b"range=2y"))
    await feed.sent.get()
    assert (await feed.sent.get())["body"].startswith(b"event: problem\n")
    feed.gone.set()
    await asyncio.wait_for(running, 2)


async def test_a_seventeenth_feed_is_refused() -> None:
    feed = Feeding(Telling())
    running = [asyncio.create_task(feed.run()) for _ in range(16)]
    for _ in range(32):
        await feed.sent.get()
    await feed.run()
    assert (await feed.sent.get())["status"] == 503
    feed.gone.set()
    await asyncio.wait_for(asyncio.gather(*running), 2)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--([a-z-]+): light-dark\((#\w{6}), (#\w{6})\)", (STATIC / "style.css").read_text()
    )
}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "panel", "hover"])
@pytest.mark.parametrize("name", ["text", "dim", "accent", "good", "bad", "warn"])
def test_text_stands_out_from_what_is_behind_it(name: str, ground: str, scheme: int) -> None:
    assert contrast(COLOURS[name][scheme], COLOURS[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("name", "ground"),
    [
        ("on-accent", "accent"),
        ("bad", "bad-ground"),
        ("text", "warn-ground"),
        ("text", "bad-ground"),
    ],
)
def test_text_on_colour_stands_out_too(name: str, ground: str, scheme: int) -> None:
    assert contrast(COLOURS[name][scheme], COLOURS[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_edges_of_controls_can_be_seen(scheme: int) -> None:
    assert contrast(COLOURS["edge"][scheme], COLOURS["panel"][scheme]) >= 3
