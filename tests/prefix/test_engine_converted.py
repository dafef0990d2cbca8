from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trivet.prefix.engine import converted


class Part:
    """Something that saves itself into a folder, as a model and a tokenizer do."""

    def __init__(self, name: str, fails: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.hf_quantizer: Any = object()
        self.config = SimpleNamespace(quantization_config={})

    def save_pretrained(self, folder: Path) -> None:
        if self.fails:
            raise OSError("disk full")
        (folder / self.name).write_text(self.name)


@pytest.fixture(autouse=True)
def _transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converted, "version", lambda name: "5.0")


def test_a_changed_file_has_another_place(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"a")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = converted.place_of(file, env)
    assert first == converted.place_of(file, env)
    assert first.is_relative_to(tmp_path / "cache" / "trivet" / "engine")
    os.utime(file, ns=(1, 1))
    assert converted.place_of(file, env) != first


def test_a_conversion_is_kept_without_the_labels_of_its_quantization(tmp_path: Path) -> None:
    model = Part("model")
    converted.keep(model, Part("tokenizer"), tmp_path / "a" / "place")
    assert {file.name for file in (tmp_path / "a" / "place").iterdir()} == {"model", "tokenizer"}
    assert model.hf_quantizer is None
    assert not hasattr(model.config, "quantization_config")


def test_a_conversion_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    converted.keep(Part("model"), Part("tokenizer", fails=True), tmp_path / "place")
    assert list(tmp_path.iterdir()) == []
