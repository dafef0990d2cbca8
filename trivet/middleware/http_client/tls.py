"""The TLS context for upstreams: certificates and host names are verified, always."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable


def default_context() -> ssl.SSLContext:
    """The system's trust store, or the one that SSL_CERT_FILE and SSL_CERT_DIR name."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def ended_on_purpose(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the end of a transport's input was meant by its peer.

    Over TLS it was only if a closure alert came (RFC 8446 section 6.1); the loops report the bare
    end of the TCP connection in the same way. To be called from `eof_received`.
    """
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    if tls is None:
        return transport is not None
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


class LazyContext:
    """Made once, in a thread, when the first https origin is asked: reading the store takes time
    and memory that a proxy in front of http upstreams does not spend."""

    def __init__(self, make: Callable[[], ssl.SSLContext] = default_context) -> None:
        self._make = make
        self._made: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> ssl.SSLContext:
        """The context."""
        if self._made is None:
            async with self._lock:
                if self._made is None:
                    self._made = await asyncio.to_thread(self._make)
        return self._made
