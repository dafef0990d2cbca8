"""Amounts of KV on the command line, and what they give each tenant.

--tenant-quota 50%            every tenant holds at most half of the pool
--tenant-quota acme=1GiB      acme has a bound of its own
--tenant-floor acme=256MiB    others leave acme that much
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.errors import ConfigError, Problem
from trivet.prefix.pool.shares import Share, Shares

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUOTA, _FLOOR = "--tenant-quota", "--tenant-floor"


def size(text: str) -> int:
    """Bytes out of `4096`, `512MiB` or `2GiB`. Raises `ValueError`."""
    found = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?", text.strip(), re.ASCII)
    if not found:
        raise ValueError("a size is a number of bytes, or a number with KiB, MiB, GiB or TiB")
    return int(found[1]) * _UNITS[found[2] or ""]


@dataclass(frozen=True, slots=True)
class Pool:
    """What amounts are of: `blocks` of `block_bytes` each."""

    blocks: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Amount:
    """A share of the pool (0 to 1), or else bytes."""

    share: float | None
    bytes: int = 0

    def blocks(self, pool: Pool) -> float:
        """Blocks, not whole ones."""
        return self.bytes / pool.block_bytes if self.share is None else self.share * pool.blocks


@dataclass(frozen=True, slots=True)
class Bounds:
    """Quotas and floors by tenant; the quota of `""` is that of all without one of their own."""

    quotas: dict[str, Amount]
    floors: dict[str, Amount]

    def shares(self, pool: Pool) -> Shares:
        """In blocks: quotas rounded down, floors up. Raises `ConfigError` for what cannot hold."""
        quotas = {name: math.floor(one.blocks(pool)) for name, one in self.quotas.items()}
        floors = {name: math.ceil(one.blocks(pool)) for name, one in self.floors.items()}
        default = quotas.pop("", None)
        if 0 in (default, *quotas.values()):
            message = f"is less than a block of {pool.block_bytes:,} bytes"
            raise _problem(_QUOTA, message)
        if sum(floors.values()) >= pool.blocks:
            message = f"all floors together leave nothing of the pool's {pool.blocks:,} blocks"
            raise _problem(_FLOOR, message)
        tenants = {}
        for name in quotas.keys() | floors.keys():
            quota, floor = quotas.get(name, default), floors.get(name, 0)
            if quota is not None and quota < floor:
                message = f"{name!r} has a floor of {floor} blocks and a quota of {quota}"
                raise _problem(_FLOOR, message)
            tenants[name] = Share(quota, floor)
        return Shares(tenants, default)


def bounds(quotas: Sequence[str], floors: Sequence[str]) -> Bounds:
    """What the options say. Raises `ConfigError` for one that cannot be read."""
    read = Bounds(_read(_QUOTA, quotas), _read(_FLOOR, floors))
    if "" in read.floors:
        raise _problem(_FLOOR, "is of one tenant: TENANT=AMOUNT")
    return read


def _read(option: str, given: Sequence[str]) -> dict[str, Amount]:
    found: dict[str, Amount] = {}
    for text in given:
        tenant, _, told = text.rpartition("=")
        if tenant in found:
            raise _problem(option, f"is given twice for {tenant or 'all tenants'}")
        found[tenant] = _amount(option, told.strip())
    return found


def _amount(option: str, told: str) -> Amount:
    percent = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", told, re.ASCII)
    if percent and float(percent[1]) <= 100:
        return Amount(float(percent[1]) / 100)
    try:
        return Amount(None, size(told))
    except ValueError:
        message = f"{told!r} is neither 0% to 100% of --kv-memory nor a size as 256MiB"
        raise _problem(option, message) from None


def _problem(option: str, message: str) -> ConfigError:
    return ConfigError(Problem("trivet engine", 0, 0, option, message))
