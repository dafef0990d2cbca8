"""The console's ASGI app: its files, its login, its pages' JSON, its events.

Files and login are open to whoever reaches the port: they hold no data. `AdminApp` has checked who
asks before anything else comes here.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Final

import structlog

from trivet import __version__
from trivet.errors import RequestError, StoreError
from trivet.middleware.admin.control import Control
from trivet.middleware.admin.port import CONSOLE as ROOT
from trivet.middleware.console.events import Feed
from trivet.middleware.console.history import History
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.registry import SHOWN, TAKEN
from trivet.middleware.console.replies import (
    Message,
    Receive,
    Reply,
    Send,
    error_reply,
    json_of,
    json_reply,
    query_of,
    send_reply,
)
from trivet.middleware.console.sessions import Opened, Sessions, is_own_page, set_cookie
from trivet.middleware.console.static_files import file_reply

_API: Final = f"{ROOT}/api/"
_EVENTS: Final = f"{ROOT}/events"
_STATIC: Final = f"{ROOT}/static/"
_SESSION: Final = f"{ROOT}/session"
_WRONG_S: Final = 0.5
"""How long whoever shows a wrong key waits for the answer."""
_LARGEST_KEY: Final = 4096

_log = structlog.get_logger("trivet")

Refusing = Callable[[Message], tuple[int, bytes] | None]
"""Status and body for a caller that may not administrate; None for one that may."""


class ConsoleApp:
    """Answers what is below `/trivet/ui`."""

    def __init__(
        self, control: Control, history: History, sessions: Sessions | None, refusing: Refusing
    ) -> None:
        """`sessions` is None where no admin key is configured."""
        self._control = control
        self._history = history
        self._sessions = sessions
        self._refusing = refusing
        self._feed = Feed(control, history, refusing)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI 3, for HTTP."""
        if scope["path"] == _EVENTS and scope["method"] == "GET":
            await self._feed.serve(scope, receive, send)
            return
        try:
            reply = await self._reply(scope, receive)
        except RequestError as error:
            reply = error_reply(error)
        except StoreError as error:
            told = f"The store is in trouble: {error}."
            reply = error_reply(RequestError(503, told, code=error.reason))
        except Exception as error:
            # The last boundary before the server: the page gets an answer that it can show.
            _report(scope, error)
            told = f"Trivet failed to answer ({type(error).__name__}); its log says more."
            reply = error_reply(RequestError(500, told, code="internal"))
        await send_reply(scope, send, reply)

    async def _reply(self, scope: Message, receive: Receive) -> Reply:
        path, method = scope["path"], scope["method"]
        if path == _SESSION:
            return await self._session(scope, receive)
        if path.startswith(_API):
            return await self._page(scope, receive)
        if method not in ("GET", "HEAD"):
            raise RequestError(405, f"{path} answers GET only.")
        if path.startswith(_STATIC):
            return await asyncio.to_thread(file_reply, scope, path.removeprefix(_STATIC))
        return await asyncio.to_thread(file_reply, scope, "index.html")

    async def _page(self, scope: Message, receive: Receive) -> Reply:
        page = scope["path"].removeprefix(_API)
        views = TAKEN if scope["method"] == "POST" else SHOWN
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise RequestError(405, f"{scope['path']} answers GET and POST only.")
        view = views.get(page)
        if view is None:
            raise RequestError(404, f"The console has no page {page!r} to {scope['method']}.")
        body = await json_of(receive) if views is TAKEN else {}
        return json_reply(await view(Asked(self._control, self._history, query_of(scope), body)))

    async def _session(self, scope: Message, receive: Receive) -> Reply:
        method = scope["method"]
        if method in ("GET", "HEAD"):
            return json_reply(self._standing(scope))
        if not is_own_page(scope):
            raise RequestError(403, "Only a page of the console may log in or out.", code="foreign")
        if method == "POST":
            return await self._log_in(scope, receive)
        if method == "DELETE":
            return self._log_out(scope)
        raise RequestError(405, f"{_SESSION} answers GET, POST and DELETE only.")

    def _standing(self, scope: Message) -> dict[str, object]:
        """Whether whoever asks may see data, and whether a key would change that."""
        return {
            "open": self._refusing(scope) is None,
            "login": "none" if self._sessions is None else "key",
            "version": __version__,
        }

    async def _log_in(self, scope: Message, receive: Receive) -> Reply:
        key = (await json_of(receive, _LARGEST_KEY)).get("key")
        if self._sessions is None:
            raise RequestError(409, "No admin key is configured, so there is no login.")
        if not isinstance(key, str):
            raise RequestError(422, "Give the admin key as the string `key`.", field="key")
        client = scope.get("client")
        opened = self._sessions.open(key.strip(), client[0] if client else "")
        if isinstance(opened, Opened):
            return Reply(204, b"", headers=(set_cookie(scope, *opened),))
        await asyncio.sleep(_WRONG_S)
        if opened == "too-many":
            told = "Too many wrong keys came from this address; try again in a minute."
            raise RequestError(429, told, code="too-many-tries")
        raise RequestError(401, "That is not the admin key.", field="key", code="unauthorized")

    def _log_out(self, scope: Message) -> Reply:
        if self._sessions is not None:
            self._sessions.end(scope)
        return Reply(204, b"", headers=(set_cookie(scope, "", 0),))


def _report(scope: Message, defect: Exception) -> None:
    # The message is left out: it may quote what was pasted, or a prompt.
    frames = traceback.extract_tb(defect.__traceback__)[-3:]
    at = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    _log.error("console-failed", path=scope["path"], error=type(defect).__name__, at=at)
