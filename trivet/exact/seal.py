"""Entries that leave the process are authenticated, and encrypted where asked, by a server key.

Each tenant has a key of its own, derived from one secret: what one tenant's key sealed never
opens under another's.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from trivet.canonical import mac
from trivet.errors import ConfigError, Problem

MIN_SECRET = 32
"""Characters of a secret given as text; a file of our own holds 64 hex digits."""
_TAG = 32
_NONCE = 12
_KEPT_KEYS = 4096
_K = TypeVar("_K")
_V = TypeVar("_V")


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, context: bytes, /) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, context: bytes, /) -> bytes | None: ...


class Seal:
    """HMAC-SHA256 (RFC 2104), or AES-256-GCM (NIST SP 800-38D) when `encrypt`.

    Raises `ConfigError` for a secret under 16 bytes, and where `encrypt` asks for a library that
    is not installed.
    """

    def __init__(self, secret: bytes, *, encrypt: bool = False) -> None:
        if len(secret) < 16:
            raise _refuse("secret", "a secret has at least 16 bytes")
        self.encrypts = encrypt
        self._secret = secret
        self._cipher_of = _cipher_type() if encrypt else None
        self._keys: dict[str, bytes] = {}
        self._open: dict[str, _Cipher] = {}
        self._names: dict[tuple[str, str], bytes] = {}

    def seal(self, tenant: str, context: bytes, data: bytes) -> bytes:
        """`data` bound to the tenant and to `context`. 28 bytes longer encrypted, else 32."""
        if self._cipher_of is None:
            return _authenticate(self._key(tenant), context, data) + data
        # Random nonces are safe for 2**32 messages a key (SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher(tenant).encrypt(nonce, data, context)

    def unseal(self, tenant: str, context: bytes, sealed: bytes) -> bytes | None:
        """What was sealed, or None if it was not sealed by this secret for this use."""
        if self._cipher_of is not None:
            if len(sealed) < _NONCE + 16:
                return None
            return self._cipher(tenant).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
        data = sealed[_TAG:]
        expected = _authenticate(self._key(tenant), context, data)
        return data if hmac.compare_digest(expected, sealed[:_TAG]) else None

    def pseudonym(self, tenant: str, label: str = "") -> bytes:
        """16 bytes that stand for a tenant, or for one of its labels, in a store's own indexes.

        Keyed, so that nobody who reads the store can test a guessed name.
        """
        made = self._names.get((tenant, label))
        if made is None:
            made = mac(self._secret, b"trivet/name/1", _bytes(tenant), _bytes(label))[:16]
            _keep(self._names, (tenant, label), made)
        return made

    @property
    def mark(self) -> str:
        """16 hex digits by which those know each other who can read what the others sealed."""
        use = b"encrypt" if self.encrypts else b"seal"
        return mac(self._secret, b"trivet/mark/1", use)[:8].hex()

    def _key(self, tenant: str) -> bytes:
        key = self._keys.get(tenant)
        if key is None:
            use = b"trivet/encrypt/1" if self.encrypts else b"trivet/seal/1"
            key = mac(self._secret, use, _bytes(tenant))
            _keep(self._keys, tenant, key)
        return key

    def _cipher(self, tenant: str) -> _Cipher:
        cipher = self._open.get(tenant)
        if cipher is None:
            assert self._cipher_of is not None
            cipher = self._cipher_of(self._key(tenant))
            _keep(self._open, tenant, cipher)
        return cipher


def _authenticate(key: bytes, context: bytes, data: bytes) -> bytes:
    # Injective: the context's length comes first, and the data is the rest.
    return hmac.digest(key, b"%b%b%b" % (len(context).to_bytes(8, "big"), context, data), "sha256")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _keep(kept: dict[_K, _V], key: _K, value: _V) -> None:
    if len(kept) >= _KEPT_KEYS:
        kept.clear()
    kept[key] = value


def _cipher_type() -> Callable[[bytes], _Cipher]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _refuse(
            "encrypt",
            "encryption at rest needs the extra: pip install 'trivet[encryption]'",
        ) from None

    class AesGcm:
        def __init__(self, key: bytes) -> None:
            self._aead = AESGCM(key)

        def encrypt(self, nonce: bytes, data: bytes, context: bytes, /) -> bytes:
            return self._aead.encrypt(nonce, data, context)

        def decrypt(self, nonce: bytes, data: bytes, context: bytes, /) -> bytes | None:
            try:
                return self._aead.decrypt(nonce, data, context)
            except InvalidTag:
                return None

    return AesGcm


def load_secret(path: Path | None, env: Mapping[str, str]) -> bytes:
    """The server's secret: `TRIVET_SECRET`, else the file at `path`, else one for this process.

    The variable holds hex or any text, at least `MIN_SECRET` characters. A missing file is made
    with mode 0600; where several processes start at once, all read the one that was linked first.
    Raises `ConfigError` for a short secret, and for a file that others can read or that cannot be
    made.
    """
    text = env.get("TRIVET_SECRET", "").strip()
    if text:
        return _decode("TRIVET_SECRET", text)
    if path is None:
        return secrets.token_bytes(MIN_SECRET)
    try:
        if not path.exists():
            _create(path)
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _refuse(str(path), f"others can read the secret: chmod 600 {path}")
        return _decode(str(path), path.read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(
            str(path), f"the secret cannot be read or made ({error}): set TRIVET_SECRET"
        ) from None


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(MIN_SECRET) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Linking fails where the name is taken, so that nobody reads a half-written secret.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _decode(where: str, text: str) -> bytes:
    if len(text) < MIN_SECRET:
        raise _refuse(where, f"the secret is shorter than {MIN_SECRET} characters")
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()


def _refuse(where: str, message: str) -> ConfigError:
    return ConfigError(Problem(where, 0, 0, "secret", message))
