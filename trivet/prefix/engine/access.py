"""Who is served where the engine is the proxy's alone, and how it proves that it is the engine."""

from __future__ import annotations

import contextlib
import hmac
import re
from collections.abc import Callable

from trivet.errors import RequestError
from trivet.prefix.engine.http_io import ASGIMessage, Headers, header
from trivet.prefix.engine.tenants import HEADER, NONCE, PROOF, caller_of, proof

_NONCE = re.compile(r"[0-9a-f]{16,128}")


class Access:
    """Refuses what has no signature, where `signed_only`; that needs the secret."""

    def __init__(self, secret: bytes | None, signed_only: bool, clock: Callable[[], float]) -> None:
        if signed_only and secret is None:
            raise ValueError("signatures are checked with a secret")
        self._secret = secret
        self._signed_only = signed_only
        self._clock = clock

    def check_signed(self, scope: ASGIMessage, *bodies: bytes) -> None:
        """Raise `RequestError` 401 unless the request's signature is one of a body of `bodies`."""
        if not self._signed_only:
            return
        signed = header(scope, HEADER)
        if signed is None:
            message = f"This engine serves the proxy alone: {HEADER} is missing."
            raise RequestError(401, message, field=HEADER, code="invalid_signature")
        for body in bodies[1:]:
            with contextlib.suppress(RequestError):
                caller_of(signed, None, body, self._secret, self._clock())
                return
        caller_of(signed, None, bodies[0], self._secret, self._clock())

    def check_bearer(self, scope: ASGIMessage) -> None:
        """Raise `RequestError` 401 unless the caller has the secret itself."""
        if self._signed_only and self._secret is not None:
            told = (header(scope, "authorization") or "").encode("latin-1")
            if not hmac.compare_digest(told, b"Bearer " + self._secret):
                message = "The metrics of this engine need its secret as bearer token."
                raise RequestError(401, message, code="unauthorized")

    def proven(self, scope: ASGIMessage) -> Headers:
        """The header that answers the request's nonce; none where nothing is asked or known."""
        nonce = header(scope, NONCE)
        if self._secret is None or nonce is None or not _NONCE.fullmatch(nonce):
            return []
        port = (scope.get("server") or ("", 0))[1] or 0
        return [(PROOF.encode(), proof(self._secret, nonce, port).encode())]
