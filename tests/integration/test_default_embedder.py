"""The shipped model, exported as on a first start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trivet.semantic.embedders import default_folder, open_embedder
from trivet.semantic.types import Embedder

_TEXTS = [
    "",
    "hi",
    "How do I return a pair of shoes that I bought last week?",
    "\U0001f600 thanks!! \U0001f1ea\U0001f1fa",
    "מה שעות הפתיחה שלכם?",
    "Wie lange dauert der Versand? 送料はいくらですか。",
    "İstanbul’da naïve café, ﬁne",
    "\t tabs\nand\r\nlines \x00 \ud800",
    "the same sentence again and again. " * 200,
    "x" * 101,
    "a1-b2_c3/d4",
]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def default(state: Path) -> Embedder:
    return open_embedder("default", state)


def test_vectors_are_those_of_sentence_transformers(default: Embedder, state: Path) -> None:
    theirs = open_embedder(str(default_folder()), state)
    cosines = (default.embed(_TEXTS) * theirs.embed(_TEXTS)).sum(axis=1)
    assert cosines.min() > 0.99999
    assert default.fingerprint == theirs.fingerprint
    assert default.dimension == 384


def test_a_text_of_100_kb_is_cut_where_the_model_stops_reading(default: Embedder) -> None:
    text = "What is the price of the next one? " * 3000
    one, other = default.embed([text, text[:6000]])
    assert np.array_equal(one, other)


def test_a_start_with_an_export_loads_no_torch(default: Embedder, state: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from trivet.semantic.embedders import open_embedder\n"
        f"made = open_embedder('default', Path({str(state)!r}))\nmade.embed(['hello'])\n"
        "print(made.fingerprint)\nsys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, default.fingerprint), done.stderr
