"""How much memory the engine takes and how it is bounded, and the parts that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trivet.errors import ConfigError, Problem
from trivet.prefix.engine.kv_memory import KvMemory, blocks_for
from trivet.prefix.engine.kv_movers import SlotsMover, disk_mover, host_mover
from trivet.prefix.engine.loaded_model import LoadedModel, ModelFacts
from trivet.prefix.engine.runner import Determinism, Runner
from trivet.prefix.engine.scheduler import Limits
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.events import EventLog
from trivet.prefix.pool.hashing import Namespace
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import Shares

PREFILL_TOKENS = 1024
"""Of a step without decodes: 4 to 8 % more prompt tokens a second than 512 on two CPU cores."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Memory in bytes; what does not make a whole block is not used."""

    kv_memory: int
    block_size: int = 16
    host_memory: int = 0
    """For evicted blocks; 0 keeps none."""
    disk_memory: int = 0
    disk_folder: Path | None = None
    limits: Limits = field(default_factory=lambda: Limits(prefill_tokens=PREFILL_TOKENS))
    determinism: Determinism = ""
    shares: Shares = field(default_factory=Shares)
    platform: tuple[tuple[int, ...], ...] = ()
    """Prompts that the platform itself supplies, as tokens: all tenants share their blocks."""

    @property
    def platform_blocks(self) -> int:
        """The most blocks that they pin."""
        return sum(len(prefix) // self.block_size for prefix in self.platform)

    def ceiling(self, tenant: str, blocks: int) -> int:
        """The most of `blocks` blocks that one request of the tenant may hold, shared ones apart.

        As `BlockPool.ceiling` once all platform prefixes are pinned.
        """
        share = self.shares.of(tenant)
        most = blocks - self.platform_blocks - (self.shares.floors - share.floor)
        return most if share.quota is None else min(most, share.quota)

    def longest(self, blocks: int) -> int:
        """Tokens of the longest prompt that a tenant without bounds of its own may have, as far as
        the model allows it."""
        return self.ceiling("", blocks) * self.block_size

    def shortage(self, context: int, blocks: int, block_bytes: int) -> str:
        """What to say where no prompt may be as long as the model's context of so many tokens."""
        longest = self.longest(blocks)
        if longest >= context:
            return ""
        have = f"a prompt and its answer may have {longest:,} tokens"
        lacking = f"{have}, and the model takes {context:,}"
        needed = -(-context // self.block_size)
        beside = blocks - self.platform_blocks - self.shares.floors
        option = "--tenant-quota"
        if needed > beside:
            option, needed = "--kv-memory", needed + blocks - beside
        return f"{lacking}; {option} {_mebibytes(needed * block_bytes)} is enough for that"


class Parts(NamedTuple):
    """What the engine owns."""

    runner: Runner
    pool: BlockPool
    events: EventLog


def build(loaded: LoadedModel, settings: EngineSettings) -> Parts:
    """Raises `ConfigError` for memory that holds no block, or that there is not."""
    size = settings.block_size
    if size < 1:
        raise _problem("--block-size", "a block has at least 1 token")
    blocks = blocks_for(settings.kv_memory, loaded.layers, size, loaded.dtype)
    if blocks <= settings.platform_blocks + settings.shares.floors:
        raise _problem(
            "--kv-memory",
            f"{settings.kv_memory:,} bytes hold {blocks} blocks of {size} tokens, which leaves"
            f" none beside platform prefixes and floors",
        )
    _refuse_more_than_there_is(loaded, settings)
    try:
        runner = Runner(loaded, blocks, size, determinism=settings.determinism)
    except (RuntimeError, MemoryError) as error:
        message = f"{settings.kv_memory:,} bytes of KV do not fit in memory: {error}"
        raise _problem("--kv-memory", message) from None
    events = EventLog()
    offload = _offload(runner.memory, settings)
    pool = BlockPool(blocks, size, shares=settings.shares, offload=offload, emit=events)
    return Parts(runner, pool, events)


def _refuse_more_than_there_is(loaded: LoadedModel, settings: EngineSettings) -> None:
    """Zeroed memory is taken when it is written: too much of it ends the process, not a call."""
    on_host = {"--host-memory": settings.host_memory}
    if loaded.device.type == "cpu":
        on_host["--kv-memory"] = settings.kv_memory
    free = available_bytes()
    option, most = max(on_host.items(), key=lambda item: item[1])
    if free is not None and sum(on_host.values()) > free:
        raise _problem(option, f"{most:,} bytes are asked for, and this machine has {free:,} free")


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Host memory that can be had without swapping; None where the system does not tell."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) << 10 if found else None


def namespace(facts: ModelFacts, settings: EngineSettings) -> Namespace:
    """What tells this engine's KV from another's."""
    layout = f"{facts.dtype} {facts.layout} {settings.determinism}"
    return Namespace(facts.name, facts.revision, facts.tokenizer, layout=layout)


def _offload(memory: KvMemory, settings: EngineSettings) -> OffloadTier | None:
    host, disk = (
        amount // memory.bytes_per_block for amount in (settings.host_memory, settings.disk_memory)
    )
    above: KvMemory | SlotsMover = memory
    mover = host_mover(memory, host) if host else None
    below = None
    if disk:
        above = mover or memory
        below = OffloadTier(
            disk, disk_mover(memory, above, disk, settings.disk_folder), medium="disk"
        )
    return OffloadTier(host, mover, below=below) if mover else below


def _mebibytes(amount: int) -> str:
    return f"{-(-amount // (1 << 20))}MiB"


def _problem(option: str, message: str) -> ConfigError:
    return ConfigError(Problem("trivet engine", 0, 0, option, message))
