"""New API keys."""

from __future__ import annotations

import hashlib
import re
from unittest.mock import patch

import pytest

from trivet.policies.keygen import key_hash, new_key, trivial_key


def test_a_key_is_a_prefix_and_256_bits_in_base_62() -> None:
    assert re.fullmatch(r"tvt_[0-9A-Za-z]{43}", new_key().key)


def test_the_hash_is_what_sha256sum_prints() -> None:
    made = new_key()
    assert made.sha256 == hashlib.sha256(made.key.encode()).hexdigest() == key_hash(made.key)


def test_keys_keep_their_length_whatever_the_bits() -> None:
    for drawn in (b"\x00" * 32, b"\xff" * 32):
        with patch("trivet.policies.keygen.secrets.token_bytes", return_value=drawn):
            assert len(new_key().key) == 47


def test_no_two_keys_are_equal() -> None:
    assert len({new_key().key for _ in range(500)}) == 500


@pytest.mark.parametrize("key", ["", "1", "test", "secret", "password", "changeme", "12345"])
def test_keys_that_anyone_would_guess_are_known_by_their_hash(key: str) -> None:
    assert trivial_key(key_hash(key)) == (f"the key {key!r}" if key else "an empty key")


def test_any_other_hash_is_nobodys() -> None:
    assert trivial_key(new_key().sha256) is None
    assert trivial_key(None) is None
