"""One JSON endpoint over one kept connection, with a bound on time and size. Blocking."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trivet.errors import EmbedderError

_MAX_BYTES = 64 << 20
_REFUSED = frozenset({400, 413, 422})


class JsonClient:
    """Posts JSON to `url`. For one thread at a time. Neither proxies nor redirects are followed:
    the key stays with the one host."""

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        """Raises `EmbedderError("missing")` for what is not an HTTP URL."""
        parts = urlsplit(url)
        kinds: dict[str, type[http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in kinds or not parts.hostname or port == -1:
            raise EmbedderError("missing", f"{url} is not an http or https URL.")
        self._connection: http.client.HTTPConnection = kinds[parts.scheme](
            parts.hostname, port, timeout=timeout_s
        )
        self._path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self._host = parts.netloc.rpartition("@")[2]
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def post(self, body: Mapping[str, Any]) -> Any:
        """The answer's JSON. Raises `EmbedderError`: `endpoint`, `timeout`, `auth`, `text`."""
        until = time.monotonic() + self._timeout_s
        payload = json.dumps(body).encode()
        try:
            status, raw = self._exchange(payload, until)
        except TimeoutError:
            self.close()
            told = f"{self._host} took more than {self._timeout_s:g} s."
            raise EmbedderError("timeout", told) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            told = f"{self._host} did not answer: {type(error).__name__}: {error}"
            raise EmbedderError("endpoint", told) from error
        except EmbedderError:
            self.close()
            raise
        return _parsed(status, raw, self._host)

    def close(self) -> None:
        """Let go of the connection; the next `post` opens another."""
        self._connection.close()

    def _exchange(self, payload: bytes, until: float) -> tuple[int, bytes]:
        kept = self._connection.sock is not None
        try:
            response = self._sent(payload)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept:
                raise
            # The server closed an idle connection, which shows only on its next use.
            self._connection.close()
            response = self._sent(payload)
        return response.status, self._read(response, until)

    def _sent(self, payload: bytes) -> http.client.HTTPResponse:
        self._connection.request("POST", self._path, payload, self._headers)
        return self._connection.getresponse()

    def _read(self, response: http.client.HTTPResponse, until: float) -> bytes:
        read = bytearray()
        while piece := response.read1(1 << 16):
            read += piece
            if len(read) > _MAX_BYTES:
                raise EmbedderError("endpoint", f"{self._host} answered over {_MAX_BYTES} bytes.")
            if time.monotonic() > until:
                raise TimeoutError
        # `read1` leaves the response open at its end, and the connection would be refused next.
        response.close()
        return bytes(read)


def _parsed(status: int, raw: bytes, host: str) -> Any:
    if status in (401, 403):
        raise EmbedderError("auth", f"{host} refused the key (HTTP {status}).")
    if status != 200:
        reason = "text" if status in _REFUSED else "endpoint"
        said = raw[:200].decode("utf-8", "replace")
        raise EmbedderError(reason, f"{host} answered HTTP {status}: {said}")
    try:
        return json.loads(raw, parse_constant=lambda name: math.nan)
    except (ValueError, RecursionError):
        raise EmbedderError("endpoint", f"{host} answered something that is not JSON.") from None
