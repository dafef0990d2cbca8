"""Facts about the store and the secret. Nothing is changed but one key in Redis, for seconds."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from trivet.canonical import mac
from trivet.errors import ConfigError, StoreError
from trivet.exact.redis_secret import MARKS
from trivet.exact.seal import Seal, load_secret
from trivet.exact.sqlite_rows import SCHEMA
from trivet.middleware.deployment_doctor.facts import (
    FileFacts,
    RedisFacts,
    SecretFacts,
    StoreFacts,
)
from trivet.middleware.running.config import StoreConfig, state_dir
from trivet.middleware.running.stores import shown_url, store_url

_CONNECT_S, _ANSWER_S = 2.0, 3.0
_PROBE_MS = 5000
_LOOKS = 5
"""The quickest counts: the others waited for something else than the way."""
_LOOK = """
local t, marks = redis.call('TIME'), redis.call('ZRANGE', KEYS[1], -16, -1, 'WITHSCORES')
return {t[1], t[2], unpack(marks)}
"""


def file_facts(path: Path) -> FileFacts:
    """Its permission bits."""
    try:
        return FileFacts(path, path.stat().st_mode & 0o777)
    except OSError:
        return FileFacts(path, None)


def gather_secret(config: StoreConfig, env: Mapping[str, str]) -> SecretFacts:
    """Where the secret is. None is made: that is for the proxy."""
    file = file_facts(config.secret_file or state_dir(env) / "secret")
    named = bool(env.get("TRIVET_SECRET", "").strip())
    if not named and file.mode is None:
        return SecretFacts("none", file)
    try:
        secret = load_secret(file.path, env)
        mark = Seal(mac(secret, b"trivet-store"), encrypt=config.encrypt).mark
    except ConfigError as error:
        return SecretFacts("environment" if named else "file", file, trouble=str(error))
    return SecretFacts("environment" if named else "file", file, mark=mark)


async def gather_store(config: StoreConfig) -> StoreFacts:
    """How the store is."""
    url, shown = store_url(config), shown_url(config)
    if url == "memory":
        return StoreFacts("memory", shown)
    if url.startswith("sqlite:"):
        return _sqlite(Path(url.removeprefix("sqlite:")), shown)
    return await _redis(url, shown)


def _sqlite(path: Path, shown: str) -> StoreFacts:
    file = file_facts(path)
    folder = _nearest(path.parent)
    free = None
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    trouble = unwritable = ""
    if not os.access(folder, os.W_OK | os.X_OK):
        unwritable = f"the folder {folder} cannot be written"
    if file.mode is not None:
        try:
            trouble = _read_database(path)
        except (sqlite3.Error, OSError) as error:
            trouble = f"{path}: {error}"
    return StoreFacts("sqlite", shown, trouble, unwritable, file=file, free_bytes=free)


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _read_database(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=2.0)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        if tables and not (version == SCHEMA.version and tables >= SCHEMA.tables):
            return f"{path} is another program's or another Trivet's"
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    return ""


async def _redis(url: str, shown: str) -> StoreFacts:
    try:
        from trivet.exact.redis_client import connect, translated
    except ImportError:
        return StoreFacts("redis", shown, "redis-py is not installed")
    from trivet.exact.store_url import parse_url

    link = connect(parse_url(url), timeout_s=_ANSWER_S, connect_s=_CONNECT_S, connections=2)
    try:
        async with translated():
            # The first one connects, and learns a cluster's nodes.
            await link.execute("EVAL", _LOOK, 1, MARKS)
            took = math.inf
            for _ in range(_LOOKS):
                began, asked = time.time(), time.monotonic()
                said = await link.execute("EVAL", _LOOK, 1, MARKS)
                if (needed := time.monotonic() - asked) < took:
                    told, took = said, needed
                    ahead = int(told[0]) + int(told[1]) / 1e6 - began - took / 2
        seen = RedisFacts(
            version=await _info(link, "server", r"redis_version\W+([\w.]+)"),
            evicts=await _info(link, "memory", r"maxmemory_policy\W+(allkeys-\w+)"),
            ahead_s=ahead,
            round_trip_s=took,
            marks=_ages(told),
        )
        return StoreFacts("redis", shown, unwritable=await _unwritable(link), redis=seen)
    except StoreError as error:
        return StoreFacts("redis", shown, str(error))
    finally:
        await link.close()


def _ages(told: list[bytes]) -> dict[str, float]:
    now = int(told[0])
    marks, scores = told[2::2], told[3::2]
    return {
        mark.decode("ascii", "replace")[:16]: max(0.0, now - float(left))
        for mark, left in zip(marks, scores, strict=True)
    }


async def _info(link: Any, section: str, pattern: str) -> str:
    from trivet.exact.redis_client import translated

    try:
        async with translated():
            said = await link.execute("INFO", section)
    except StoreError:
        return ""  # INFO may be denied, and then nobody can tell.
    found = re.search(pattern, str(said))
    return found[1] if found else ""


async def _unwritable(link: Any) -> str:
    from trivet.exact.redis_client import translated

    name = f"trivet:doctor:{secrets.token_hex(8)}"
    try:
        async with translated():
            await link.execute("SET", name, "1", "PX", _PROBE_MS)
            await link.execute("DEL", name)
    except StoreError as error:
        return str(error)
    return ""
