"""`trivet engine bench` as a command, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from engine_folder import write_model

SMALL = ("--threads", "1", "--rounds", "1", "--prefix", "128", "--tail", "16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    write_model(str(made))
    return made


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trivet.cli", "engine", "bench", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_it_prints_one_document_whose_hits_are_those_of_the_trace(folder: Path) -> None:
    ran = bench("--model", str(folder), *SMALL, "--kv-memory", "64MiB", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    found = {figure["name"]: figure["value"] for figure in told["figures"]}
    assert (told["prefix"], told["tail"], told["dtype"]) == (128, 16, "float32")
    # 2 layers, keys and values, 2 heads of 16 numbers, 4 bytes each.
    assert found["KV of a token"] == 2 * 2 * 2 * 16 * 4
    # Of 6 talks of 8 turns, full blocks of what came before; the first turn shares 112 tokens.
    turns = [120 + 96 * turn for turn in range(1, 9)]
    hits = 5 * 112 + 6 * sum((one - 96) // 16 * 16 for one in turns[1:])
    assert found["chat trace: prompt tokens cached"] == pytest.approx(hits / 6 / sum(turns) * 100)
    assert found["tokens of it that host memory gave"] >= 112


def test_sizes_that_do_not_fit_are_refused_by_option(folder: Path) -> None:
    small = bench("--model", str(folder), *SMALL, "--kv-memory", "512KiB")
    assert (small.returncode, "--kv-memory: at least" in small.stderr) == (2, True)
    long = bench("--model", str(folder), "--prefix", "4096")
    assert (long.returncode, "the model takes 1024" in long.stderr) == (2, True)


def test_more_memory_than_the_machine_has_is_refused_before_it_is_taken(folder: Path) -> None:
    ran = bench("--model", str(folder), *SMALL, "--kv-memory", "900000GiB")
    assert ran.returncode == 2
    assert "--kv-memory: 966,367,641,600,000 bytes are asked for" in ran.stderr
