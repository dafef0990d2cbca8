"""What `trivet engine serve` makes of its options, and how it ends."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.prefix.engine.amounts import size
from trivet.prefix.engine.serving import ServeOptions, _listening, run, shared_secret


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """`run` sets up logging of the whole process."""
    root, ours = logging.getLogger(), logging.getLogger("trivet.engine")
    before = root.handlers[:], root.level, ours.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0", 0), ("4096", 4096), ("2GiB", 2 << 30), ("3 MiB", 3 << 20), ("1TiB", 1 << 40)],
)
def test_sizes_are_bytes(text: str, wanted: int) -> None:
    assert size(text) == wanted


@pytest.mark.parametrize("text", ["", "2GB", "-1", "1.5GiB", "much"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        size(text)


def test_the_secret_is_the_files_or_the_environments(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("f" * 32 + "\n")
    env = {"TRIVET_ENGINE_SECRET": "e" * 32}
    assert shared_secret(None, {}) is None
    assert shared_secret(None, env) == b"e" * 32
    assert shared_secret(file, env) == b"f" * 32


def test_a_secret_that_is_short_or_cannot_be_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigError, match="--secret-file"):
        shared_secret(file, {})
    file.write_text("")
    with pytest.raises(ConfigError, match="32 characters"):
        shared_secret(file, {})
    with pytest.raises(ConfigError, match="32 characters"):
        shared_secret(None, {"TRIVET_ENGINE_SECRET": "short"})


def test_a_port_that_is_taken_is_said_before_the_model_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--port"):
            run(ServeOptions("nowhere", port=taken.getsockname()[1]))


def test_a_port_is_listened_on_from_the_start_so_that_nobody_else_can_have_it() -> None:
    with _listening(ServeOptions("nowhere", port=0)) as ours, socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            thief.bind(ours.getsockname())


def test_signed_only_needs_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIVET_ENGINE_SECRET", raising=False)
    with pytest.raises(ConfigError, match="--signed-only"):
        run(ServeOptions("nowhere", port=0, signed_only=True))


@pytest.mark.parametrize("model", ["nowhere/at/all/it/is", "nowhere.gguf"])
def test_a_model_that_is_not_there_is_said(model: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        run(ServeOptions(model, port=0))


def test_bounds_that_cannot_be_read_are_said_before_the_model_is_loaded() -> None:
    with pytest.raises(ConfigError, match="--tenant-quota: 'much' is neither"):
        run(ServeOptions("nowhere", port=0, tenant_quotas=("much",)))
