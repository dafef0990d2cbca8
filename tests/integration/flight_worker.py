"""A worker process of the fleet tests: collapses requests for a raw TCP upstream.

Run as `flight_worker.py '{"hub": PATH} | {"redis": URL}' UPSTREAM_PORT`. Each line on standard
input is a number of requests, or `close`; each line on standard output is JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trivet.errors import UpstreamError
from trivet.exact import codec
from trivet.exact.collapse import Collapser
from trivet.exact.entry import Entry
from trivet.exact.fleet import EventCodec, Fleet
from trivet.exact.flight import Failed, Flight, Head, Stored
from trivet.exact.seal import Seal
from trivet.messages import Api, ExactKey
from trivet.telemetry import Event

KEY = ExactKey(b"k" * 32)
TENANT = "acme"
SEAL = Seal(b"0123456789abcdef0123456789abcdef")
counts: Counter[str] = Counter()


def decode(tenant: str, key: ExactKey, raw: bytes) -> Entry | None:
    found = codec.decode(raw, tenant, key, SEAL)
    return found if isinstance(found, Entry) else None


CODEC = EventCodec(lambda entry: codec.encode(entry, SEAL), decode)


def entry(body: bytes) -> Entry:
    """What a recorder would make of `body`."""
    return Entry(KEY, TENANT, Api.CHAT, b"{}", body, "m", None, (), 1.0, 2.0, 2.0)


def observe(event: Event) -> None:
    name = type(event).__name__
    detail = getattr(event, "kind", None) or getattr(event, "state", None) or event.reason  # type: ignore[union-attr]
    counts[f"{name} {detail}"] += 1


async def lead(port: int, flight: Flight) -> None:
    """Read an answer to the end of the connection; its first byte decides what it is."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        raise UpstreamError("connect", str(error)) from None
    try:
        whole = b""
        while chunk := await reader.read(65536):
            if not whole:
                flight.start(Head(500 if chunk[:1] == b"!" else 200, ((b"x", b"y"),), True))
            whole += chunk
            await flight.push(chunk)
        if whole.endswith(b"."):
            flight.finish(Stored(entry(whole)))
    finally:
        writer.close()


async def request(collapser: Collapser, port: int) -> str:
    """What the pipeline does with one request."""
    ticket = await collapser.join(KEY, TENANT, lambda flight: lead(port, flight))
    try:
        head = await ticket.subscription.head()
        if ticket.role == "follow" and (isinstance(head, Failed) or head.status >= 400):
            old = ticket.subscription
            ticket = await collapser.join(
                KEY, TENANT, lambda flight: lead(port, flight), attempt=1, after=old
            )
            old.leave()
        body = b"".join([chunk async for chunk in ticket.subscription])
        result = await ticket.subscription.result()
        assert not isinstance(result, Stored) or result.entry.body == body
        return f"{type(result).__name__} {body[:20].decode()} {len(body)}"
    except UpstreamError as error:
        return f"error {error.reason}"
    finally:
        ticket.subscription.leave()


async def make_fleet(where: dict[str, Any]) -> Fleet:
    if "hub" in where:
        from trivet.exact.hub_client import HubClient

        async def double(payload: bytes) -> bytes:
            return payload * 2

        hub = HubClient(
            Path(where["hub"]), CODEC, observe, {"double": double}, budget_s=where["budget_s"]
        )
        await hub.start()
        return hub
    from redis.asyncio import Redis

    from trivet.exact.fleet_redis import FleetTimes, RedisFleet

    fleet = RedisFleet(
        lambda: Redis.from_url(where["redis"]),
        SEAL,
        CODEC,
        observe,
        times=FleetTimes(**where["times"]),
    )
    await fleet.start()
    return fleet


async def main() -> None:
    where, port = json.loads(sys.argv[1]), int(sys.argv[2])
    fleet = await make_fleet(where)
    collapser = Collapser(fleet, observe, keep_bytes=where.get("keep", 1 << 24), window=1 << 20)
    loop = asyncio.get_running_loop()
    print(json.dumps("ready"), flush=True)
    while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) != "close":
        began = loop.time()
        answers = await asyncio.gather(*(request(collapser, port) for _ in range(int(line))))
        report = {
            "answers": Counter(answers),
            "counts": counts,
            "seconds": loop.time() - began,
        }
        print(json.dumps(report), flush=True)
        counts.clear()
    await collapser.close()
    await fleet.close()  # type: ignore[attr-defined]
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    print(json.dumps({"left": left, "flights": collapser.flights}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
