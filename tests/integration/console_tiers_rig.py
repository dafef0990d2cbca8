"""A proxy with similar answers, broken prefixes and replicas, for the console's pages to show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from embeddings_server import EmbeddingsServer
from playwright.sync_api import ConsoleMessage, Page, sync_playwright
from proxy import Proxy, Reply
from semantic_rig import asked, hits, learns, measured, name_of, policy, semantic_proxy, write

from trivet.middleware.mock_upstream.run import running

RULES = "Answer in the language of the question, in short sentences. " * 60
HOSTILE = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
COSTS = {"call_cost": 0.02, "lookup_cost": 0.0001, "false_hit_cost": 1.0}


def curve() -> list[dict[str, float]]:
    """What a sweep over 2,000 pairs looks like."""
    points = []
    for at in range(61):
        threshold = 0.4 + at / 100
        hits_there = int(1600 * (1 - at / 62))
        points.append(
            {
                "threshold": round(threshold, 3),
                "hits": hits_there,
                "false_hits": int(hits_there * max(0.0, 0.30 * (1 - at / 30)) ** 1.6),
            }
        )
    return points


def policies(folder: Path, server: EmbeddingsServer) -> Path:
    """`acme` serves and lets texts be kept; `globex` watches and does not; `initech` lets a person
    judge; `quiet` has no traffic."""
    embedder = {"embedder": name_of(server)}
    person = {"share": 1, "judge": {"kind": "person"}}
    same = {"share": 1, "judge": {"kind": "embedder", "threshold": -1}}
    files = {
        "acme.yaml": policy(
            "acme",
            {**embedder, "store_text": True, "economics": COSTS, "audit": same},
            prefix={"keep_text": True},
        ),
        "globex.yaml": policy("globex", {**embedder, "mode": "shadow"}),
        "initech.yaml": policy("initech", {**embedder, "store_text": True, "audit": person}),
        "quiet.yaml": policy("quiet", {**embedder, "calibration": None}),
        "cal.json": measured(server, curve=curve()).model_dump_json(),
    }
    return write(folder / "policies", files)


def config(urls: Mapping[str, Any], **more: Any) -> str:
    """A server config: an upstream of the default kind, one with marks, one with two replicas."""
    upstreams = [
        {"name": "llm", "base_url": urls["llm"]},
        {"name": "claude", "base_url": urls["claude"], "cache": "anthropic", "prefix": "/claude"},
        {"name": "fleet", "base_url": urls["one"], "replicas": [urls["two"]], "prefix": "/fleet"},
    ]
    return yaml.safe_dump({"upstreams": upstreams, **more})


@contextmanager
def console_proxy(
    folder: Path, server: EmbeddingsServer, store: str = "memory", **more: Any
) -> Iterator[Proxy]:
    """The proxy, without an admin key: this machine needs no login."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(running())[0] for name in ("llm", "one", "two")}
        urls["claude"] = stack.enter_context(running(provider="anthropic"))[0]
        made = policies(folder, server)
        env = {"XDG_STATE_HOME": str(folder / "state")}
        yield stack.enter_context(
            semantic_proxy(made, store=store, config=config(urls, **more), env=env)
        )


def hit(proxy: Proxy, topic: str, verb: str = "can", tenant: str = "acme") -> Reply:
    """A similar answer is served for another wording."""
    reply = proxy.chat(asked(topic, verb), key=f"sk-{tenant}")
    assert hits(reply)
    return reply


def teach(proxy: Proxy, topic: str, tenant: str = "acme") -> None:
    """The question is in the index."""
    learns(proxy, asked(topic), key=f"sk-{tenant}")


def message(proxy: Proxy, clock: str, tenant: str = "acme", route: str = "support") -> Reply:
    """A call to the upstream with marks, whose system prompt has a clock in it."""
    body = {
        "model": "claude-opus-5",
        "max_tokens": 16,
        "system": f"You help people with trivets. {HOSTILE} It is {clock}. {RULES}",
        "tools": [tool(name) for name in ("orders", "stock")],
        "messages": [{"role": "user", "content": f"What is new at {clock}?"}],
    }
    return proxy.post(
        "/claude/v1/messages", body, key=f"sk-{tenant}", trivet_route=route, x_api_key="k"
    )


def steady(proxy: Proxy, number: int, tenant: str = "acme", route: str = "support") -> Reply:
    """A call of the same route whose beginning stays the same."""
    return message_of(proxy, f"Question {number}?", tenant, route)


def message_of(proxy: Proxy, text: str, tenant: str, route: str) -> Reply:
    """A call with the same tools and system prompt and this question."""
    body = {
        "model": "claude-opus-5",
        "max_tokens": 16,
        "system": f"You help people with trivets. {RULES}",
        "tools": [tool(name) for name in ("orders", "stock")],
        "messages": [{"role": "user", "content": text}],
    }
    return proxy.post(
        "/claude/v1/messages", body, key=f"sk-{tenant}", trivet_route=route, x_api_key="k"
    )


def tool(name: str) -> dict[str, Any]:
    """A tool of some 300 tokens."""
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    return {"name": name, "description": f"Finds {name} by words. " * 40, "input_schema": schema}


def fleet_call(proxy: Proxy, number: int) -> Reply:
    """A call to the upstream with replicas."""
    body = {
        "model": "mock",
        "temperature": 0,
        "messages": [
            {"role": "system", "content": RULES},
            {"role": "user", "content": f"{number}"},
        ],
    }
    return proxy.post("/fleet/v1/chat/completions", body, key="sk-acme", trivet_route="fleet")


def page(proxy: Proxy, path: str) -> Any:
    """A page's JSON."""
    reply = proxy.get(f"/trivet/ui/api/{path}", admin=True)
    assert reply.status == 200, reply.body
    return reply.json


def labels(folder: Path, tenant: str) -> list[dict[str, Any]]:
    """What a person's verdicts were written down as."""
    file = folder / "state" / "trivet" / "labels" / "judged" / f"{tenant}.jsonl"
    return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


CHROMIUM = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Look:
    """A browser's page of a console."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.troubles: list[str] = []
        """What the browser complained about."""
        self._root = root
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))

    def at(self, path: str, waiting: str = ".page .panel") -> None:
        """Go to a page of the console, and wait until it is drawn."""
        self.page.goto(f"{self._root}/{path}")
        self.page.wait_for_selector(waiting)
        if waiting != ".empty":
            self.page.wait_for_selector("#said:not(:empty)", state="attached")

    @property
    def text(self) -> str:
        """What can be read in it."""
        return self.page.inner_text("main")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)


@contextmanager
def looking(proxy: Proxy) -> Iterator[Look]:
    """A browser on this machine."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(15_000)
            yield Look(page, f"{proxy.admin}/trivet/ui")
        finally:
            browser.close()
