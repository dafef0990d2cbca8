"""Sealing, and the secret."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.exact.seal import Seal, load_secret

SECRET = b"s" * 32
BOTH = pytest.mark.parametrize("encrypt", [False, True])


@BOTH
@given(tenant=st.text(max_size=8), context=st.binary(max_size=40), data=st.binary(max_size=200))
def test_what_was_sealed_opens_again(
    encrypt: bool, tenant: str, context: bytes, data: bytes
) -> None:
    sealed = Seal(SECRET, encrypt=encrypt).seal(tenant, context, data)
    assert Seal(SECRET, encrypt=encrypt).unseal(tenant, context, sealed) == data


@BOTH
@given(
    data=st.binary(min_size=1, max_size=60), place=st.integers(0, 10**6), flip=st.integers(1, 255)
)
def test_one_changed_byte_does_not_open(encrypt: bool, data: bytes, place: int, flip: int) -> None:
    seal = Seal(SECRET, encrypt=encrypt)
    sealed = bytearray(seal.seal("t1", b"key", data))
    sealed[place % len(sealed)] ^= flip
    assert seal.unseal("t1", b"key", bytes(sealed)) is None


@BOTH
@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_truncated_seal_does_not_open(encrypt: bool, cut: int) -> None:
    seal = Seal(SECRET, encrypt=encrypt)
    sealed = seal.seal("t1", b"key", b"data" * 5)
    assert seal.unseal("t1", b"key", sealed[:cut]) is None


@BOTH
def test_another_tenant_key_or_secret_does_not_open(encrypt: bool) -> None:
    seal = Seal(SECRET, encrypt=encrypt)
    sealed = seal.seal("t1", b"key", b"data")
    assert seal.unseal("t2", b"key", sealed) is None
    assert seal.unseal("t1", b"other", sealed) is None
    assert seal.unseal("t1", b"ke", sealed) is None
    assert Seal(b"o" * 32, encrypt=encrypt).unseal("t1", b"key", sealed) is None
    assert Seal(SECRET, encrypt=not encrypt).unseal("t1", b"key", sealed) is None


def test_context_and_data_do_not_run_into_each_other() -> None:
    seal = Seal(SECRET)
    sealed = seal.seal("t1", b"ab", b"c")
    assert seal.unseal("t1", b"a", sealed[:32] + b"bc") is None


def test_encrypted_data_is_not_in_clear_and_differs_each_time() -> None:
    seal = Seal(SECRET, encrypt=True)
    one, two = (seal.seal("t1", b"key", b"a secret sentence") for _ in range(2))
    assert b"secret" not in one
    assert one != two


def test_pseudonyms_tell_tenants_labels_and_secrets_apart() -> None:
    seal = Seal(SECRET)
    names = [seal.pseudonym("a"), seal.pseudonym("b"), seal.pseudonym("a", "b")]
    names += [seal.pseudonym("ab"), Seal(b"o" * 32).pseudonym("a")]
    assert len(set(names)) == 5
    assert Seal(SECRET, encrypt=True).pseudonym("a") == names[0]
    assert all(len(name) == 16 for name in names)


def test_thousands_of_tenants_do_not_pile_up() -> None:
    seal = Seal(SECRET, encrypt=True)
    for number in range(10_000):
        seal.seal(f"t{number}", b"", b"")
        seal.pseudonym(f"t{number}")
    assert max(len(seal._keys), len(seal._open), len(seal._names)) <= 4096


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="16 bytes"):
        Seal(b"short")


def test_encryption_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigError, match=r"trivet\[encryption\]"):
        Seal(SECRET, encrypt=True)


def test_sealing_alone_imports_no_cryptography() -> None:
    code = (
        "import sys, trivet.exact.seal as s; s.Seal(b's' * 32);print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_secret_comes_from_the_environment_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert load_secret(path, {"TRIVET_SECRET": " " + "ab" * 32 + "\n"}) == b"\xab" * 32
    assert load_secret(path, {"TRIVET_SECRET": "a passphrase of many characters!"}) == (
        b"a passphrase of many characters!"
    )
    assert not path.exists()


def test_a_secret_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "secret"
    before = os.umask(0)
    try:
        made = load_secret(path, {})
    finally:
        os.umask(before)
    assert len(made) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_secret(path, {}) == made
    assert [item.name for item in path.parent.iterdir()] == ["secret"]


def test_processes_that_start_at_once_read_one_secret(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from trivet.exact.seal import load_secret;"
        "sys.stdin.read(1); print(load_secret(pathlib.Path(sys.argv[1]), {}).hex())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "secret")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    printed = {process.communicate(b"x")[0] for process in processes}
    assert len(printed) == 1
    assert len(printed.pop().strip()) == 64


def test_without_a_file_the_secret_is_this_processs_own() -> None:
    assert load_secret(None, {}) != load_secret(None, {})


@pytest.mark.parametrize("text", ["short", "ab" * 15])
def test_a_short_secret_in_the_environment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="TRIVET_SECRET"):
        load_secret(None, {"TRIVET_SECRET": text})


def test_a_secret_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("ab" * 32)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_secret(path, {})


@pytest.mark.parametrize("content", [b"", b"\xff\xfe" * 40])
def test_a_secret_file_without_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="secret"):
        load_secret(path, {})


def test_a_place_where_no_secret_can_be_made_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="TRIVET_SECRET"):
        load_secret(tmp_path / "file" / "secret", {})
