"""Quotas and floors on the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trivet.errors import ConfigError
from trivet.prefix.engine.amounts import Pool, bounds
from trivet.prefix.engine.settings import EngineSettings
from trivet.prefix.pool.shares import Share, Shares

POOL = Pool(blocks=100, block_bytes=1024)


def test_nothing_said_bounds_nobody() -> None:
    assert bounds([], []).shares(POOL) == Shares()


def test_a_quota_without_a_name_is_everybodys() -> None:
    shares = bounds(["50%"], ["acme=10KiB"]).shares(POOL)
    assert (shares.of("acme"), shares.of("other")) == (Share(50, 10), Share(50))


def test_a_quota_is_rounded_down_and_a_floor_up() -> None:
    shares = bounds(["acme=2047"], ["acme=1025"]).shares(Pool(100, 1024 // 2))
    assert shares.of("acme") == Share(3, 3)


def test_a_tenants_name_may_hold_what_separates_it() -> None:
    assert bounds(["a=b=7KiB"], []).shares(POOL).of("a=b") == Share(7)


@pytest.mark.parametrize(
    ("quotas", "floors", "told"),
    [
        (["half"], [], "'half' is neither"),
        (["101%"], [], "'101%' is neither"),
        (["-5%"], [], "'-5%' is neither"),
        (["acme="], [], "'' is neither"),
        (["5%", "6%"], [], "twice for all tenants"),
        (["a=5%", "a=6%"], [], "twice for a"),
        (["100"], [], "less than a block"),
        (["a=0%"], [], "less than a block"),
        ([], ["5%"], "TENANT=AMOUNT"),
        ([], ["a=50%", "b=50%"], "leave nothing"),
        (["a=5%"], ["a=6%"], "'a' has a floor of 6 blocks and a quota of 5"),
        (["5%"], ["a=6%"], "'a' has a floor of 6 blocks and a quota of 5"),
    ],
)
def test_what_cannot_hold_is_told(quotas: list[str], floors: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        bounds(quotas, floors).shares(POOL)


def test_memory_that_is_short_of_a_context_is_told_with_what_is_enough() -> None:
    plain = EngineSettings(0, block_size=16, shares=Shares({"acme": Share(floor=10)}))
    assert plain.longest(100) == 90 * 16
    assert plain.shortage(90 * 16, 100, 1 << 20) == ""
    assert plain.shortage(90 * 16 + 1, 100, 1 << 20) == (
        "a prompt and its answer may have 1,440 tokens, and the model takes 1,441;"
        " --kv-memory 101MiB is enough for that"
    )
    bound = replace(plain, shares=Shares(default_quota=50))
    assert bound.shortage(60 * 16, 100, 1 << 20) == (
        "a prompt and its answer may have 800 tokens, and the model takes 960;"
        " --tenant-quota 60MiB is enough for that"
    )
