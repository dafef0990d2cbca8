"""The store and the fleet that a server config names."""

from __future__ import annotations

from contextlib import AsyncExitStack

from trivet.exact.factory import open_store
from trivet.exact.fleet import EventCodec, Fleet
from trivet.exact.seal import Seal
from trivet.exact.store import ExactStore
from trivet.middleware.config import StoreConfig, state_dir
from trivet.telemetry import Observer


def store_url(config: StoreConfig) -> str:
    """The URL with the default place of the embedded store filled in."""
    if config.url in ("sqlite", "sqlite:"):
        return f"sqlite:{state_dir() / 'cache.sqlite'}"
    return config.url


def is_redis(url: str) -> bool:
    """Whether the store is shared by machines."""
    return url.startswith(("redis", "valkey"))


async def store_of(config: StoreConfig, seal: Seal, observer: Observer) -> ExactStore:
    """Open the store. A store that does not answer yet is no error."""
    return await open_store(
        store_url(config),
        seal=seal,
        observer=observer,
        max_bytes=config.max_bytes,
        max_entries=config.max_entries,
        front_bytes=config.front_bytes,
        front_entries=config.front_entries,
        budget_s=config.budget,
    )


async def fleet_of(
    config: StoreConfig,
    seal: Seal,
    codec: EventCodec,
    observer: Observer,
    stack: AsyncExitStack,
) -> Fleet | None:
    """Collapse across machines, where the store is one that machines share."""
    url = store_url(config)
    if not is_redis(url):
        return None
    from trivet.exact.fleet_redis import open_fleet

    fleet = await open_fleet(url, seal=seal, codec=codec, observer=observer)
    stack.push_async_callback(fleet.close)
    return fleet
