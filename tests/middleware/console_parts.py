"""A running proxy that tells the console what it is told to tell."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from trivet.messages import Api, Usage
from trivet.middleware.admin.control import Component, Heard, Readiness, Said, Verdict
from trivet.middleware.admin.port import AdminApp
from trivet.middleware.console.history import History
from trivet.middleware.console.pages import Asked
from trivet.telemetry import PolicyReload, RequestDone

KEY = "admin-key"
SHA256 = hashlib.sha256(KEY.encode()).hexdigest()
ORIGIN = "https://admin.example"
MARKED = {"x-trivet-console": "1", "sec-fetch-site": "same-origin"}


class Telling:
    """A `Control` that answers from `told` and `shown`, and remembers what it was asked."""

    def __init__(self, told: Mapping[str, list[Any]] | None = None) -> None:
        self.told = dict(told or {})
        self.draining = False
        self.calls: list[tuple[Any, ...]] = []
        self.shown: dict[str, Any] = {"version": "v1", "tenants": {}}
        self.explained: dict[str, Any] = {"tenant": "acme"}
        self.checked: dict[str, Any] = {}

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        self.calls.append((topic, asked))
        return self.told.get(topic, [])

    async def ready(self) -> Readiness:
        return Readiness(True, (Component("server", True, "up"),))

    async def stats(self) -> dict[str, Any]:
        return {}

    async def metrics(self) -> bytes:
        return b""

    async def purge(
        self, tenant: str, *, tag: str | None, version: str | None, key: str | None
    ) -> int:
        self.calls.append(("purge", tenant))
        return 3

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        return {"id": hit, "verdict": verdict, "removed": False}

    async def verdicts(self, tenant: str, said: Sequence[Said]) -> list[Heard]:
        return []

    async def reload(self) -> PolicyReload:
        return PolicyReload(True, "v1", 0)

    async def explain(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str | None = None
    ) -> dict[str, Any]:
        self.calls.append(("explain", path, dict(headers), body, tenant))
        return self.explained

    async def check_policy(self, text: str) -> dict[str, Any]:
        return self.checked

    def policies(self) -> dict[str, Any]:
        return self.shown


def asked(control: Telling, body: Mapping[str, Any] | None = None, **query: str) -> Asked:
    """What a page is asked with."""
    return Asked(control, History(), query, body or {})


def client(
    control: Telling | None = None,
    *,
    key: str | None = SHA256,
    url: str = ORIGIN,
    peer: str = "203.0.113.9",
) -> httpx2.AsyncClient:
    """A browser of the admin port."""
    app = AdminApp(control or Telling(), key)
    transport = httpx2.ASGITransport(app=app, client=(peer, 40_000))
    return httpx2.AsyncClient(transport=transport, base_url=url)


def done(**given: Any) -> RequestDone:
    """A request that the exact tier answered, unless said otherwise."""
    usual = RequestDone(
        tenant="acme",
        api=Api.CHAT,
        model="gpt-4o-mini",
        upstream="openai",
        status=200,
        stream=False,
        tier="exact",
        outcome="hit",
        reason="",
        total_s=0.0002,
        upstream_s=0.0,
        first_byte_s=0.0002,
        request_bytes=100,
        response_bytes=200,
        usage=Usage(200, 10),
        stored=False,
        reply_headers=[(b"x-request-id", b"req_1"), (b"cache-status", b"trivet-exact; hit; ttl=9")],
        route="support",
    )
    return usual._replace(**given)


class Clock:
    """A clock that a test sets."""

    def __init__(self, at: float = 1_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at
