"""Folders that hold a model, and folders that hold a broken one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, modeling_gguf_pytorch_utils

from trivet.errors import ConfigError
from trivet.prefix.engine.loading import _read_once, load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole tiny Llama in bf16 with its tokenizer."""
    place = tmp_path / "tiny-1.5"
    model = tiny_models.made("llama", torch.bfloat16, eos_token_id=7)
    model.generation_config.eos_token_id = [7, 9]
    model.save_pretrained(place)
    words = {f"w{at}": at for at in range(tiny_models.VOCABULARY)}
    plain = Tokenizer(WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="w11").save_pretrained(place)
    return place


def loaded(folder: Path, **given: Any) -> Any:
    return load(str(folder), threads=1, device="cpu", **given)


def refused(folder: Path, match: str, **given: Any) -> None:
    with pytest.raises(ConfigError, match=match):
        loaded(folder, **given)


def test_a_folder_is_loaded_with_its_facts(folder: Path) -> None:
    one = loaded(folder)
    assert (one.facts.name, one.facts.context) == ("tiny-1.5", 512)
    assert one.facts.vocabulary == tiny_models.VOCABULARY
    assert one.facts.end_tokens == {7, 9, 11}
    assert (one.facts.dtype, one.dtype) == ("bfloat16", torch.bfloat16)
    assert not one.model.training


def test_another_dtype_is_another_layout(folder: Path) -> None:
    plain, wide = loaded(folder), loaded(folder, dtype="fp32")
    assert wide.dtype == torch.float32
    assert plain.facts.layout != wide.facts.layout
    assert plain.facts.tokenizer == wide.facts.tokenizer != ""


def test_a_file_that_changed_is_another_revision(folder: Path) -> None:
    before = loaded(folder).facts.revision
    assert loaded(folder).facts.revision == before
    settings = folder / "config.json"
    settings.write_text(settings.read_text() + "\n")
    assert loaded(folder).facts.revision != before


def test_weights_that_are_cut_off_are_told(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    refused(folder, "weights are broken")


def test_weights_that_are_no_safetensors_are_told(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x80\x04pickle?")
    refused(folder, "weights are broken")


def test_missing_weights_are_told(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "cannot be loaded as a causal model")


def test_a_tensor_that_is_missing_is_not_made_up(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refused(folder, "1 weights are missing, model.layers.1.mlp.up_proj.weight is the first")


def test_a_tensor_of_another_shape_is_told(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    settings["intermediate_size"] = 32
    (folder / "config.json").write_text(json.dumps(settings))
    refused(folder, "cannot be loaded as a causal model")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "nonesuch"}', '{"a": 1}'])
def test_a_configuration_that_says_nothing_is_told(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder, "cannot be loaded as a causal model")


def test_a_folder_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    refused(tmp_path, "no config.json")


def test_a_folder_without_a_tokenizer_is_told_which_file_is_missing(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    refused(folder, "has no tokenizer: tokenizer.json is missing")


def test_an_encoder_is_no_causal_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "t5"}')
    refused(folder, "cannot be loaded as a causal model")


def test_a_name_that_is_nothing_is_told() -> None:
    with pytest.raises(ConfigError, match="neither `smollm2`"):
        load("./nothing/here")


def test_a_device_or_dtype_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match="--device: the model cannot go to"):
        load(str(folder), device="nonesuch", threads=1)
    refused(folder, "none of auto, fp32", dtype="int8")


def test_code_that_comes_with_a_model_is_not_run(folder: Path, tmp_path: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "own", "auto_map": {
        "AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    refused(folder, "cannot be loaded as a causal model")
    assert not (tmp_path / "ran").exists()


def test_a_conversion_shows_its_bar_on_a_terminal_only() -> None:
    before = modeling_gguf_pytorch_utils.tqdm
    out = io.StringIO()
    with _read_once():
        assert list(modeling_gguf_pytorch_utils.tqdm([1, 2], file=out)) == [1, 2]
    assert out.getvalue() == ""
    assert modeling_gguf_pytorch_utils.tqdm is before
