"""Whose request this is: the space of the prefix cache that it reads and writes.

    signed by the proxy    tenant/<salt>/<cache_salt>  the body's salt divides its own space only
      after a purge        tenant/<salt>@1/...         what was kept before is never found again
    unsigned, with a salt  unsigned/<cache_salt>       shared by who names it, as in vLLM
    unsigned, without      default                     one space of all these

The three never meet: an unsigned caller reaches no signed tenant's blocks, whatever salt it names.
The signature is an HMAC-SHA256 (RFC 2104) over tenant, salt, time and the body's digest, by a
secret that proxy and engine share. It holds for `WINDOW_S`, so that what was read off the wire
serves nobody for long, and only for the body that it came with.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from trivet.canonical import mac, sha256
from trivet.errors import RequestError
from trivet.prefix.pool.hashing import tenant_salt

HEADER = "x-trivet-tenant"
NONCE = "x-trivet-nonce"
PROOF = "x-trivet-proof"
WINDOW_S = 120
"""Seconds that a signature is younger or older than the engine's clock at most."""
MIN_SECRET = 32
"""Characters of the shared secret."""
SECRET_ENV = "TRIVET_ENGINE_SECRET"  # noqa: S105 - the name of a variable
UNSIGNED = "(unsigned)"
"""The account of all callers without a signature; no tenant id has brackets."""

_SALT = re.compile(r"[^@/\\\x00\ud800-\udfff]{1,128}")
_VERSION = "1"
_PARTS = 5


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant` is accounted for and shown in metrics; `salt` separates cached blocks."""

    tenant: str
    salt: str


class Epochs:
    """How often each signed tenant's space was purged, in this process: no other one has its KV."""

    def __init__(self) -> None:
        self._purges: dict[str, int] = {}

    def purge(self, tenant: str) -> None:
        """From here on the tenant finds nothing of what it kept; old blocks go as others do."""
        self._purges[tenant] = self.of(tenant) + 1

    def of(self, tenant: str) -> int:
        """Purges so far."""
        return self._purges.get(tenant, 0)


_NO_PURGES = Epochs()


def sign(secret: bytes, tenant: str, now: float, body: bytes) -> str:
    """The header's value for one request: `version;time;salt;mac;tenant`, the last percent-coded.

    The salt is an HMAC of the tenant, so it can be neither guessed nor shared.
    """
    salt, time = tenant_salt(secret, tenant), str(int(now))
    quoted = quote(tenant, safe="", errors="surrogatepass")
    return ";".join((_VERSION, time, salt, _mac(secret, quoted, salt, time, body), quoted))


def proof(secret: bytes, nonce: str, port: int) -> str:
    """What an engine that listens on `port` answers to a nonce: who has the secret can tell it.

    The port is in it, so that no other engine's answer can be passed on.
    """
    return mac(secret, b"trivet-engine-health/1", nonce.encode(), str(port).encode()).hex()


def caller_of(
    header: str | None,
    cache_salt: object,
    body: bytes,
    secret: bytes | None,
    now: float,
    epochs: Epochs = _NO_PURGES,
) -> Caller:
    """Who asks with `body` and its field `cache_salt` (None where there is none).

    Raises `RequestError` 400 for a salt that vLLM refuses too, 401 for a signature that is wrong
    or out of its time: such a request is never served as an unsigned one.
    """
    inner = _checked(cache_salt)
    if header is not None:
        tenant, salt = _verified(header, body, secret, now)
        if epoch := epochs.of(tenant):
            salt = f"{salt}@{epoch}"
        return Caller(tenant, f"tenant/{salt}/{inner}")
    return Caller(UNSIGNED, f"unsigned/{inner}" if inner else "default")


def _checked(cache_salt: object) -> str:
    if cache_salt is None:
        return ""
    if not isinstance(cache_salt, str) or not _SALT.fullmatch(cache_salt):
        raise RequestError(
            400,
            "'cache_salt' is a text of 1 to 128 characters without '@', '/', '\\' and NUL.",
            field="cache_salt",
        )
    return cache_salt


def _verified(header: str, body: bytes, secret: bytes | None, now: float) -> tuple[str, str]:
    if secret is None:
        raise _refused("the engine has no secret to check it with (TRIVET_ENGINE_SECRET)")
    parts = header.split(";")
    if len(parts) != _PARTS or parts[0] != _VERSION or not re.fullmatch(r"[0-9]{1,15}", parts[1]):
        raise _refused("it is not one that this version of Trivet makes")
    _, time, salt, told, quoted = parts
    wanted = _mac(secret, quoted, salt, time, body)
    if not hmac.compare_digest(told.encode(), wanted.encode()):
        raise _refused("it was not made with the engine's secret for this tenant and body")
    if abs(now - int(time)) > WINDOW_S:
        raise _refused(f"it is {now - int(time):+.0f} s old; at most {WINDOW_S} s are allowed")
    return unquote(quoted), salt


def _mac(secret: bytes, quoted: str, salt: str, time: str, body: bytes) -> str:
    named = (part.encode() for part in (quoted, salt, time))
    return mac(secret, b"trivet-engine-tenant/1", *named, sha256(body)).hex()


def _refused(why: str) -> RequestError:
    return RequestError(
        401, f"The signature in {HEADER} is refused: {why}.", field=HEADER, code="invalid_signature"
    )
