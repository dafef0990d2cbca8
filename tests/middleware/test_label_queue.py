"""Pairs for people: a bounded file of the tenant's own."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from trivet.middleware.semantic_tier.label_queue import LabelQueue


async def test_pairs_are_lines_that_only_the_owner_may_read(tmp_path: Path) -> None:
    labels = LabelQueue(tmp_path / "labels")
    await labels.put("acme", {"a": "ü\n1"})
    await labels.put("acme", {"a": "2"})
    path = labels.path("acme")
    assert [json.loads(line)["a"] for line in path.read_text().splitlines()] == ["ü\n1", "2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_tenants_have_files_of_their_own(tmp_path: Path) -> None:
    labels = LabelQueue(tmp_path)
    for tenant in ("one", "two"):
        await labels.put(tenant, {"a": tenant})
    assert json.loads(labels.path("two").read_bytes()) == {"a": "two"}


@pytest.mark.parametrize("tenant", ["../etc", "a/b", "", ".", "ü", "x" * 200])
async def test_a_name_that_is_no_file_name_stays_in_the_directory(
    tmp_path: Path, tenant: str
) -> None:
    labels = LabelQueue(tmp_path)
    await labels.put(tenant, {"a": 1})
    assert [path.parent for path in tmp_path.iterdir()] == [tmp_path]
    assert labels.path(tenant).exists()


async def test_a_full_file_takes_no_more(tmp_path: Path) -> None:
    labels = LabelQueue(tmp_path, most_bytes=30)
    for _ in range(5):
        await labels.put("acme", {"a": "0123456789"})
    assert labels.path("acme").stat().st_size <= 30
    assert labels.dropped == 4


async def test_what_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    labels = LabelQueue(tmp_path)
    await labels.put("acme", {"a": "\ud800"})
    labels.path("link").symlink_to(tmp_path / "elsewhere")
    await labels.put("link", {"a": 1})
    (tmp_path / "file").write_text("")
    await LabelQueue(tmp_path / "file").put("acme", {"a": 1})
    assert labels.dropped == 2
    assert not (tmp_path / "elsewhere").exists()
