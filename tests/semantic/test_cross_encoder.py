"""A real cross-encoder with random weights: what it scores, and what it is known by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_cross_encoder import make_tiny_cross_encoder
from tiny_model import make_tiny_model

from trivet.errors import ConfigError
from trivet.semantic.cross_encoder import CrossEncoderVerifier
from trivet.semantic.types import TextPair

pytestmark = pytest.mark.filterwarnings("ignore")
PAIRS = [TextPair("rent skis", "hire skis", 0.9), TextPair("rent skis", "rent boots", 0.9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_cross_encoder(tmp_path_factory.mktemp("cross"))


def test_any_cross_encoder_in_a_folder_scores_pairs_in_order(folder: Path) -> None:
    verifier = CrossEncoderVerifier(str(folder))
    found = [verdict.score for verdict in verifier.verify(PAIRS)]
    alone = [verifier.verify([pair])[0].score for pair in PAIRS]
    assert found == pytest.approx(alone, abs=1e-5)
    assert found[0] != pytest.approx(found[1], abs=1e-5)
    assert all(0 < score < 1 for score in found)
    assert verifier.verify([]) == []


def test_of_several_labels_the_score_is_the_last_ones_share(tmp_path: Path) -> None:
    verifier = CrossEncoderVerifier(str(make_tiny_cross_encoder(tmp_path, labels=3)))
    shares = verifier._model.predict([("rent skis", "hire skis")], apply_softmax=True)[0]
    assert sum(shares) == pytest.approx(1)
    assert verifier.verify(PAIRS[:1])[0].score == pytest.approx(float(shares[-1]))


def test_a_model_that_would_give_raw_numbers_is_scored_from_0_to_1(tmp_path: Path) -> None:
    config = make_tiny_cross_encoder(tmp_path) / "config.json"
    before = CrossEncoderVerifier(str(tmp_path)).verify(PAIRS)
    raw = '{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},'
    config.write_text(config.read_text().replace("{", raw, 1))
    after = CrossEncoderVerifier(str(tmp_path))
    assert after._model.predict([("a", "b")])[0] != pytest.approx(
        after.verify([TextPair("a", "b", 0)])[0].score
    )
    assert after.verify(PAIRS) == before


def test_its_fingerprint_is_of_the_files_and_not_of_their_place(
    folder: Path, tmp_path: Path
) -> None:
    before = CrossEncoderVerifier(str(folder)).fingerprint
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert CrossEncoderVerifier(str(copy)).fingerprint == before
    (copy / "README.md").write_text("A model.")
    assert CrossEncoderVerifier(str(copy)).fingerprint == before
    (copy / "more.json").write_text("{}")
    assert CrossEncoderVerifier(str(copy)).fingerprint != before


def test_other_weights_are_another_model(folder: Path, tmp_path: Path) -> None:
    other = CrossEncoderVerifier(str(make_tiny_cross_encoder(tmp_path, seed=2)))
    assert other.fingerprint != CrossEncoderVerifier(str(folder)).fingerprint


def test_a_model_whose_head_is_drawn_anew_is_another_one_each_time(tmp_path: Path) -> None:
    """An embedder that is named as a cross-encoder: what was measured holds for no other start."""
    make_tiny_model(tmp_path)
    (tmp_path / "modules.json").unlink()
    one, two = CrossEncoderVerifier(str(tmp_path)), CrossEncoderVerifier(str(tmp_path))
    assert one.fingerprint != two.fingerprint


def test_a_cross_encoder_that_cannot_be_loaded_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"cross_encoder: .* cannot be loaded"):
        CrossEncoderVerifier(str(tmp_path))


def test_a_hub_name_that_is_not_in_the_cache_says_how_to_fetch_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="hf download nobody/nothing"):
        CrossEncoderVerifier("nobody/nothing")
