from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from trivet.errors import ConfigError
from trivet.semantic.types import TextPair
from trivet.semantic.verifiers import open_chain

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors


class Constant:
    name = "constant"
    fingerprint = "00"
    dimension = 2

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


PAIRS = [TextPair("rent for 3 days", "rent for 9 days", 0.97)]


def test_the_cosine_chain_has_no_verifier() -> None:
    chain = open_chain("cosine", Constant())
    assert chain.verifier is None
    assert chain.fingerprint.verifier is None
    assert [verdict.score for verdict in chain.verify(PAIRS)] == [0.97]


def test_the_rules_chain_scores_by_cosine_and_vetoes() -> None:
    verdict = open_chain("rules", Constant()).verify(PAIRS)[0]
    assert (verdict.score, verdict.veto) == (0.97, "number")


def test_the_verifier_chain_scores_by_its_own() -> None:
    chain = open_chain("verifier", Constant())
    assert chain.verify(PAIRS)[0].score < 0.5
    assert chain.fingerprint.chain == "verifier"
    assert len(chain.fingerprint.verifier or "") == 64


def test_a_cross_encoder_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="cross_encoder"):
        open_chain("cross-encoder", Constant())


def test_a_folder_that_is_not_there_is_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trivet.semantic.cross_encoder", None)
    with pytest.raises(ConfigError, match="cross_encoder: There is no folder"):
        open_chain("cross-encoder", Constant(), cross_encoder=str(tmp_path / "gone"))


def test_a_library_that_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trivet.semantic.cross_encoder", None)
    with pytest.raises(ConfigError, match=r"pip install 'trivet\[semantic\]'"):
        open_chain("cross-encoder", Constant(), cross_encoder="some/model")


def test_an_unknown_chain_is_refused() -> None:
    with pytest.raises(ConfigError, match="no chain is called voting"):
        open_chain(cast("Any", "voting"), Constant())
