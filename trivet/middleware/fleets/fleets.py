"""The replicas of all upstreams of one process, and what watches them.

For each server a task asks for its health and its queue every two seconds; where it publishes KV
events another one listens. Nothing here may fail a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from trivet.errors import UpstreamError
from trivet.middleware.admin.control import Component
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.fleets.kv_events import KvEvents, Order
from trivet.middleware.fleets.linking import Linking
from trivet.middleware.fleets.replicas import Once, ReplicaSet
from trivet.middleware.fleets.way import Way
from trivet.middleware.http_client.client import HttpClient, Limits
from trivet.middleware.http_client.errors import HttpError
from trivet.middleware.http_client.request import Body, root_of, write_request
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamResponse
from trivet.prefix.routing.kv_events_wire import Batch, Cleared
from trivet.prefix.routing.queue_depth import queue_depth
from trivet.telemetry import Observer, ignore

EVERY_S: Final = 2.0
_ASK: Final = Limits(connect=2.0, silence=2.0)
_LARGEST: Final = 4 << 20
_GENERATES: Final = (
    *("/chat/completions", "/completions", "/responses", "/messages", "/embeddings"),
    *("/messages/count_tokens", "/tokenize", "/rerank", "/score"),
)
"""Ends of paths whose answer depends on the request alone, so that any replica may give it."""

Sent = tuple[str, str, RawHeaders, Body]
"""Method, target, headers and body of a request."""


class Fleets:
    """The replica sets by upstream. For one event loop.

    Raises `ConfigError` where events are to be listened to and cannot be.
    """

    def __init__(self, upstreams: Sequence[UpstreamConfig], observer: Observer = ignore) -> None:
        self.sets = {one.name: ReplicaSet(one, observer) for one in upstreams if one.replicas}
        self._client = HttpClient()
        self._linking = Linking(self._client)
        self._tasks: list[asyncio.Task[None]] = []
        self._events = [
            KvEvents(one.kv_events, partial(_apply, replicas, index))
            for replicas in self.sets.values()
            for index, one in enumerate(replicas.replicas)
            if one.kv_events
        ]

    def start(self) -> None:
        """Begin to watch."""
        for name, replicas in self.sets.items():
            replicas.announce()
            for index in range(len(replicas.replicas)):
                watching = _watch(self._client, replicas, index)
                self._tasks.append(asyncio.create_task(watching, name=f"trivet-replica-{name}"))
        for events in self._events:
            self._tasks.append(asyncio.create_task(events.follow(), name="trivet-kv-events"))

    def components(self) -> tuple[Component, ...]:
        """How the upstreams with replicas fare. One of which no replica is asked is not ok. The
        proxy is all the same: others work, and caches answer."""
        return tuple(replicas.component() for replicas in self.sets.values())

    async def send(
        self, upstream: UpstreamConfig, sent: Sent, way: Way | None, once: Once
    ) -> UpstreamResponse:
        """The answer of one of the upstream's replicas. Raises `UpstreamError`."""
        replicas = self.sets[upstream.name]
        method, target, _, body = sent
        whole = isinstance(body, bytes)
        path = target.partition("?")[0].rstrip("/")
        generates = whole and method == "POST" and path.endswith(_GENERATES)
        response = await replicas.send(once, way, generates=generates)
        if way is not None and way.replica in replicas.index.replicas and isinstance(body, bytes):
            self._linking.learn(replicas, way, path, body)
        return response

    def told(self, upstream: UpstreamConfig, way: Way | None, cached: int) -> None:
        """The answer to a call said how many tokens of its prompt were cached."""
        if way is not None:
            self.sets[upstream.name].told(way, cached)

    async def close(self) -> None:
        """End what watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._linking.close()
        for events in self._events:
            events.close()
        await self._client.close()


def _apply(replicas: ReplicaSet, index: int, batch: Batch, order: Order) -> None:
    if order == "restarted":
        replicas.cleared(index)
    for event in batch.events:
        if isinstance(event, Cleared):
            replicas.cleared(index)
        replicas.index.apply(index, event)


async def _watch(client: HttpClient, replicas: ReplicaSet, index: int) -> None:
    root = replicas.replicas[index].root
    asks_depth = True
    while True:
        status, _ = await _get(client, root, "/health")
        if status == 0 or status >= 500:
            replicas.failed(index, f"health-{status}" if status else "health", checked=True)
        else:
            replicas.checked(index)
            if asks_depth:
                status, text = await _get(client, root, "/metrics")
                told = queue_depth(text)
                if told is not None:
                    replicas.depth(index, told)
                elif status in (401, 403, 404, 501):
                    asks_depth = False
        await asyncio.sleep(EVERY_S)


async def _get(client: HttpClient, base: str, target: str) -> tuple[int, str]:
    """Status and text; status 0 where there is no answer."""
    try:
        root = root_of(base)
        request = write_request(root, "GET", target, [], b"")
        response = await client.send(root.origin, request, _ASK)
    except HttpError:
        return 0, ""
    parts: list[bytes] = []
    size = 0
    try:
        while size <= _LARGEST and (chunk := await response.read_some()):
            parts.append(chunk)
            size += len(chunk)
    except (HttpError, UpstreamError):
        return 0, ""
    finally:
        response.close()
    return response.status, b"".join(parts).decode("utf-8", "replace")
