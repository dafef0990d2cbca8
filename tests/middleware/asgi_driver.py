"""The proxy's app in this process, with a scripted upstream and a caller that a test controls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from trivet.errors import UpstreamError
from trivet.exact.collapse import Collapser
from trivet.exact.fleet import Fleet
from trivet.exact.memory import MemoryStore
from trivet.exact.store import ExactStore
from trivet.exact.tier import ExactTier
from trivet.middleware.app import ProxyApp
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.arrival.intake import Intake
from trivet.middleware.arrival.recall import Recall
from trivet.middleware.arrival.reception import Reception, Tiers
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.embeddings import Embeddings
from trivet.middleware.fleets.way import Way
from trivet.middleware.http_client.client import Response
from trivet.middleware.http_client.errors import HttpError
from trivet.middleware.http_client.request import Body
from trivet.middleware.pipeline import CachePipeline
from trivet.middleware.reply import Replies
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.status import parse
from trivet.middleware.upstream import UpstreamClient, UpstreamResponse
from trivet.policies.keygen import key_hash
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import UNDECLARED, PolicySet, TenantDirectory
from trivet.telemetry import Event, RequestDone

SECRET = b"s" * 32
JSON = (b"content-type", b"application/json")
STREAM = (b"content-type", b"text/event-stream")


class Script:
    """One upstream answer: its pieces, and what happens between and after them.

    A piece may be bytes, an event to wait for, or the error that the answer ends in.
    """

    def __init__(
        self,
        *pieces: bytes | asyncio.Event | HttpError,
        status: int = 200,
        headers: Sequence[tuple[bytes, bytes]] = (JSON,),
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.pieces = list(pieces)
        self.closed = 0

    async def read_some(self) -> bytes:
        """As `Response.read_some`."""
        while self.pieces:
            piece = self.pieces.pop(0)
            if isinstance(piece, HttpError):
                raise piece
            if isinstance(piece, bytes):
                return piece
            await piece.wait()
        return b""

    def close(self) -> None:
        """As `Response.close`."""
        self.closed += 1

    def again(self) -> Script:
        """The same answer, not read yet."""
        return Script(*self.pieces, status=self.status, headers=self.headers)


def json_script(value: Any, **fields: Any) -> Script:
    """A JSON answer in one piece."""
    return Script(json.dumps(value, separators=(",", ":")).encode(), **fields)


def stream_script(*events: bytes | asyncio.Event | HttpError, **fields: Any) -> Script:
    """An event stream."""
    return Script(*events, headers=(STREAM,), **fields)


@dataclass
class Sent:
    """A request as the upstream got it."""

    upstream: str
    method: str
    target: str
    headers: RawHeaders
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> bytes | None:
        """The last value of a header."""
        return dict(self.headers).get(name.encode())


Scripted = Script | UpstreamError | Callable[[Sent], "Script | Awaitable[Script]"]


class FakeUpstream(UpstreamClient):
    """Answers by script: the next one of `scripts`, and the last one for ever."""

    def __init__(self, *scripts: Scripted) -> None:
        self.scripts: list[Scripted] = list(scripts)
        self.sent: list[Sent] = []
        self.given: list[Script] = []
        """The answers that were begun, in order."""

    async def send(
        self,
        upstream: UpstreamConfig,
        method: str,
        target: str,
        headers: RawHeaders,
        body: Body,
        way: Way | None = None,
    ) -> UpstreamResponse:
        """As `UpstreamClient.send`."""
        whole = body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])
        sent = Sent(upstream.name, method, target, headers, whole)
        self.sent.append(sent)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if callable(script):
            made = script(sent)
            script = made if isinstance(made, Script) else await made
        if isinstance(script, UpstreamError):
            raise script
        script = script.again()
        self.given.append(script)
        return UpstreamResponse(script.status, script.headers, cast(Response, script))

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Exchange:
    """One HTTP request, from the caller's side of the server."""

    scope: dict[str, Any]
    body: list[bytes]
    sent: list[dict[str, Any]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    on_send: Callable[[dict[str, Any]], Awaitable[None]] | None = None
    task: asyncio.Task[None] | None = None

    async def receive(self) -> dict[str, Any]:
        """ASGI: the body's pieces, then nothing until the caller is gone."""
        if self.body and not self.gone.is_set():
            piece = self.body.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self.body)}
        if not self.complete:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """ASGI: what comes for a caller who has gone is dropped, as uvicorn does."""
        if self.on_send is not None:
            await self.on_send(message)
        if not self.gone.is_set():
            self.sent.append(message)

    def leave(self) -> None:
        """The caller closes the connection."""
        self.gone.set()

    @property
    def status(self) -> int:
        """The status; 0 if no response was started."""
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def headers(self) -> RawHeaders:
        """The response's headers."""
        return list(self.sent[0]["headers"])

    def header(self, name: str) -> str | None:
        """The last value of a response header."""
        value = dict(self.headers).get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def content(self) -> bytes:
        """The body so far."""
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)

    @property
    def complete(self) -> bool:
        """The response went to its end."""
        return len(self.sent) > 1 and not self.sent[-1]["more_body"]

    @property
    def exact(self) -> dict[str, str | int | bool]:
        """What the exact tier says in `Cache-Status`."""
        return parse(self.header("cache-status") or "")["trivet-exact"]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until something holds."""
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0)


def exchange(
    method: str,
    path: str,
    body: bytes | list[bytes] = b"",
    *headers: tuple[str, str],
    query: str = "",
) -> Exchange:
    """A request that was not sent yet."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": raw,
        "client": ("127.0.0.1", 1),
    }
    return Exchange(scope, pieces)


