"""The operator's port: health, readiness and metrics here, everything under `/trivet/` by FastAPI,
but for the console at `/trivet/ui`.

`/healthz`, `/readyz`, `/metrics` and the API's description (`/trivet/docs`,
`/trivet/openapi.json`) need no credential: they hold states, counts, tenants' names, and no
content; nor do the console's own files. All else under `/trivet/` needs `Authorization: Bearer
<admin key>`, or the console's session. With no admin key configured it answers loopback peers only,
and those only if no proxy or foreign page is involved.

FastAPI costs 16 MB and a third of a second, so it is imported, in a thread, by the first request
that needs it; the console likewise.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from urllib.parse import urlsplit

import orjson
import structlog

from trivet.middleware.admin.control import Component, Control, Readiness
from trivet.middleware.console.history import History
from trivet.middleware.console.replies import Message, Receive, Send
from trivet.middleware.console.sessions import Sessions
from trivet.middleware.observe.exposition import CONTENT_TYPE

App = Callable[[Message, Receive, Send], Awaitable[None]]

CONSOLE = "/trivet/ui"
"""Where the console is."""
_PREFIX = "/trivet/"
_OPEN = frozenset({"/trivet/docs", "/trivet/openapi.json"})
_THROUGH_A_PROXY = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
_READY_S = 2.0
"""How long a readiness check may take: load balancers give up after a few seconds."""

_log = structlog.get_logger("trivet")


def is_admin_path(path: str) -> bool:
    """Whether the admin app answers `path`, for a port that it shares with the data plane."""
    return path in ("/healthz", "/readyz", "/metrics") or path.startswith(_PREFIX)


def error_body(message: str, field: str | None = None, code: str | None = None) -> bytes:
    """An error of the admin API: a sentence, and the field that it is about."""
    return orjson.dumps({"error": {"message": message, "field": field, "code": code}})


class AdminApp:
    """An ASGI app over a `Control`. Holds no state but the console's sessions, and the API and the
    console once they are built."""

    def __init__(
        self, control: Control, credential_sha256: str | None, history: History | None = None
    ) -> None:
        """`credential_sha256` is the SHA-256 of the admin key in hex; None is loopback only."""
        self._control = control
        self._credential = credential_sha256.lower() if credential_sha256 else None
        self._history = history or History()
        self._sessions = Sessions(self._credential) if self._credential else None
        self._api: App | None = None
        self._console: App | None = None
        self._building = asyncio.Lock()
        if self._credential is None:
            _log.info("admin-loopback-only", reason="TRIVET_ADMIN_KEY is not set")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith(_PREFIX):
            refused = None if _is_open(path) else self._refusal(scope)
            if refused is not None:
                await _reply(scope, send, *refused)
            elif _is_console(path):
                console = self._console or await self._build_console()
                await console(scope, receive, send)
            else:
                api = self._api or await self._build()
                await api(scope, receive, send)
        elif not is_admin_path(path):
            await _reply(scope, send, 404, error_body(f"There is nothing at {path}."))
        elif scope["method"] not in ("GET", "HEAD"):
            await _reply(scope, send, 405, error_body(f"{path} answers GET only."))
        elif path == "/healthz":
            await _reply(scope, send, 200, b"ok\n", b"text/plain; charset=utf-8")
        elif path == "/readyz":
            ready = await self._ready()
            await _reply(scope, send, 200 if ready.ok else 503, orjson.dumps(asdict(ready)))
        else:
            body = await self._control.metrics()
            await _reply(scope, send, 200, body, CONTENT_TYPE.encode())

    def _refusal(self, scope: Message) -> tuple[int, bytes] | None:
        if self._sessions is None or _headers(scope, b"authorization"):
            return refusal(scope, self._credential)
        standing = self._sessions.standing(scope)
        if standing == "open":
            return None
        if standing == "foreign":
            message = "A session changes something only from a page of the console."
            return 403, error_body(message, code="foreign")
        return refusal(scope, self._credential)

    async def _ready(self) -> Readiness:
        try:
            return await asyncio.wait_for(self._control.ready(), _READY_S)
        except TimeoutError:
            detail = f"The readiness check took longer than {_READY_S:g} s."
        except Exception as error:
            # A check that fails is the answer "not ready": the load balancer has to get one.
            detail = f"The readiness check failed: {type(error).__name__}."
        return Readiness(False, (Component("readiness", False, "unknown", detail),))

    async def _build(self) -> App:
        async with self._building:
            if self._api is None:
                self._api = await asyncio.to_thread(_import_api, self._control)
        return self._api

    async def _build_console(self) -> App:
        async with self._building:
            if self._console is None:
                module = await asyncio.to_thread(
                    importlib.import_module, "trivet.middleware.console.app"
                )
                parts = (self._control, self._history, self._sessions, self._refusal)
                self._console = module.ConsoleApp(*parts)
            console: App = self._console
        return console


def _is_console(path: str) -> bool:
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def _is_open(path: str) -> bool:
    """Whether `path` needs no credential: the console checks its login, and its files hold no
    data."""
    if path in _OPEN:
        return True
    guarded = path.startswith((f"{CONSOLE}/api/", f"{CONSOLE}/events"))
    return _is_console(path) and not guarded


def _import_api(control: Control) -> App:
    api: App = importlib.import_module("trivet.middleware.admin.api").build(control)
    return api


def refusal(scope: Message, credential_sha256: str | None) -> tuple[int, bytes] | None:
    """Status and body for a caller that may not administrate; None for one that may."""
    if credential_sha256 is None:
        if _is_local(scope):
            return None
        message = (
            "No admin key is configured, so the admin API answers only direct requests from this "
            "machine."
        )
        return 403, error_body(message, code="loopback-only")
    given = _headers(scope, b"authorization")
    scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    found = hashlib.sha256(key.strip()).hexdigest()
    # Both are compared always: the time must not tell which of the two was wrong.
    right = hmac.compare_digest(found, credential_sha256)
    if right and scheme.lower() == b"bearer":
        return None
    message = "The admin API needs the header Authorization: Bearer <admin key>."
    return 401, error_body(message, field="Authorization", code="unauthorized")


def _is_local(scope: Message) -> bool:
    """True for a direct request from this machine that no foreign web page can have caused.

    A forwarding header betrays a proxy, whose address says nothing about the caller. A host name
    that is not loopback is DNS rebinding; an `Origin` other than the host is cross-site.
    """
    client = scope.get("client")
    # The server knows no peer where a connection was reset right behind its request.
    if client is None or not _is_loopback(client[0]):
        return False
    if any(_headers(scope, name) for name in _THROUGH_A_PROXY):
        return False
    if _headers(scope, b"sec-fetch-site") not in ([], [b"same-origin"], [b"none"]):
        return False
    hosts = _headers(scope, b"host")
    try:
        if len(hosts) != 1 or not _is_loopback(urlsplit(b"//" + hosts[0]).hostname or b""):
            return False
        return all(urlsplit(origin).netloc == hosts[0] for origin in _headers(scope, b"origin"))
    except ValueError:
        return False


def _is_loopback(host: str | bytes) -> bool:
    text = host.decode("latin-1") if isinstance(host, bytes) else host
    if text.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _headers(scope: Message, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


async def _reply(
    scope: Message, send: Send, status: int, body: bytes, kind: bytes = b"application/json"
) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="trivet"'))
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    shown = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": shown})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
