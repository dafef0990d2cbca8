"""A process that writes entries into a SQLite store until it is killed, or does one thing.

sqlite_writer.py PATH fill       put for ever; print each name once it is committed
sqlite_writer.py PATH purge      purge tenant t1
sqlite_writer.py PATH until-full put until the store says why it cannot; print the reason
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "exact"))

from entries import entry

from trivet.errors import StoreError
from trivet.exact.seal import Seal
from trivet.exact.sqlite import SqliteStore
from trivet.exact.store import Bound


async def main(path: Path, what: str) -> None:
    store = SqliteStore(path, Seal(b"s" * 32), most=Bound())
    now = time.time()
    if what == "purge":
        print(await store.purge("t1", None, now), flush=True)
        await store.close()
        return
    number = 0
    while True:
        name = f"n{number}"
        times: dict[str, Any] = {"created": now, "expires": now + 3600, "stale_until": now + 3600}
        try:
            await store.put(
                entry(name, body=b"x" * 4000, canonical=name.encode(), **times), Bound()
            )
        except StoreError as error:
            found = await store.get("t1", entry("n0").key)
            print(error.reason, found is not None, flush=True)
            await store.close()
            return
        if what == "fill":
            print(name, flush=True)
        number += 1


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