def policy_set(*policies: TenantPolicy) -> PolicySet:
    """Policies of tenants whose API key is `sk-` and their name."""
    return PolicySet(
        "1",
        True,
        MappingProxyType({policy.tenant: policy for policy in policies}),
        MappingProxyType({key_hash(f"sk-{policy.tenant}"): policy for policy in policies}),
        MappingProxyType({}),
    )


class Rig:
    """One process of the proxy without sockets."""

    def __init__(
        self,
        *scripts: Scripted,
        policies: Sequence[TenantPolicy] = (),
        upstreams: Sequence[UpstreamConfig] = (UpstreamConfig(name="main", base_url="http://u"),),
        env: dict[str, str] | None = None,
        store: ExactStore | None = None,
        fleet: Fleet | None = None,
        wait: float = 5.0,
        max_body: int = 1 << 20,
        silence: float = 5.0,
        hidden: frozenset[bytes] = frozenset(),
    ) -> None:
        self.upstream = FakeUpstream(*scripts)
        self.events: list[Event] = []
        self.store = store or MemoryStore()
        tier = ExactTier(self.store, self.events.append)
        self.collapser = Collapser(fleet, self.events.append, keep_bytes=1 << 20, window=1 << 16)
        replies = Replies(SECRET)
        tiers = Tiers(
            CachePipeline(tier, self.collapser, self.upstream, replies, wait),
            Embeddings(tier, self.collapser, self.upstream, replies, wait),
            self.upstream,
            Recall(),
        )
        tenants = TenantDirectory(policy_set(*policies) if policies else UNDECLARED, SECRET)
        self.intake = Intake(max_body, silence)
        self.reception = Reception(
            tenants.identify, Routing(upstreams, env or {}), self.intake, tiers, SECRET, hidden
        )
        self.app = ProxyApp(self.reception, self.events.append)

    def start(self, asked: Exchange) -> Exchange:
        """Send a request and go on."""
        asked.task = asyncio.create_task(self.app(asked.scope, asked.receive, asked.send))
        return asked

    async def end(self, asked: Exchange) -> Exchange:
        """Wait for the app to be done with a request."""
        assert asked.task is not None
        async with asyncio.timeout(5):
            await asked.task
        return asked

    async def ask(
        self,
        path: str,
        body: Any = None,
        *headers: tuple[str, str],
        method: str = "POST",
        key: str | None = "sk-acme",
        query: str = "",
    ) -> Exchange:
        """One request, to its end."""
        return await self.end(
            self.start(request(path, body, *headers, method=method, key=key, query=query))
        )

    async def chat(self, text: str = "hi", *headers: tuple[str, str], **fields: Any) -> Exchange:
        """One chat request at temperature 0."""
        return await self.ask("/v1/chat/completions", chat_body(text, **fields), *headers)

    @property
    def done(self) -> list[RequestDone]:
        """What was reported of the requests."""
        return [event for event in self.events if isinstance(event, RequestDone)]


def request(
    path: str,
    body: Any = None,
    *headers: tuple[str, str],
    method: str = "POST",
    key: str | None = "sk-acme",
    query: str = "",
) -> Exchange:
    """A request with its length declared. `body` is bytes, a value for JSON, or None."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = [*headers]
    if key is not None:
        named.append(("authorization", f"Bearer {key}"))
    if raw:
        named.append(("content-length", str(len(raw))))
    return exchange(method, path, raw, *named, query=query)


def chat_body(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """A chat request body at temperature 0."""
    return {
        "model": "m",
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
        **fields,
    }
