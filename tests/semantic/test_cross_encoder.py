from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from trivet.errors import ConfigError
from trivet.semantic.cross_encoder import CrossEncoderVerifier
from trivet.semantic.types import TextPair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of two layers with random weights."""
    path = tmp_path_factory.mktemp("cross")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rent", "hire", "skis", "boots"]
    (path / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(path / "vocab.txt")).save_pretrained(path)
    config = BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2,
                        num_attention_heads=2, intermediate_size=16, num_labels=1)  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore")
def test_any_cross_encoder_in_a_folder_scores_pairs_in_order(folder: Path) -> None:
    verifier = CrossEncoderVerifier(str(folder))
    pairs = [TextPair("rent skis", "hire skis", 0.9), TextPair("rent skis", "rent boots", 0.9)]
    found = [verdict.score for verdict in verifier.verify(pairs)]
    alone = [verifier.verify([pair])[0].score for pair in pairs]
    assert found == pytest.approx(alone, abs=1e-5)
    assert all(0 <= score <= 1 for score in found)
    assert verifier.verify([]) == []


@pytest.mark.filterwarnings("ignore")
def test_its_fingerprint_is_of_the_files(folder: Path) -> None:
    before = CrossEncoderVerifier(str(folder)).fingerprint
    assert CrossEncoderVerifier(str(folder)).fingerprint == before
    (folder / "more.json").write_text("{}")
    assert CrossEncoderVerifier(str(folder)).fingerprint != before


@pytest.mark.filterwarnings("ignore")
def test_a_cross_encoder_that_is_not_there_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="cross_encoder"):
        CrossEncoderVerifier(str(tmp_path))
