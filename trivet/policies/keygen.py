"""New API keys for tenants."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass

from trivet.canonical import sha256

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 43
"""Base-62 digits that hold 256 bits."""
_TRIVIAL = (
    "0 1 12 123 1234 12345 123456 12345678 123456789 a abc admin apikey api-key api_key bearer "
    "changeme change-me default demo dummy example foo hello key letmein my-key none null password "
    "pass root secret sk-test test test-key testing token trivet user x xxx"
)
"""What is first tried by whoever guesses, and what examples hold."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A new key, to be shown once, and what goes into the policy file."""

    key: str
    sha256: str


def new_key() -> ApiKey:
    """A key of 256 random bits: `tvt_` and 43 characters, and its SHA-256 in hex."""
    number = int.from_bytes(secrets.token_bytes(32), "big")
    digits = []
    for _ in range(_LENGTH):
        number, rest = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[rest])
    key = "tvt_" + "".join(digits)
    return ApiKey(key, key_hash(key))


def key_hash(key: str) -> str:
    """SHA-256 of an API key in hex, as policy files name it."""
    return sha256(key.encode("utf-8", "surrogateescape")).hex()


def trivial_key(digest: str | None) -> str | None:
    """Which key that nobody should use has this SHA-256 (hex), for people; None for any other."""
    return _GUESSED.get(digest or "-")


_GUESSED = {
    key_hash(""): "an empty key",
    **{key_hash(key): f"the key {key!r}" for key in _TRIVIAL.split()},
}
