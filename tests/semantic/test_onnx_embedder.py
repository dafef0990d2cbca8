"""The default embedder's adapter, on a model small enough to export in a test."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tiny_model import make_tiny_model

from trivet.errors import EmbedderError
from trivet.semantic import onnx_cache
from trivet.semantic.batching import BatchedEmbedder, Limits
from trivet.semantic.onnx_embedder import OnnxEmbedder
from trivet.semantic.onnx_export import export

_TEXTS = ["", "a", "hello there world", "\U0001f600", "x" * 100_000, "שלום hello", "a b " * 3000]


def export_here(folder: Path, file: Path) -> None:
    export(str(folder), str(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model's folder, and the cache that holds its export."""
    base = tmp_path_factory.mktemp("model")
    folder = make_tiny_model(base / "tiny")
    OnnxEmbedder(folder, base / "cache", export=export_here)
    return folder, base / "cache"


def never(folder: Path, file: Path) -> None:
    raise AssertionError("exported again")


def copied(made: tuple[Path, Path], to: Path) -> tuple[Path, Path]:
    return (
        Path(shutil.copytree(made[0], to / "tiny")),
        Path(shutil.copytree(made[1], to / "cache")),
    )


def test_vectors_are_those_of_sentence_transformers(made: tuple[Path, Path]) -> None:
    from trivet.semantic.sentence_embedder import SentenceEmbedder

    ours = OnnxEmbedder(*made, export=never)
    theirs = SentenceEmbedder(str(made[0]))
    cosines = (ours.embed(_TEXTS) * theirs.embed(_TEXTS)).sum(axis=1)
    assert cosines == pytest.approx(np.ones(len(_TEXTS)), abs=1e-5)
    assert ours.fingerprint == theirs.fingerprint
    assert ours.dimension == theirs.dimension == 8


def test_a_texts_vector_does_not_depend_on_its_batch(made: tuple[Path, Path]) -> None:
    embedder = OnnxEmbedder(*made, export=never)
    together = embedder.embed(_TEXTS * 40)
    alone = np.concatenate([embedder.embed([text]) for text in _TEXTS])
    assert np.abs(together - np.tile(alone, (40, 1))).max() < 1e-6


def test_vectors_keep_the_contract(made: tuple[Path, Path]) -> None:
    embedder = OnnxEmbedder(*made, export=never)
    vectors = embedder.embed([*_TEXTS, "lone \ud800 surrogate", "\x00"])
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(vectors)))
    assert embedder.embed([]).shape == (0, 8)


def test_a_long_text_is_cut_before_it_is_tokenized(made: tuple[Path, Path]) -> None:
    embedder = OnnxEmbedder(*made, export=never)
    start = "a b " * 128
    one, other = embedder.embed([start + "c" * 100_000, start + "d" * 90_000])
    assert np.array_equal(one, other)
    assert embedder.max_tokens == 16


def test_an_export_that_is_there_is_used(made: tuple[Path, Path]) -> None:
    assert OnnxEmbedder(*made, export=never).name == "tiny"


@pytest.mark.parametrize("broken", ["short", "altered", "gone", "no-sum"])
def test_an_export_that_is_not_whole_is_made_again(
    made: tuple[Path, Path], tmp_path: Path, broken: str
) -> None:
    folder, cache = copied(made, tmp_path)
    [file] = cache.glob("*.onnx")
    content = file.read_bytes()
    if broken == "no-sum":
        file.with_suffix(".sha256").unlink()
    elif broken == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-10] if broken == "short" else content[:-1] + b"?")
    OnnxEmbedder(folder, cache, export=export_here)
    OnnxEmbedder(folder, cache, export=never)


def test_nothing_is_left_of_an_export_that_failed(tmp_path: Path) -> None:
    def fails(folder: Path, file: Path) -> None:
        file.write_bytes(b"half")
        raise EmbedderError("export", "killed")

    folder = make_tiny_model(tmp_path / "tiny")
    with pytest.raises(EmbedderError, match="killed"):
        OnnxEmbedder(folder, tmp_path / "cache", export=fails)
    left = {file.name for file in (tmp_path / "cache").iterdir()}
    assert left == {"digests.json", "export.lock"}


def test_processes_that_come_at_once_export_once(made: tuple[Path, Path], tmp_path: Path) -> None:
    [ready] = made[1].glob("*.onnx")
    exports: list[Path] = []
    both = threading.Barrier(2)

    def copies(folder: Path, file: Path) -> None:
        exports.append(file)
        shutil.copy(ready, file)

    def open_one() -> None:
        both.wait()
        onnx_cache.exported(made[0], "f" * 64, tmp_path, copies)

    threads = [threading.Thread(target=open_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(exports) == 1


def test_a_cache_that_cannot_be_written_is_named(made: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbedderError, match=str(tmp_path)) as caught:
        OnnxEmbedder(made[0], tmp_path / "file" / "cache", export=never)
    assert caught.value.reason == "export"


def test_another_kind_of_pooling_is_not_taken_for_this_one(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, cache = copied(made, tmp_path)
    pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(EmbedderError) as caught:
        OnnxEmbedder(folder, cache, export=never)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "modules.json"])
def test_a_folder_that_lacks_a_file_is_missing(
    made: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    folder, cache = copied(made, tmp_path)
    (folder / name).unlink()
    with pytest.raises(EmbedderError) as caught:
        OnnxEmbedder(folder, cache, export=never)
    assert caught.value.reason == "missing"


def test_weights_that_change_on_disk_show(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, cache = copied(made, tmp_path)
    embedder = OnnxEmbedder(folder, cache, export=never)
    assert embedder.fingerprint_now() == embedder.fingerprint
    make_tiny_model(folder, seed=2)
    assert embedder.fingerprint_now() != embedder.fingerprint
    shutil.rmtree(folder)
    with pytest.raises(EmbedderError) as caught:
        embedder.fingerprint_now()
    assert caught.value.reason == "missing"


async def test_behind_the_queue_a_changed_model_is_left(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, cache = copied(made, tmp_path)
    batched = BatchedEmbedder(
        OnnxEmbedder(folder, cache, export=never), deadline_s=60.0, limits=Limits(check_s=0.0)
    )
    assert (await batched.embed("before")).shape == (8,)
    make_tiny_model(folder, seed=2)
    with pytest.raises(EmbedderError) as caught:
        await batched.embed("after")
    assert caught.value.reason == "changed"
    await batched.close()
