"""How commands talk to a running proxy's admin API: standard library, one sentence for an error."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from trivet.errors import CacheError

_GIVE_KEY = "give --admin-key, or set TRIVET_ADMIN_KEY"
DEFAULT_URL = "http://127.0.0.1:8081"


class AdminError(CacheError):
    """The admin API could not be asked, or said no. `status` is None where it was not reached."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class AdminClient:
    """Calls the admin API at `url` (http or https, path prefix allowed).

    No proxy is used and no redirect is followed: the key must not reach another host. Every
    method blocks for up to `timeout_s` and raises `AdminError`.
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str | None = None, *, timeout_s: float = 10.0
    ) -> None:
        """Raises `AdminError` for a URL that is not one, and for a key that no header can hold."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AdminError(f"{url!r} is not an http:// or https:// URL.")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise AdminError("The admin key holds a character that no header can carry.")
        try:
            self._port = parts.port
        except ValueError:
            raise AdminError(f"{url!r} names no valid port.") from None
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._tls = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s

    def purge(
        self,
        tenant: str,
        *,
        tag: str | None = None,
        version: str | None = None,
        key: str | None = None,
    ) -> int:
        """Forget entries of `tenant`; returns how many were deleted now."""
        given = {"tenant": tenant, "tag": tag, "version": version, "key": key}
        body = {name: value for name, value in given.items() if value is not None}
        deleted = self.call("POST", "/trivet/purge", body).get("deleted")
        if type(deleted) is not int:
            raise AdminError("What answered is not Trivet's admin API: check the port.")
        return deleted

    def stats(self) -> dict[str, Any]:
        """What `GET /trivet/stats` answers."""
        return self.call("GET", "/trivet/stats")

    def reload(self) -> dict[str, Any]:
        """Read the policies again: `{"ok", "version", "problems"}`."""
        return self.call("POST", "/trivet/reload", accept=(200, 422))

    def explain(self, path: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        """What would happen to that request."""
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            message = f"The request is not valid UTF-8 at byte {error.start}."
            raise AdminError(message) from None
        asked = {"path": path, "headers": headers, "body": text}
        return self.call("POST", "/trivet/explain", asked)

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        accept: tuple[int, ...] = (200,),
    ) -> dict[str, Any]:
        """One request; the JSON object that it is answered with."""
        status, raw = self._send(method, path, body)
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if status in accept and isinstance(answer, dict):
            return answer
        raise AdminError(self._sentence(status, answer), status)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._prefix + path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            message = f"{self._url} did not answer within {self._timeout_s:g} s."
            raise AdminError(message) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            message = f"{self._url} is not reachable ({why}); is trivet serve running there?"
            raise AdminError(message) from None
        finally:
            connection.close()

    def _sentence(self, status: int, answer: Any) -> str:
        if status == 401 and self._key is None:
            return f"{self._url} wants the admin key (401): {_GIVE_KEY}."
        if status == 401:
            return f"{self._url} refused the admin key (401)."
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return f"{self._url} answered {status}: {error['message']}"
        return f"{self._url} answered {status}; is that a Trivet admin URL?"
