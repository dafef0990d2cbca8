"""The identity of a model folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trivet.errors import EmbedderError
from trivet.semantic.model_files import Digests, model_files


def model(folder: Path) -> Path:
    for name in ("model.safetensors", "config.json", "vocab.txt", "1_Pooling/config.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def fingerprint(folder: Path) -> str:
    return Digests(None).fingerprint(folder)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "vocab.txt", "1_Pooling/config.json"]
)
def test_every_file_that_shapes_vectors_shapes_the_fingerprint(tmp_path: Path, name: str) -> None:
    before = fingerprint(model(tmp_path))
    (tmp_path / name).write_text("other")
    assert fingerprint(tmp_path) != before


_BESIDE = ("README.md", ".hidden", ".cache/x.json", "onnx/model.onnx", "onnx/config.json")
_OTHERS = ("pytorch_model.bin", "tf_model.h5", "data_config.json")


@pytest.mark.parametrize("name", [*_BESIDE, *_OTHERS])
def test_documents_and_other_formats_do_not(tmp_path: Path, name: str) -> None:
    before = fingerprint(model(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("other")
    assert fingerprint(tmp_path) == before


def test_the_name_of_the_folder_does_not_matter(tmp_path: Path) -> None:
    assert fingerprint(model(tmp_path / "a")) == fingerprint(model(tmp_path / "b"))


def test_a_file_under_another_name_is_another_model(tmp_path: Path) -> None:
    before = fingerprint(model(tmp_path))
    (tmp_path / "vocab.txt").rename(tmp_path / "words.txt")
    assert fingerprint(tmp_path) != before


def test_pickled_weights_count_where_they_are_the_only_ones(tmp_path: Path) -> None:
    model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert tmp_path / "pytorch_model.bin" in model_files(tmp_path)


def test_links_are_followed_as_the_hubs_cache_needs_it(tmp_path: Path) -> None:
    folder = model(tmp_path / "snapshot")
    before = fingerprint(folder)
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    assert fingerprint(folder) == before


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not there"):
        with pytest.raises(EmbedderError) as caught:
            fingerprint(folder)
        assert caught.value.reason == "missing"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were hashed."""
    names: list[str] = []
    real: Callable[..., hashlib._Hash] = hashlib.file_digest

    def noted(file: object, algorithm: str) -> hashlib._Hash:
        names.append(Path(getattr(file, "name")).name)  # noqa: B009
        return real(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    return names


def test_another_start_hashes_nothing(tmp_path: Path, hashed: list[str]) -> None:
    folder = model(tmp_path / "model")
    first = Digests(tmp_path / "state").fingerprint(folder)
    hashed.clear()
    assert Digests(tmp_path / "state").fingerprint(folder) == first
    assert hashed == []


def test_only_what_was_touched_is_hashed_again(tmp_path: Path, hashed: list[str]) -> None:
    folder = model(tmp_path / "model")
    digests = Digests(tmp_path / "state")
    first = digests.fingerprint(folder)
    hashed.clear()
    os.utime(folder / "vocab.txt", ns=(1, 1))
    assert digests.fingerprint(folder) == first
    assert hashed == ["vocab.txt"]


def test_a_change_that_keeps_size_and_mtime_is_noticed(tmp_path: Path) -> None:
    folder = model(tmp_path / "model")
    digests = Digests(tmp_path / "state")
    first = digests.fingerprint(folder)
    file = folder / "vocab.txt"
    status = file.stat()
    file.write_text("vocab.TXT")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.fingerprint(folder) != first


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": 1}', '{"a": [1, 2, 3]}', '{"a": [[1], "zz"]}', "\udcff"]
)
def test_a_broken_memory_is_as_none(tmp_path: Path, content: str) -> None:
    folder = model(tmp_path / "model")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "digests.json").write_text(content, errors="surrogateescape")
    assert Digests(tmp_path / "state").fingerprint(folder) == fingerprint(folder)
