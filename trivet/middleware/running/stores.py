"""The store and the fleet that a server config names."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from typing import Final

from trivet.exact.factory import StoreLimits, open_store
from trivet.exact.fleet import EventCodec, Fleet
from trivet.exact.guard import Budget
from trivet.exact.seal import Seal
from trivet.exact.store import Bound, ServingStore
from trivet.middleware.running.config import StoreConfig, state_dir
from trivet.telemetry import Observer

_SECRET: Final = re.compile("password|secret|token", re.IGNORECASE)


def store_url(config: StoreConfig) -> str:
    """The URL with the default place of the embedded store filled in."""
    if config.url in ("sqlite", "sqlite:"):
        return f"sqlite:{state_dir() / 'cache.sqlite'}"
    return config.url


def shown_url(config: StoreConfig) -> str:
    """The URL without passwords, for people to read: what stands before `@`, and options that name
    a secret."""
    url = store_url(config)
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place, asks, options = rest.rpartition("@")[2].partition("?")
    shown = (
        f"{name}=..." if _SECRET.search(name) else f"{name}{is_}{value}"
        for name, is_, value in (option.partition("=") for option in options.split("&"))
    )
    return f"{scheme}://{place}{asks}{'&'.join(shown)}"


def store_of(config: StoreConfig, seal: Seal, observer: Observer) -> ServingStore:
    """The store. It connects when it is first used, so one that is down is no error here."""
    limits = StoreLimits(
        most=Bound(config.max_entries, config.max_bytes),
        front=Bound(config.front_entries, config.front_bytes),
        budget=Budget(get_s=config.budget),
    )
    return open_store(store_url(config), seal=seal, observer=observer, limits=limits)


async def fleet_of(
    config: StoreConfig,
    seal: Seal,
    codec: EventCodec,
    observer: Observer,
    stack: AsyncExitStack,
) -> Fleet | None:
    """Collapse across machines, where the store is one that machines share."""
    if not config.url.startswith(("redis", "valkey")):
        return None
    from trivet.exact.fleet_redis import RedisFleet
    from trivet.exact.redis_fleet_client import fleet_client
    from trivet.exact.store_url import parse_url

    fleet = RedisFleet(fleet_client(parse_url(config.url)), seal, codec, observer)
    await fleet.start()
    stack.push_async_callback(fleet.close)
    return fleet
