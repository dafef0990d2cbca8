"""Who is logged in to the console: a signed cookie, and the rule against foreign pages.

The cookie says when it expires and carries a MAC under a key that is made of the admin key's hash
and of bytes drawn when the process starts: a restart, or another admin key, ends all sessions. A
request that changes something has to name itself by a header that no foreign page can send without
asking first, and has to come from a page of this very origin.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from trivet.canonical import mac
from trivet.middleware.console.replies import Message, header

SESSION_S: Final = 12 * 3600.0
"""How long a login lasts."""
_COOKIE: Final = "trivet-session"
_MARK: Final = (b"x-trivet-console", b"1")
_SAFE: Final = ("GET", "HEAD")
_TRIES: Final = 10
"""Wrong keys that one address may show within `_TRIES_S`."""
_TRIES_S: Final = 60.0
_ADDRESSES: Final = 1_000
_COOKIES: Final = 8
"""Of one name, that are looked at."""
_ENDED: Final = 1_000
"""Sessions that were ended before their time and are remembered; the oldest are let go."""

Standing = Literal["none", "open", "foreign"]
"""`foreign`: logged in, but the request may be another page's."""


class Opened(NamedTuple):
    """A session: the cookie's value, and for how many seconds it holds."""

    value: str
    seconds: float


class Sessions:
    """The sessions of one admin key. Not thread-safe: for one event loop."""

    def __init__(self, credential_sha256: str, clock: Callable[[], float] = time.time) -> None:
        """`credential_sha256` is the SHA-256 of the admin key in lower-case hex."""
        self._credential = credential_sha256
        self._secret = mac(os.urandom(32), b"trivet-console-session", credential_sha256.encode())
        self._clock = clock
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self._wrong: dict[str, deque[float]] = {}

    def open(self, key: str, address: str) -> Opened | Literal["wrong", "too-many"]:
        """Begin a session for whoever shows the admin key.

        `too-many`: this address showed too many wrong keys of late, so this one is not looked at.
        """
        now = self._clock()
        wrong = self._wrong.get(address, deque())
        while wrong and now - wrong[0] > _TRIES_S:
            wrong.popleft()
        if len(wrong) >= _TRIES:
            return "too-many"
        shown = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        if hmac.compare_digest(shown, self._credential):
            self._wrong.pop(address, None)
            return Opened(self._signed(f"{int(now + SESSION_S)}.{os.urandom(12).hex()}"), SESSION_S)
        if address not in self._wrong and len(self._wrong) >= _ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[address] = wrong
        wrong.append(now)
        return "wrong"

    def end(self, scope: Message) -> None:
        """The request's session holds no more."""
        self._ended.extend(value for value in cookies_of(scope) if self._holds(value))

    def standing(self, scope: Message) -> Standing:
        """What the request's cookie is worth."""
        if not any(self._holds(value) for value in cookies_of(scope)):
            return "none"
        return "open" if scope["method"] in _SAFE or is_own_page(scope) else "foreign"

    def _holds(self, value: str) -> bool:
        said, _, _ = value.rpartition(".")
        expires = said.partition(".")[0]
        signed = hmac.compare_digest(self._signed(said).encode(), value.encode("latin-1"))
        if not signed or value in self._ended:
            return False
        return int(expires) > self._clock()

    def _signed(self, said: str) -> str:
        return f"{said}.{mac(self._secret, said.encode('latin-1')).hex()}"


def is_own_page(scope: Message) -> bool:
    """Whether a page of this origin sent the request on purpose.

    The browser's own word (`Sec-Fetch-Site`) decides where it is given; else `Origin` has to name
    the host that was asked. A browser sends one of the two with each request that is not GET.
    """
    if header(scope, _MARK[0]) != _MARK[1]:
        return False
    site = header(scope, b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    origin, host = header(scope, b"origin"), header(scope, b"host")
    if origin is None or host is None:
        return False
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def cookie_name(scope: Message) -> str:
    """The cookie's name. It has the port in it: browsers give all ports of a host one jar."""
    port = (header(scope, b"host") or b"").rpartition(b":")[2]
    return f"{_COOKIE}-{port.decode()}" if port.isdigit() else _COOKIE


def cookies_of(scope: Message) -> list[str]:
    """The session's cookies as the browser sent them: a server on another port of this host can
    have set one beside ours."""
    wanted = cookie_name(scope)
    found = []
    for name, value in scope["headers"]:
        if name.lower() != b"cookie":
            continue
        for pair in value.decode("latin-1").split(";"):
            key, _, held = pair.strip().partition("=")
            if key == wanted:
                found.append(str(held))
    return found[:_COOKIES]


def set_cookie(scope: Message, value: str, seconds: float) -> tuple[bytes, bytes]:
    """The header that sets the session's cookie, or with 0 seconds takes it away."""
    secure = scope.get("scheme") == "https" or header(scope, b"x-forwarded-proto") == b"https"
    text = f"{cookie_name(scope)}={value}; Path=/trivet/; Max-Age={int(seconds)}"
    text += "; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    return b"set-cookie", text.encode("latin-1")
