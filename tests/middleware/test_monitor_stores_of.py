"""Which store of running counts goes with which store of answers."""

from __future__ import annotations

from pathlib import Path

from trivet.exact.seal import Seal
from trivet.middleware.running.config import StoreConfig
from trivet.middleware.semantic_tier.monitor_stores import monitor_store_of
from trivet.semantic.monitor_store import Update
from trivet.semantic.tally import Cell

SEAL = Seal(b"s" * 32)


def test_counts_end_with_the_process_where_answers_do() -> None:
    assert monitor_store_of(StoreConfig(url="memory"), SEAL) is None


async def test_a_file_of_their_own_lies_beside_the_answers(tmp_path: Path) -> None:
    store = monitor_store_of(StoreConfig(url=f"sqlite:{tmp_path / 'cache.sqlite'}"), SEAL)
    assert store is not None
    await store.add("b", {Cell("t", "", "", ""): Update()})
    assert [path.name for path in tmp_path.iterdir()] == ["cache.sqlite-monitor"]


async def test_machines_that_share_a_redis_share_them_there() -> None:
    store = monitor_store_of(StoreConfig(url="redis://127.0.0.1:1/0"), SEAL)
    assert store is not None
    assert store.name == "redis"
    await store.close()
